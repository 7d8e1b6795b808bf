"""Levels inside a class, with a starvation tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from swarmx.ordering.contract import Asked

LEVEL_STEP_S = 1e12  # larger than any arrival time: levels never mix


@dataclass(frozen=True, slots=True)
class Priority:
    """First come first served inside (class, level); what waits too long enters the starvation tier.

    levels : call type or tenant -> level, 0 best; others get `default_level`
    hold_s : seconds after which a call of the class high, normal, low is due

    A due call keeps its class and level; it goes before all that are not due, in the order of coming due. The bound is
    on dispatch, not on promotion. A call that arrives at t is due at t + hold(its class). Of the starts on replicas
    that could take it, after it is due only calls that came due before it precede it; those arrived before
    t + hold(its class) - hold(their class). So with D such calls waiting when it comes due, it is at latest the
    (D + 1)-th start after that; with one dispatch per step and equal holds that is hold + (calls that arrived earlier).
    """

    levels: Mapping[str, int] = field(default_factory=dict)
    default_level: int = 1
    hold_s: tuple[float, float, float] = (30.0, 60.0, 120.0)

    def key(self, asked: Asked) -> float:
        call = asked.call
        level = self.levels.get(call.type or "", self.levels.get(call.tenant, self.default_level))
        return level * LEVEL_STEP_S + call.arrival_s
