"""The regime map: load x heterogeneity x batching x predictability, coloured by what `late` gains over the best simple
policy of each place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from swarmx.sim import Comparison, compare
from swarmx.sim.suites.batched import KV_TOKENS, LONG
from swarmx.sim.suites.cells import LED, Cell
from swarmx.sim.suites.made import HET, HOM, MILD, Made, Regime
from swarmx.sim.suites.outcome import Outcome
from swarmx.sim.suites.summary import grouped
from swarmx.sim.synthetic import Sizes

SIMPLE = (LED, "least_kv_tokens", "central_fcfs")  # no prediction, no learned constants
LOADS = (0.5, 0.7, 0.8, 0.9)
SPEEDS = {"equal speeds": HOM, "speeds 1 and .8": MILD, "speeds 1, .6, .35": HET}
ENGINES = {
    "one call at a time": Regime("job", (), slots=0, sizes=Sizes(prompt_tokens=0.0)),
    "8 slots": Regime("b8", (), slots=8),
    "32 slots": Regime("b32", ()),
    "memory-limited": Regime("kv", (), kv_tokens=KV_TOKENS, sizes=LONG),
}
KNOWN = {"lengths unknown": 0.0, "60 % known": 0.6}  # share of the log variance that prompts tell


def _name(engine: str, speeds: str, known: str) -> str:
    return f"{engine}; {speeds}; {known}"


def _regimes() -> tuple[Regime, ...]:
    return tuple(
        replace(
            ENGINES[engine], name=_name(engine, speeds, known), loads=LOADS, speeds=SPEEDS[speeds],
            sizes=replace(ENGINES[engine].sizes, rho2=KNOWN[known]),
        )
        for engine, speeds, known in product(ENGINES, SPEEDS, KNOWN)
    )  # fmt: skip


REGIME_MAP = Made(
    "regime_map",
    "gain of late over the best simple policy: load x heterogeneity x batching x predictability",
    _regimes(),
    (*SIMPLE, "late"),
    (*SIMPLE, "late"),
    ("calibrated",),
    share=0.5,
    short_share=0.1,
)


@dataclass(frozen=True, slots=True)
class Place:
    """One place of the map: workflow P99 of `late` relative to the simple policy with the lowest there."""

    engine: str
    speeds: str
    known: str
    load: float
    best: str
    ratio: Comparison

    @property
    def gains(self) -> bool:
        """Whether the interval, or with one seed the ratio less 3 %, stays below 1."""
        return self.ratio.high < 1 if self.ratio.seeds > 1 else self.ratio.ratio < 0.97


def places(outcomes: Mapping[Cell, Outcome]) -> list[Place]:
    """Every place of the map, in its order."""
    groups = grouped(outcomes)
    out = []
    for engine, speeds, known, load in product(ENGINES, SPEEDS, KNOWN, LOADS):
        here = {g[4]: f for g, f in groups.items() if g[2] == _name(engine, speeds, known) and g[3] == load}
        if "late" not in here:
            continue
        p99 = {name: [o.workflow[3] for o in found] for name, found in here.items()}
        best = min((n for n in SIMPLE if n in p99), key=lambda n: float(np.mean(np.log(p99[n]))))
        out.append(Place(engine, speeds, known, load, best, compare(p99["late"], p99[best])))
    return out


CELL_W, CELL_H, LEFT, TOP = 62, 30, 150, 74


def picture(found: Sequence[Place]) -> str:
    """The map as one SVG: a panel per engine and predictability, loads across, speeds down; grey where nothing is
    gained."""
    width = LEFT + len(ENGINES) * (len(LOADS) * CELL_W + 18)
    height = TOP + len(KNOWN) * (len(SPEEDS) * CELL_H + 46) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        '<text x="10" y="20" font-size="14">Workflow P99 of late against the best simple policy (no prediction, no '
        "learned constants) of each place</text>",
        '<text x="10" y="38">green: lower, in %; grey: no gain; red: higher. Columns: load</text>',
    ]
    for place in found:
        parts += _cell(place)
    for column, engine in enumerate(ENGINES):
        x = LEFT + column * (len(LOADS) * CELL_W + 18)
        parts.append(f'<text x="{x}" y="{TOP - 18}" font-weight="bold">{engine}</text>')
    for row, known in enumerate(KNOWN):
        y = TOP + row * (len(SPEEDS) * CELL_H + 46)
        parts.append(f'<text x="10" y="{y + 12}" font-weight="bold">{known}</text>')
        parts += [
            f'<text x="{LEFT - 8}" y="{y + 32 + i * CELL_H}" text-anchor="end">{speeds}</text>'
            for i, speeds in enumerate(SPEEDS)
        ]
    return "\n".join([*parts, "</svg>", ""])


def _cell(place: Place) -> list[str]:
    column, row = list(ENGINES).index(place.engine), list(KNOWN).index(place.known)
    x = LEFT + column * (len(LOADS) * CELL_W + 18) + LOADS.index(place.load) * CELL_W
    y = TOP + row * (len(SPEEDS) * CELL_H + 46) + 14 + list(SPEEDS).index(place.speeds) * CELL_H
    change = 100 * (place.ratio.ratio - 1)
    text = f"{change:+.0f} %"
    marks = []
    if place.speeds == next(iter(SPEEDS)):
        marks.append(f'<text x="{x + CELL_W / 2}" y="{y - 4}" text-anchor="middle">{place.load:g}</text>')
    title = f"{place.engine}, {place.speeds}, {place.known}, load {place.load:g}: {text} of {place.best}"
    return [
        *marks,
        f'<rect x="{x}" y="{y}" width="{CELL_W - 2}" height="{CELL_H - 2}" fill="{colour(place)}">'
        f"<title>{title}</title></rect>",
        f'<text x="{x + CELL_W / 2 - 1}" y="{y + 18}" text-anchor="middle">{text}</text>',
    ]


def colour(place: Place) -> str:
    """Grey for no gain, deeper green for more, red for a loss of more than 3 %."""
    ratio = place.ratio.ratio
    if ratio > 1.03:
        return "#e8a09a"
    if not place.gains:
        return "#d9d9d9"
    depth = min((1 - ratio) / 0.5, 1.0)
    return f"rgb({round(214 - 150 * depth)},{round(239 - 60 * depth)},{round(214 - 130 * depth)})"
