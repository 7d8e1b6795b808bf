"""The six metrics of every row as ratios to LED, and where they exceed a limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from swarmx.sim import Comparison, compare
from swarmx.sim.suites.cells import LED, Cell
from swarmx.sim.suites.outcome import Outcome
from swarmx.sim.suites.summary import Group, grouped

METRICS = ("call P50", "call P95", "call P99", "workflow P50", "workflow P95", "workflow P99")
NEVER_ABOVE = 1.03


@dataclass(frozen=True, slots=True)
class Against:
    """One row of a suite: ratios of the six metrics to LED, in the order of `METRICS`, and of the TTFT P99."""

    regime: str
    load: float
    policy: str
    arm: str | None
    six: tuple[Comparison, ...]
    ttft: Comparison

    @property
    def name(self) -> str:
        return self.policy if self.arm in (None, "calibrated") else f"{self.policy}, {self.arm}"


def against_led(outcomes: Mapping[Cell, Outcome], reference: str = LED) -> list[Against]:
    """Every row but the reference's, paired by seed with the reference under the same regime and load."""
    groups = grouped(outcomes)
    known = {group[:4]: found for group, found in groups.items() if group[4] == reference}
    return [_against(group, found, known[group[:4]]) for group, found in groups.items() if group[4] != reference]


def _against(group: Group, mine: Sequence[Outcome], theirs: Sequence[Outcome]) -> Against:
    six = tuple(
        compare([getattr(o, level)[i] for o in mine], [getattr(o, level)[i] for o in theirs])
        for level in ("call", "workflow")
        for i in (1, 2, 3)
    )
    ttft = compare([o.ttft_p99_s for o in mine], [o.ttft_p99_s for o in theirs])
    return Against(group[2], group[3], group[4], group[5], six, ttft)


def violations(rows: Sequence[Against], limit: float = NEVER_ABOVE) -> Iterator[tuple[Against, str, Comparison]]:
    """Every (row, metric, ratio) above the limit, point estimates, worst first."""
    found = [(r, m, c) for r in rows for m, c in zip(METRICS, r.six, strict=True) if c.ratio > limit]
    yield from sorted(found, key=lambda f: -f[2].ratio)
