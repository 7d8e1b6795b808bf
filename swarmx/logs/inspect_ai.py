"""Inspect evaluation logs, .json and .eval: a sample is a workflow, its model events are calls."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from lzma import LZMAError
from pathlib import Path
from typing import Any

from swarmx.errors import BadInput
from swarmx.logs import columns
from swarmx.logs.options import Column, ImportOptions
from swarmx.logs.sources import Row, parse_json, read_json
from swarmx.logs.values import seconds
from swarmx.types import CallRecord

COLUMNS = {
    "arrival_s": Column("timestamp", "iso"),
    "prompt_tokens": Column("output.usage.input_tokens", optional=True),
    "output_tokens": Column("output.usage.output_tokens"),
    "cached_tokens": Column("output.usage.input_tokens_cache_read", optional=True),
    "max_tokens": Column("config.max_tokens", optional=True),
    "prompt": Column("input", optional=True),
}
# Everything that zipfile raises for a damaged, encrypted or exotic archive.
ARCHIVE_PROBLEMS = (zipfile.BadZipFile, zlib.error, LZMAError, OSError, EOFError, ValueError, RuntimeError)
REFERENCES = ("attachment://", "tc://")  # how a message names a text of the sample's attachments, now and formerly


def read(path: str | Path, options: ImportOptions) -> list[CallRecord]:
    """One call per model event. Its parents are inferred from time, so that tools are the gaps between calls.

    Versions of Inspect before `completed` was logged give the event's working_time, which leaves out the waits for
    retries, in its place. `type` is the name of the task.
    Raises BadInput for a file without model events, and naming the sample and event for a broken one.
    """
    events = [event for where, task, sample in _samples(Path(path)) for event in _events(where, task, sample, path)]
    if not events:
        raise BadInput(f"{path}: no model events in it; log samples with their events (log_samples=True)")
    return columns.read_rows(events, path, options.over(COLUMNS))


def _samples(path: Path) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(name for messages, task, sample) of every sample."""
    if not (path.is_file() and zipfile.is_zipfile(path)):
        content = read_json(path)
        samples = content.get("samples") if isinstance(content, Mapping) else None
        for place, sample in enumerate(samples if isinstance(samples, list) else [], 1):
            yield f"sample {place}", _task(content), _object(sample, f"{path}: sample {place}")
        return
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            header = next((n for n in ("header.json", "_journal/start.json") if n in names), None)
            task = _task(parse_json(archive.read(header), f"{path}: {header}")) if header else ""
            for name in names:
                if name.startswith("samples/"):
                    yield name, task, _object(parse_json(archive.read(name), f"{path}: {name}"), f"{path}: {name}")
    except ARCHIVE_PROBLEMS as problem:
        if isinstance(problem, BadInput):
            raise
        raise BadInput(f"{path}: the archive is damaged ({problem})") from None


def _events(where: str, task: str, sample: Mapping[str, Any], path: str | Path) -> Iterator[Row]:
    workflow = str(sample.get("uuid") or f"{where}/{sample.get('id')}/{sample.get('epoch')}")
    attachments = sample.get("attachments")
    texts = attachments if isinstance(attachments, Mapping) else {}
    events = sample.get("events")
    for place, event in enumerate(events if isinstance(events, list) else [], 1):
        if not isinstance(event, Mapping) or event.get("event") != "model":
            continue
        told = {k: v for k, v in event.items() if k in ("timestamp", "output", "config", "model")}
        told["input"] = _attached(event.get("input"), texts)
        told["call_id"] = str(event.get("uuid") or f"{workflow}/{place}")
        told["workflow_id"] = workflow
        told["status"] = "error" if event.get("error") else "ok"
        told["type"] = task or None
        told["finished_s"] = _end(event, f"{path}: {where}, event {place}")
        yield Row(f"{where}, event {place}", told)


def _end(event: Mapping[str, Any], where: str) -> Any:
    """When the event ended: as logged, else its start and working time, else None."""
    output = event.get("output")
    lasted = event.get("working_time") or (output.get("time") if isinstance(output, Mapping) else None)
    if event.get("completed") is not None or lasted is None:
        return event.get("completed")
    try:
        return seconds(event.get("timestamp"), "iso") + seconds(lasted)
    except ValueError as problem:
        raise BadInput(f"{where}, timestamp and working_time: {lasted!r} {problem}") from None


def _attached(value: Any, texts: Mapping[str, Any]) -> Any:
    """Messages with references to the sample's attachments replaced by their text."""
    if isinstance(value, str) and value.startswith(REFERENCES):
        return texts.get(value.partition("://")[2], value)
    if isinstance(value, list):
        return [_attached(v, texts) for v in value]
    if isinstance(value, Mapping):
        return {k: _attached(v, texts) for k, v in value.items()}
    return value


def _task(content: Any) -> str:
    evaluation = content.get("eval") if isinstance(content, Mapping) else None
    return str(evaluation.get("task") or "") if isinstance(evaluation, Mapping) else ""


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{where} is a {type(value).__name__}, an object was expected")
    return value
