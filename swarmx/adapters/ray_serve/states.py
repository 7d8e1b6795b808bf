"""What replicas say of themselves, and the `ReplicaState` that follows from it.

A replica's statistics travel as a plain dictionary, through Serve's controller to every handle and directly to the
queue owner. Fields: `running`, `waiting`, `kv_tokens`, `tokens_per_s`, `device`, `speed`, `slots`, `context_tokens`,
`kv_capacity_tokens`, `at_s` (seconds since the epoch), `number` (of the last ended call) and `ended`, the latest ended
calls as rows of `Ended`. A deployment that reports nothing counts as replicas of equal speed with
`max_ongoing_requests` slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from swarmx.engine import Segment
from swarmx.types import ReplicaState

DEFAULTS = ReplicaState("", "")
Stats = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """A call that ended on a replica.

    key : as in `identity.key_of`; type : the called method; status : "ok", "error" or "cancelled"
    tokens : output tokens, 0 when nobody knows them
    seconds, batch, kv, prefilled : as in `swarmx.engine.Segment`, over the whole stay of the call
    prompt_tokens : as the answer said, else estimated; first_s : from the call's coming to its first chunk
    """

    key: str
    type: str
    status: str
    tokens: int
    seconds: float
    batch: float
    kv: float
    prefilled: float
    prompt_tokens: int = 0
    first_s: float | None = None

    @property
    def segment(self) -> Segment:
        return Segment(self.seconds, float(self.tokens), self.batch, self.kv, self.prefilled)

    def row(self) -> tuple[Any, ...]:
        return astuple(self)


def rows_since(stats: Stats, number: int) -> list[Ended]:
    """Ended calls that came after that number; those that have left the dictionary's window are missed."""
    rows: Sequence[Sequence[Any]] = stats.get("ended", ())
    fresh = min(max(int(stats.get("number", 0)) - number, 0), len(rows))
    return [Ended(*row) for row in rows[len(rows) - fresh :]]


def state_of(replica_id: str, model: str, max_ongoing: int, stats: Stats) -> ReplicaState:
    """A replica as the scheduler sees it. Serve sends it no more than max_ongoing calls, whatever its slots are."""
    slots = int(stats.get("slots") or max_ongoing)
    return ReplicaState(
        id=replica_id,
        model=model,
        device=str(stats.get("device", DEFAULTS.device)),
        slots=max(1, min(slots, max_ongoing)),
        context_tokens=int(stats.get("context_tokens") or DEFAULTS.context_tokens),
        kv_capacity_tokens=int(stats.get("kv_capacity_tokens") or DEFAULTS.kv_capacity_tokens),
        running=int(stats.get("running", 0)),
        waiting=int(stats.get("waiting", 0)),
        kv_tokens=int(stats.get("kv_tokens", 0)),
        speed=float(stats.get("speed", DEFAULTS.speed)),
        reported_s=float(stats["at_s"]) if "at_s" in stats else None,
    )


def states_of(replicas: Iterable[Any], model: str) -> list[tuple[ReplicaState, Stats]]:
    """Each replica with its latest statistics. replicas : Serve's RunningReplica"""
    found = []
    for replica in replicas:
        stats = replica.routing_stats or {}
        found.append((state_of(replica.replica_id.unique_id, model, replica.max_ongoing_requests, stats), stats))
    return found
