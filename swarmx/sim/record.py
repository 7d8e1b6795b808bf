"""The `CallRecord` of a simulated call, made without copying a field: most schedulers read three of thirty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
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


def _output_tokens(job: Job) -> int:
    return max(round(job.produced), 1)


def _first_token_s(job: Job) -> float | None:
    return job.first_token_s if job.first_token_s == job.first_token_s else None


_OF_JOB: dict[str, Callable[[Job], Any]] = {
    "call_id": lambda j: j.call.id,
    "model": lambda j: j.call.model,
    "arrival_s": lambda j: j.call.arrival_s,
    "workflow_id": lambda j: j.call.workflow_id,
    "parent_id": lambda j: j.call.parent_id,
    "workflow_arrival_s": lambda j: j.call.workflow_arrival_s,
    "tenant": lambda j: j.call.tenant,
    "priority": lambda j: j.call.priority,
    "type": lambda j: j.call.type,
    "prompt": lambda j: j.sim.prompt or None,
    "prompt_group": lambda j: j.sim.group or None,
    "prompt_tokens": lambda j: j.call.prompt_tokens,
    "max_tokens": lambda j: j.call.max_tokens,
    "deadline_s": lambda j: j.call.deadline_s,
    "replica": lambda j: j.replica.spec.id if j.replica is not None else None,
    "device": lambda j: j.replica.spec.device if j.replica is not None else None,
    "dispatched_s": lambda j: j.dispatched_s,
    "first_token_s": _first_token_s,
    "output_tokens": _output_tokens,
    "cached_tokens": lambda j: j.cached_tokens,
    "running_at_dispatch": lambda j: j.running_at_dispatch,
    "waiting_at_dispatch": lambda j: j.waiting_at_dispatch,
}


def _property(name: str, default: Any) -> property:
    if name == "finished_s":
        return property(lambda self: self._end_s)
    read = _OF_JOB.get(name)
    if read is None:
        return property(lambda self: default)
    return property(lambda self: read(self._job))


for _field in fields(CallRecord):
    _default = "ok" if _field.name == "status" else None if _field.default is MISSING else _field.default
    setattr(_EndedCall, _field.name, _property(_field.name, _default))
