"""Taking running calls off their replicas: whom, for whom, and whether it is worth its cost.

A `Preemption` sees the calls that could not be started and what runs, and returns `Displacement`s; the scheduler turns
them into `Preempt` and `Start`. Nothing is preempted unless a rule says so: the default everywhere is to let calls end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

Rule = Literal["priority", "quota", "backfill", "slice"]
Resume = Literal["recompute", "cancel", "checkpoint"]
MOST_VICTIMS = 4  # calls that may make way for one


@dataclass(frozen=True, slots=True)
class Running:
    """A call in flight, as its replica would have to give it up. Tokens; age: produced in this attempt."""

    call_id: str
    replica: int
    tenant: str
    level: int
    key: tuple[object, ...]
    prompt: float
    age: float
    rest: float
    held: float
    interrupted: int
    started_s: float


@dataclass(frozen=True, slots=True)
class Wanting:
    """A waiting call. need : KV tokens; due_s : when it came due, None if it is not"""

    call_id: str
    tenant: str
    level: int
    key: tuple[object, ...]
    prompt: float
    need: float
    since_s: float
    due_s: float | None
    refused: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Place:
    """A replica. tau_s : seconds per output token of each running call; prefill_s : per prompt token

    room : KV tokens free; known : its last report is fresh enough to believe; usable : open for new calls
    """

    slots: int
    running: int
    room: float
    longest: float
    tau_s: float
    prefill_s: float
    usable: bool = True
    known: bool = True


@dataclass(frozen=True, slots=True)
class Displacement:
    """These calls make way on that replica for this one."""

    call_id: str
    replica: int
    victims: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that an interruption costs.

    resume : "recompute" keeps the text and prefills it again; "cancel" loses it; "checkpoint" writes the KV cache out
        and reads it back
    kv_bytes : per token (131,072: 32 layers, 8 KV heads of 128, fp16); bandwidth : bytes a second between replicas, or
        to the checkpoint store; pause_s : fixed cost of each interruption
    """

    resume: Resume = "recompute"
    kv_bytes: float = 131_072.0
    bandwidth: float = 10e9
    pause_s: float = 0.02

    def preempt_s(self, prompt: float, age: float, tau_s: float, prefill_s: float) -> float:
        """Work lost or done twice when a call with that prompt and age is interrupted and comes back."""
        if self.resume == "cancel":
            return self.pause_s + age * tau_s + prompt * prefill_s
        if self.resume == "checkpoint":
            return self.pause_s + 2 * (prompt + age) * self.kv_bytes / self.bandwidth
        return self.pause_s + (prompt + age) * prefill_s

    def move_s(self, held: float, tau_s: float) -> tuple[float, float]:
        """(seconds of copying, seconds in which the call stands still) of a live migration.

        Copied while it decodes; then, again, what it produced meanwhile; it stands still for the last round alone
        (Llumnix, OSDI 2024). The copy is not cheaper than `bandwidth` allows, the pause not shorter than `pause_s`.
        """
        per_token = self.kv_bytes / self.bandwidth
        copying = held * per_token
        produced = copying / max(tau_s, 1e-9)
        return copying + produced * per_token, self.pause_s + min(produced, held) * per_token


