"""Who else wants to know of a handle's calls, and how they ended.

A handle hears that a call is over, but neither how it ended nor how long its answer was; its replica says that with
the next routing statistics, half a second later. `Joined` puts the two together into a `CallRecord`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from swarmx.adapters.ray_serve.ride import Ride
from swarmx.adapters.ray_serve.states import Ended
from swarmx.types import CallRecord, ReplicaState, Status

PATIENCE_S = 30.0  # a call whose replica says nothing of its end for so long is given up


class Watcher(Protocol):
    """Told on the router's loop; what it raises is counted, and the call goes on."""

    def entered(self, ride: Ride, now: float) -> None:
        """A call has come, and what can be predicted of it is."""

    def routed(self, ride: Ride, now: float) -> None:
        """A replica has accepted it."""

    def over(self, ride: Ride, now: float) -> None:
        """It is over, in any way."""


@dataclass(slots=True, eq=False)
class _Stay:
    """A call on a replica. over_s : when the handle heard that it is over"""

    ride: Ride
    state: ReplicaState
    dispatched_s: float
    over_s: float | None = None
    ended: Ended | None = None


@dataclass
class Joined:
    """Puts a call's two ends together. write : takes every record; missed : called where none can be made"""

    write: Callable[[Ride, CallRecord], None]
    missed: Callable[[], None]
    _stays: dict[int, _Stay] = field(default_factory=dict)
    _inside: dict[tuple[str, str], deque[_Stay]] = field(default_factory=lambda: defaultdict(deque))

    def routed(self, ride: Ride, state: ReplicaState, now: float) -> None:
        """A replica has accepted the call, which was in this state before."""
        stay = self._stays[id(ride)] = _Stay(ride, state, now)
        self._inside[state.id, ride.key].append(stay)

    def over(self, ride: Ride, now: float) -> None:
        """The handle has heard that the call is over."""
        stay = self._stays.get(id(ride))
        if stay is None:  # it never reached a replica
            self.write(ride, _record(ride, "cancelled", now))
            return
        stay.over_s = now
        if stay.ended is not None:
            self._finish(stay, stay.ended.status)

    def told(self, replica: str, ended: Ended) -> bool:
        """A replica says how a call ended; whether it is one of this handle's."""
        stay = next((s for s in self._inside.get((replica, ended.key), ()) if s.ended is None), None)
        if stay is None:
            return False
        stay.ended = ended
        if stay.over_s is not None:
            self._finish(stay, ended.status)
        return True

    def present(self, replicas: Collection[str], now: float) -> None:
        """Calls that ended on a replica which is gone failed; of others that it keeps silent about nothing is known."""
        for stay in [s for s in self._stays.values() if s.over_s is not None]:
            assert stay.over_s is not None
            if stay.state.id not in replicas:
                self._finish(stay, "error")
            elif now - stay.over_s > PATIENCE_S:
                self._forget(stay)
                self.missed()

    def _finish(self, stay: _Stay, status: str) -> None:
        self._forget(stay)
        assert stay.over_s is not None
        known: Status = status if status in ("ok", "error", "cancelled") else "error"  # type: ignore[assignment]
        self.write(stay.ride, _record(stay.ride, known, stay.over_s, stay))

    def _forget(self, stay: _Stay) -> None:
        del self._stays[id(stay.ride)]
        same = self._inside[stay.state.id, stay.ride.key]
        same.remove(stay)
        if not same:
            del self._inside[stay.state.id, stay.ride.key]


def _record(ride: Ride, status: Status, now: float, stay: _Stay | None = None) -> CallRecord:
    """What happened, without the prompt. Times are the handle's; the first token's is the replica's distance from the
    call's coming there."""
    call, grid = ride.call, None if ride.prediction is None else ride.prediction.tokens.values
    state, ended = (None, None) if stay is None else (stay.state, stay.ended)
    dispatched_s = None if stay is None else stay.dispatched_s
    first_s = None if ended is None or ended.first_s is None else now - ended.seconds + ended.first_s
    return CallRecord(
        call_id=call.id, model=call.model, arrival_s=call.arrival_s, status=status, workflow_id=call.workflow_id,
        parent_id=call.parent_id, workflow_arrival_s=ride.workflow_arrival_s, tenant=call.tenant,
        priority=call.priority, type=call.type, max_tokens=call.max_tokens, deadline_s=call.deadline_s,
        prompt_tokens=call.prompt_tokens if ended is None else ended.prompt_tokens or call.prompt_tokens,
        replica=None if state is None else state.id, device=None if state is None else state.device,
        dispatched_s=dispatched_s,
        first_token_s=None if first_s is None else min(max(first_s, dispatched_s or first_s), now),
        finished_s=now, output_tokens=0 if ended is None else ended.tokens,
        running_at_dispatch=None if state is None else state.running,
        waiting_at_dispatch=None if state is None else state.waiting,
        kv_tokens_at_dispatch=None if state is None else state.kv_tokens,
        predicted_tokens=None if grid is None else tuple(map(float, grid)),
        prediction_source=None if ride.prediction is None else ride.prediction.source, policy=ride.policy,
    )  # fmt: skip
