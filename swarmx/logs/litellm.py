"""LiteLLM's StandardLoggingPayload, one JSON object per call, as its logging callbacks write it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from swarmx.logs import columns
from swarmx.logs.options import Column, ImportOptions
from swarmx.types import CallRecord

COLUMNS = {
    "call_id": Column("id"),
    "workflow_id": Column("trace_id", optional=True),
    "arrival_s": Column("startTime"),
    "first_token_s": Column("completionStartTime", optional=True),
    "finished_s": Column("endTime"),
    "prompt": Column("messages", optional=True),
    "output_tokens": Column("completion_tokens"),
    "cached_tokens": Column("response.usage.prompt_tokens_details.cached_tokens", optional=True),
    "max_tokens": Column("model_parameters.max_tokens", optional=True),
    "tenant": Column("metadata.user_api_key_team_alias", optional=True),
    "replica": Column("model_id", optional=True),
}


def read(path: str | Path, options: ImportOptions) -> list[CallRecord]:
    """One call per object; model, status and prompt_tokens stand under those names.

    Calls that were not streamed carry their end as completionStartTime; their first token is not known.
    Raises BadInput naming file, line and field.
    """
    records = columns.read(path, options.over(COLUMNS))
    return [replace(r, first_token_s=None) if r.first_token_s == r.finished_s else r for r in records]
