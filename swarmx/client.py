"""Tells a gateway whose work a call is: headers for any OpenAI client, set by a context manager.

    with workflow("run-17", tenant="research", priority="low") as work:
        client = OpenAI(base_url=..., http_client=...)
        plan = client.chat.completions.create(..., extra_headers=headers(type="plan"))
        with work.after(plan_id):
            client.chat.completions.create(..., extra_headers=headers(type="write"))

Contexts nest and follow asyncio tasks, as they are context variables.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from swarmx.types import PRIORITIES, Priority

PREFIX = "x-swarmx-"
_current: ContextVar[Workflow | None] = ContextVar("swarmx_workflow", default=None)


@dataclass(frozen=True, slots=True)
class Workflow:
    """A run of an agent. arrival_s : when it began, seconds since the epoch"""

    id: str
    arrival_s: float
    tenant: str | None = None
    priority: Priority | None = None
    deadline_s: float | None = None
    parent_id: str | None = None

    @contextmanager
    def after(self, call_id: str) -> Iterator[Workflow]:
        """Calls made inside waited for that call."""
        with _entered(replace(self, parent_id=call_id)) as inner:
            yield inner


@contextmanager
def workflow(
    id: str | None = None,
    *,
    tenant: str | None = None,
    priority: Priority | None = None,
    deadline_s: float | None = None,
) -> Iterator[Workflow]:
    """Calls made inside belong to one workflow.

    id : made up when it is not given; deadline_s : seconds from now by which all should be done
    Raises ValueError for an unknown priority or a deadline that is not ahead.
    """
    if priority is not None and priority not in PRIORITIES:
        raise ValueError(f"unknown priority {priority!r}; choose one of {', '.join(PRIORITIES)}")
    if deadline_s is not None and not deadline_s > 0:
        raise ValueError(f"deadline_s must be above 0, got {deadline_s}")
    now = time.time()
    ends = None if deadline_s is None else now + deadline_s
    with _entered(Workflow(id or f"wf-{uuid.uuid4().hex}", now, tenant, priority, ends)) as entered:
        yield entered


def headers(
    *, type: str | None = None, call_id: str | None = None, continue_on_failure: bool = False
) -> dict[str, str]:
    """Headers of one call in the present workflow; outside of one, only what is given here."""
    work = _current.get()
    values: dict[str, object] = {"call-id": call_id or f"call-{uuid.uuid4().hex}", "type": type}
    if continue_on_failure:
        values["continue-on-failure"] = "1"
    if work is not None:
        values |= {
            "workflow-id": work.id,
            "workflow-arrival": f"{work.arrival_s:.6f}",
            "tenant": work.tenant,
            "priority": work.priority,
            "parent-id": work.parent_id,
            "deadline-s": None if work.deadline_s is None else f"{work.deadline_s:.6f}",
        }
    return {PREFIX + name: str(value) for name, value in values.items() if value is not None}


@contextmanager
def _entered(work: Workflow) -> Iterator[Workflow]:
    mark = _current.set(work)
    try:
        yield work
    finally:
        _current.reset(mark)
