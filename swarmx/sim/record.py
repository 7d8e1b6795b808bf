"""The `CallRecord` of a simulated call, made without copying a field: most schedulers read three of thirty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import Any

from swarmx.sim.job import Job
from swarmx.types import CallRecord, Status


def record_of(job: Job, status: Status, now: float) -> CallRecord:
    """The row of an execution log that this attempt leaves; complete, so it stays true when the call runs again."""
    ended = ended_call(job, now)
    values = {f.name: getattr(ended, f.name) for f in fields(CallRecord)}
    values["status"] = status
    if status != "ok":
        values["output_tokens"] = int(job.produced)
    return CallRecord(**values)


def ended_call(job: Job, now: float) -> CallRecord:
    """The same for a call that ended well and will not change any more: fields are read off the job when asked for."""
    record = object.__new__(_EndedCall)
    _set_job(record, job)
    _set_end(record, now)
    return record


class _EndedCall(CallRecord):
    """A `CallRecord` in all respects; copies (`dataclasses.replace`, pickle) are plain ones."""

    __slots__ = ("_end_s", "_job")
    _end_s: float
    _job: Job

    def __new__(cls, *args: Any, **values: Any) -> CallRecord:  # type: ignore[misc]
        return CallRecord(*args, **values)

    def __reduce__(self) -> tuple[Any, ...]:
        return CallRecord, tuple(getattr(self, f.name) for f in fields(CallRecord))


_set_job: Callable[[Any, Job], None] = _EndedCall.__dict__["_job"].__set__
_set_end: Callable[[Any, float], None] = _EndedCall.__dict__["_end_s"].__set__


def _first_token_s(job: Job) -> float | None:
    return job.first_token_s if job.first_token_s == job.first_token_s else None


_SAME = ("model", "arrival_s", "workflow_id", "parent_id", "workflow_arrival_s", "tenant", "priority", "type",
         "prompt_tokens", "max_tokens", "deadline_s")  # fmt: skip
_OF_JOB: dict[str, str] = {name: f"call.{name}" for name in _SAME} | {
    "call_id": "call.id",
    "dispatched_s": "dispatched_s",
    "cached_tokens": "cached_tokens",
    "running_at_dispatch": "running_at_dispatch",
    "waiting_at_dispatch": "waiting_at_dispatch",
}
_WORKED_OUT: dict[str, Callable[[Job], Any]] = {
    "prompt": lambda j: j.sim.prompt or None,
    "prompt_group": lambda j: j.sim.group or None,
    "replica": lambda j: j.replica.spec.id if j.replica is not None else None,
    "device": lambda j: j.replica.spec.device if j.replica is not None else None,
    "first_token_s": _first_token_s,
}


def _property(name: str, default: Any) -> property:
    if name == "finished_s":
        return property(attrgetter("_end_s"))
    if name == "output_tokens":  # every scheduler asks
        return property(lambda self: max(round(self._job.produced), 1))
    if name in _OF_JOB:  # read without a Python call
        return property(attrgetter("_job." + _OF_JOB[name]))
    read = _WORKED_OUT.get(name)
    return property((lambda self: default) if read is None else (lambda self: read(self._job)))


for _field in fields(CallRecord):
    _default = "ok" if _field.name == "status" else None if _field.default is MISSING else _field.default
    setattr(_EndedCall, _field.name, _property(_field.name, _default))
