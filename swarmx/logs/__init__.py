"""Execution logs: tables of call records, importers of other formats, checks, workflows to replay.

`IMPORTERS` is the registry that `swarmx log import --format` and `swarmx policies` list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swarmx.logs import (
    aiperf,
    azure_llm_trace,
    bench_serving,
    columns,
    inspect_ai,
    litellm,
    llmperf,
    mooncake_trace,
    otel,
    splitwise_sim,
    vidur_trace,
)
from swarmx.logs.options import ImportOptions
from swarmx.types import CallRecord


@dataclass(frozen=True, slots=True)
class Importer:
    """A source format.

    read : file and options -> records with the source's own times; raises BadInput naming the file and the place in it
    description : one line; caveat : what a log made from it cannot show, kept in the log
    has_columns : takes a column map
    """

    read: Callable[[str | Path, ImportOptions], list[CallRecord]]
    description: str
    caveat: str = ""
    has_columns: bool = False


TRACE_CAVEAT = "arrivals and lengths only: no prompts, latencies, workflows or model names"

IMPORTERS = {
    "columns": Importer(
        columns.read, "CSV, TSV, JSON, JSON Lines or Parquet with a column map (--map)", has_columns=True
    ),
    "otel": Importer(
        otel.read,
        "OpenTelemetry GenAI spans: OTLP/JSON or {trace_id, spans} files",
        "spans name callers, not what a call waited for: parents between siblings are inferred from time",
    ),
    "azure_llm_trace": Importer(azure_llm_trace.read, "Azure LLM inference traces (CSV)", TRACE_CAVEAT),
    "mooncake_trace": Importer(
        mooncake_trace.read, "Mooncake traces (JSON Lines)", f"{TRACE_CAVEAT}; its prefix hashes are dropped"
    ),
    "vidur_trace": Importer(vidur_trace.read, "Vidur traces (CSV)", TRACE_CAVEAT),
    "splitwise_sim": Importer(splitwise_sim.read, "SplitwiseSim traces (CSV)", TRACE_CAVEAT),
    "litellm": Importer(litellm.read, "LiteLLM StandardLoggingPayload objects"),
    "inspect_ai": Importer(
        inspect_ai.read,
        "Inspect evaluation logs (.json, .eval)",
        "no first-token times; parents are inferred from time",
    ),
    "aiperf": Importer(
        aiperf.read, "AIPerf profile_export.jsonl", "synthetic load of one model, whose name the file does not hold"
    ),
    "bench_serving": Importer(
        bench_serving.read,
        "vLLM and SGLang serving benchmarks with per-request details",
        "synthetic load; without start_times every call arrives at 0",
    ),
    "llmperf": Importer(
        llmperf.read,
        "LLMPerf individual responses",
        "synthetic load without arrival times: every call arrives at 0, only lengths and latencies mean anything",
    ),
}
