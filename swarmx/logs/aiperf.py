"""AIPerf's profile_export.jsonl: one JSON object per request, with metadata and metrics that name their units."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swarmx.logs import columns
from swarmx.logs.options import Column, ImportOptions
from swarmx.logs.sources import Row, json_objects
from swarmx.types import CallRecord

COLUMNS = {
    "call_id": Column("metadata.x_request_id"),
    "workflow_id": Column("metadata.x_correlation_id", optional=True),
    "arrival_s": Column("metadata.request_start_ns", "ns"),
    "first_token_s": Column("metrics.time_to_first_token.value", "ms", "+", optional=True),
    "finished_s": Column("metadata.request_end_ns", "ns"),
    "prompt_tokens": Column("metrics.input_sequence_length.value", optional=True),
    "output_tokens": Column("metrics.output_sequence_length.value"),
}


def read(path: str | Path, options: ImportOptions) -> list[CallRecord]:
    """One call per request of the profiling phase; turns of one session are a workflow, each after the one before.

    Requests of a warm-up phase are left out. Raises BadInput naming file, line and field.
    """
    told = (_with_status(row) for row in json_objects(path) if _metadata(row).get("benchmark_phase") != "warmup")
    return columns.read_rows(told, path, options.over(COLUMNS, {"model": "unnamed"}))


def _with_status(row: Row) -> Row:
    status = "error" if row.values.get("error") else "ok"
    return Row(row.place, {**row.values, "status": "cancelled" if _metadata(row).get("was_cancelled") else status})


def _metadata(row: Row) -> Mapping[str, Any]:
    metadata = row.values.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}
