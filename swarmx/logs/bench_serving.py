"""Results of `vllm bench serve --save-detailed` and SGLang's `bench_serving --output-details`, a run per object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from swarmx.errors import BadInput
from swarmx.logs import columns
from swarmx.logs.options import Column, ImportOptions
from swarmx.logs.sources import Row, json_objects
from swarmx.types import CallRecord

COLUMNS = {
    "arrival_s": Column("start", "s"),
    "finished_s": Column("latency", "s", "+", optional=True),
    "first_token_s": Column("ttft", "s", "+", optional=True),
    "prompt_tokens": Column("input_len"),
    "output_tokens": Column("output_len"),
}
NEEDED = ("input_lens", "output_lens", "ttfts", "itls")


def read(path: str | Path, options: ImportOptions) -> list[CallRecord]:
    """One call per request, each its own workflow; its latency is the first token's time plus all gaps after it.

    Raises BadInput when a run holds totals only, or lists of different lengths.
    """
    requests = [request for row in json_objects(path) for request in _requests(row, path)]
    return columns.read_rows(requests, path, options.over(COLUMNS, {"model": "unnamed"}))


def _requests(run: Row, path: str | Path) -> Iterator[Row]:
    lists: dict[str, Sequence[Any]] = {}
    for name in NEEDED:
        value = run.values.get(name)
        if not isinstance(value, list):
            raise BadInput(
                f"{path}: {run.place} has no list {name!r}, only totals of a run; "
                "repeat it with --save-detailed (vLLM) or --output-details (SGLang)"
            )
        lists[name] = value
    count = len(lists["output_lens"])
    lists["errors"] = run.values.get("errors") or [""] * count
    lists["start_times"] = run.values.get("start_times") or [0.0] * count
    for name, values in lists.items():
        if not isinstance(values, list) or len(values) != count:
            raise BadInput(f"{path}: {run.place}: {name!r} must be a list of {count}, one for each of output_lens")
    for place, values in enumerate(zip(*lists.values(), strict=True), 1):
        yield _request(f"{run.place}, request {place}", dict(zip(lists, values, strict=True)), run.values, path)


def _request(place: str, one: Mapping[str, Any], run: Mapping[str, Any], path: str | Path) -> Row:
    try:
        latency = float(one["ttfts"]) + sum(float(gap) for gap in one["itls"])
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"{path}: {place}: ttfts and itls must be seconds") from None
    values = {
        "start": one["start_times"],
        "input_len": one["input_lens"],
        "output_len": one["output_lens"],
        "ttft": one["ttfts"],
        "latency": latency,
        "status": "error" if one["errors"] else "ok",
        "model": run.get("model_id") or run.get("model"),
        "device": run.get("device"),
    }
    return Row(place, {k: v for k, v in values.items() if v is not None})
