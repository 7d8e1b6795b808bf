"""Queue disciplines by name: which waiting call is looked at first, below its priority class.

The contract is in `contract`: an `Order` gives a call one key for good, a `LaneOrder` scores lanes of calls. `aging` is
the starvation tier that stands before all of them, `lanes` the queue of the second kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swarmx.errors import BadInput
from swarmx.ordering.aging import Aging, aging_of
from swarmx.ordering.contract import Asked, Hooks, LaneOrder, Order
from swarmx.ordering.critical_path import CriticalPath
from swarmx.ordering.edf import Edf
from swarmx.ordering.fair_share import FairShare
from swarmx.ordering.fcfs import Fcfs
from swarmx.ordering.gamma_boost import GammaBoost
from swarmx.ordering.gittins import Gittins
from swarmx.ordering.justitia import Justitia
from swarmx.ordering.lanes import LaneQueue
from swarmx.ordering.las import Las
from swarmx.ordering.mlfq import Mlfq
from swarmx.ordering.oldest_workflow import OldestWorkflow
from swarmx.ordering.priority import Priority
from swarmx.ordering.ready_list import ReadyList
from swarmx.ordering.round_robin import RoundRobin
from swarmx.ordering.saga_afs import SagaAfs
from swarmx.ordering.sjf import Sjf
from swarmx.ordering.spoq_waves import SpoqWaves
from swarmx.ordering.vtc import Vtc
from swarmx.waiting import WaitingQueue

ORDERS: dict[str, Callable[..., Order | LaneOrder]] = {
    "fcfs": Fcfs,
    "oldest_workflow": OldestWorkflow,
    "round_robin": RoundRobin,
    "priority": Priority,
    "fair_share": FairShare,
    "vtc": Vtc,
    "mlfq": Mlfq,
    "justitia": Justitia,
    "saga_afs": SagaAfs,
    "edf": Edf,
    "sjf": Sjf,
    "gittins": Gittins,
    "gamma_boost": GammaBoost,
    "las": Las,
    "critical_path": CriticalPath,
    "spoq_waves": SpoqWaves,
    "ready_list": ReadyList,
}


def order_named(name: str, **options: Any) -> Order | LaneOrder:
    """A fresh discipline of that name. Raises BadInput for an unknown name or option."""
    if name not in ORDERS:
        raise BadInput(f"unknown order {name!r}; choose one of {', '.join(ORDERS)}")
    try:
        return ORDERS[name](**options)
    except (TypeError, ValueError) as problem:
        raise BadInput(f"order {name!r}: {problem}") from None


def queue_for(order: Order | LaneOrder) -> WaitingQueue:
    """The queue that suits the discipline."""
    return LaneQueue(order) if isinstance(order, LaneOrder) else WaitingQueue()


__all__ = [
    "ORDERS",
    "Aging",
    "Asked",
    "Fcfs",
    "Hooks",
    "LaneOrder",
    "OldestWorkflow",
    "Order",
    "aging_of",
    "order_named",
    "queue_for",
]
