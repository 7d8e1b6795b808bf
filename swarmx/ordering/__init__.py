"""Queue disciplines by name: which waiting call is looked at first, below its priority class.

An order is asked for the key of a call when the call arrives, once more when its prediction arrives, and then never
again; a smaller key goes first. A static key makes the order cheap and its starvation bound provable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from swarmx.ordering.fcfs import Fcfs
from swarmx.ordering.oldest_workflow import OldestWorkflow
from swarmx.types import Call


class Order(Protocol):
    """A queue discipline."""

    def key(self, call: Call, workflow_work_s: float, batched: bool) -> float:
        """Smaller goes first.

        workflow_work_s : predicted seconds of the call's whole workflow, 0 when unknown
        batched : whether some replica of the pool runs several calls at once
        """
        ...


__all__ = ["ORDERS", "Fcfs", "OldestWorkflow", "Order"]

ORDERS: dict[str, Callable[..., Order]] = {
    "fcfs": Fcfs,
    "oldest_workflow": OldestWorkflow,
}