@dataclass(frozen=True, slots=True)
class Preemption:
    """Rules and limits.

    rules : in the order in which they are tried for a waiting call
        "priority": calls of a worse class make way
        "quota": a tenant below its quota takes back slots that others hold beyond theirs (lent capacity)
        "backfill": a call that has been due for `backfill_s` takes the place of later ones that went before it
        "slice": a call that has run `slice_tokens` makes way for a waiting one of its class, at a token boundary
    quotas : tenant -> share of all slots that is its own; tenants without have none
    most : interruptions per call; after that it runs to its end
    worth : preempt when waiting for the next call to end would take longer than `worth` * cost
    look : waiting calls that are considered, in order
    Of all places the cheapest is taken, and only if waiting costs more. Replicas whose report is stale are unknown, not
    idle: nothing is displaced there.
    """

    rules: tuple[Rule, ...] = ("priority",)
    costs: Costs = field(default_factory=Costs)
    quotas: Mapping[str, float] = field(default_factory=dict)
    most: int = 2
    worth: float = 1.0
    look: int = 8
    backfill_s: float = 10.0
    slice_tokens: float = 256.0

    def __post_init__(self) -> None:
        if any(not 0 <= share <= 1 for share in self.quotas.values()) or sum(self.quotas.values()) > 1:
            raise ValueError(f"quotas must be shares that add up to at most 1, got {dict(self.quotas)}")
        if self.most < 0 or self.look < 1:
            raise ValueError(f"most must not be negative and look at least 1, got {self.most} and {self.look}")

    def decide(
        self, wanting: Sequence[Wanting], running: Sequence[Running], places: Sequence[Place], now: float
    ) -> Iterator[Displacement]:
        """Displacements, each with the effect of those before it taken into account."""
        left = {r.call_id: r for r in running}
        ends = sorted(r.rest * places[r.replica].tau_s for r in running if places[r.replica].known)
        fresh: set[int] = set()  # one displacement per replica and step: its room is not known after that
        for position, call in enumerate(wanting[: self.look]):
            wait_s = ends[position] if position < len(ends) else inf
            best = self._cheapest(call, list(left.values()), places, fresh, now)
            if best is None or wait_s <= self.worth * best[0]:
                continue
            cost, place, victims, rule = best
            for victim in victims:
                del left[victim.call_id]
            fresh.add(place)
            reason = f"{rule}: {cost:.3g} s of work against {wait_s:.3g} s of waiting"
            yield Displacement(call.call_id, place, tuple(v.call_id for v in victims), reason)

    def _cheapest(
        self, call: Wanting, running: Sequence[Running], places: Sequence[Place], taken: set[int], now: float
    ) -> tuple[float, int, list[Running], Rule] | None:
        for rule in self.rules:
            allowed = self._allowed(rule, call, running, places, now)
            if allowed is None:
                continue
            found = []
            for index, place in enumerate(places):
                if index in taken or index in call.refused or not (place.usable and place.known):
                    continue
                if call.prompt + 1 > place.longest:
                    continue
                victims = self._make_room(call, index, place, [r for r in running if r.replica == index and allowed(r)])
                if victims:
                    found.append((sum(self._cost(v, place) for v in victims), index, victims, rule))
            if found:
                return min(found, key=lambda entry: entry[:2])
        return None

    def _make_room(self, call: Wanting, index: int, place: Place, candidates: list[Running]) -> list[Running]:
        """Cheapest calls there whose going frees a slot and the KV memory; empty when that is not enough."""
        victims: list[Running] = []
        slots, room = place.slots - place.running, place.room
        for victim in sorted(candidates, key=lambda v: (self._cost(v, place), v.call_id)):
            if (slots >= 1 and room >= call.need) or len(victims) == MOST_VICTIMS:
                break
            victims.append(victim)
            slots, room = slots + 1, room + victim.held
        alone = len(victims) == place.running
        return victims if slots >= 1 and (room >= call.need or alone) else []

    def _cost(self, victim: Running, place: Place) -> float:
        return self.costs.preempt_s(victim.prompt, victim.age, place.tau_s, place.prefill_s)

    def _allowed(
        self, rule: Rule, call: Wanting, running: Sequence[Running], places: Sequence[Place], now: float
    ) -> Callable[[Running], bool] | None:
        """Which running calls must make way under the rule; None when it does not speak for this call."""
        if rule == "priority":
            return lambda r: r.level > call.level and r.interrupted < self.most
        if rule == "quota":
            return self._reclaim(call, running, sum(p.slots for p in places))
        if rule == "backfill":
            due_s = call.due_s
            if due_s is None or now - due_s < self.backfill_s:
                return None
            return lambda r: r.started_s >= call.since_s and r.key > call.key and r.interrupted < self.most
        return lambda r: r.level == call.level and r.age >= self.slice_tokens and r.interrupted < self.most

    def _reclaim(self, call: Wanting, running: Sequence[Running], slots: int) -> Callable[[Running], bool] | None:
        held: dict[str, int] = {}
        for r in running:
            held[r.tenant] = held.get(r.tenant, 0) + 1
        own = self.quotas.get(call.tenant, 0.0) * slots
        if held.get(call.tenant, 0) + 1 > own:
            return None
        over = {t for t, n in held.items() if n - 1 >= self.quotas.get(t, 0.0) * slots and t != call.tenant}
        return lambda r: r.tenant in over and r.interrupted < self.most
