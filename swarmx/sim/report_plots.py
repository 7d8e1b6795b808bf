"""Plots as SVG text; colours come from the page's style sheet, so that light and dark both read.

Every function takes numbers and returns one `<svg>`. A series carries its name as a class, by which the page
colours and highlights it.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Scale = Callable[[float], float]
LEFT, RIGHT, TOP, BOTTOM = 66, 12, 12, 42  # margins around the plot area, in pixels of the view box


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its class name, its label, and its points in data units."""

    name: str
    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis shows: title, values at both ends, ticks as (value, label), and how values are spaced."""

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    spacing: Callable[[float], float] = float

    def scale(self, start: float, end: float) -> Scale:
        low, high = self.spacing(self.low), self.spacing(self.high)
        span = (high - low) or 1.0
        return lambda value: start + (self.spacing(value) - low) / span * (end - start)


def log_axis(title: str, values: Iterable[float], unit: str = "") -> Axis:
    """A logarithmic axis that holds all values, with ticks at 1, 2 and 5 times powers of ten."""
    kept = [v for v in values if v > 0 and math.isfinite(v)] or [1.0]
    low, high = min(kept) * 0.93, max(kept) * 1.07
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)):
        ticks = [m * 10.0**d for d in decades for m in steps if low <= m * 10.0**d <= high]
        if len(ticks) >= 4:
            break
    return Axis(title, low, high, [(t, f"{t:g}{unit}") for t in ticks], math.log10)


def tail_axis(title: str, top: float = 0.999) -> Axis:
    """A share axis stretched towards 1, where the tail is: each further nine takes the same room."""
    ticks = [(p, f"{p * 100:g} %") for p in (0.0, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999) if p <= top]
    return Axis(title, 0.0, top, ticks, lambda p: -math.log10(1 - min(p, top)))


def lines(
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    size: tuple[int, int] = (520, 330),
    diagonal: bool = False,
    labelled: bool = True,
    dots: bool = True,
) -> str:
    """A line chart; `labelled` names each line at its right end, the names pushed apart where they meet."""
    width, height = size
    right = width - (128 if labelled else RIGHT)
    sx, sy = x.scale(LEFT, right), y.scale(height - BOTTOM, TOP)
    out = _frame(x, y, sx, sy, size, right)
    if diagonal:
        out.append(_path([(x.low, x.low), (x.high, x.high)], sx, sy, "ideal"))
    ends = _apart([sy(s.points[-1][1]) for s in series], 13.0, TOP + 4, height - BOTTOM)
    for s, end in zip(series, ends, strict=True):
        out.append(f'<g class="series p-{s.name}" data-p="{s.name}">' + _path(s.points, sx, sy, "line"))
        for px, py in s.points if dots else ():
            tip = f"{html.escape(s.label)}: {py:.3g} at {px:g}"
            out.append(f'<circle cx="{sx(px):.1f}" cy="{sy(py):.1f}" r="3.2"><title>{tip}</title></circle>')
        if labelled:
            out.append(_text("name", right + 8, end + 4, s.label))
        out.append("</g>")
    return _svg(out, size)


def stacked(bars: Sequence[tuple[str, str, Mapping[str, float]]], unit: str = "s", width: int = 860) -> str:
    """Horizontal bars (class name, label, part -> amount), parts in the order given, the sum at the end."""
    left, right, step = 190, 70, 27
    top = max((sum(parts.values()) for _, _, parts in bars), default=1.0) or 1.0
    out = []
    for row, (name, label, parts) in enumerate(bars):
        y, x = row * step + 4, float(left)
        out.append(f'<g class="bar" data-p="{name}">{_text(f"name p-{name}", left - 10, y + 15, label, "end")}')
        for part, amount in parts.items():
            wide = max(amount, 0.0) / top * (width - left - right)
            tip = f"<title>{html.escape(label)}: {part} {amount:.3g} {unit}</title>"
            out.append(f'<rect class="part {part}" x="{x:.1f}" y="{y}" width="{wide:.1f}" height="20">{tip}</rect>')
            x += wide
        out.append(_text("value", x + 8, y + 15, f"{sum(parts.values()):.3g} {unit}") + "</g>")
    return _svg(out, (width, len(bars) * step + 8))


def ranges(items: Sequence[tuple[str, str, float, float, float]], x: Axis, mark: float = 1.0, width: int = 560) -> str:
    """A dot with its interval per item (class name, label, value, low, high), and a dashed line at `mark`."""
    left, right, step = 190, 60, 25
    bottom = len(items) * step + 4
    sx = x.scale(left, width - right)
    out = [_rule("grid", sx(v), 0, sx(v), bottom) for v, _ in x.ticks]
    out += [_text("tick", sx(v), bottom + 16, label, "middle") for v, label in x.ticks]
    out += [_text("title", (left + width - right) / 2, bottom + 34, x.title, "middle")]
    out += [_rule("mark", sx(mark), 0, sx(mark), bottom)]
    for row, (name, label, value, low, high) in enumerate(items):
        y = row * step + 13
        tip = f"<title>{html.escape(label)}: {value:.3g} ({low:.3g} to {high:.3g})</title>"
        out.append(f'<g class="series p-{name}" data-p="{name}">{tip}')
        out.append(_text("name", left - 14, y + 4, label, "end") + _rule("whisker", sx(low), y, sx(high), y))
        out.append(f'<circle cx="{sx(value):.1f}" cy="{y}" r="5"/>')
        out.append(_text("value", width - right + 10, y + 4, f"{value:.2f}") + "</g>")
    return _svg(out, (width, bottom + BOTTOM))


def _frame(x: Axis, y: Axis, sx: Scale, sy: Scale, size: tuple[int, int], right: float) -> list[str]:
    bottom, middle = size[1] - BOTTOM, (TOP + size[1] - BOTTOM) / 2
    out = [_rule("grid", LEFT, sy(v), right, sy(v)) for v, _ in y.ticks]
    out += [_text("tick", LEFT - 7, sy(v) + 4, label, "end") for v, label in y.ticks]
    out += [_rule("grid", sx(v), TOP, sx(v), bottom) for v, _ in x.ticks]
    out += [_text("tick", sx(v), bottom + 16, label, "middle") for v, label in x.ticks]
    out += [_text("title", (LEFT + right) / 2, size[1] - 6, x.title, "middle")]
    out += [f'<g transform="translate(13 {middle}) rotate(-90)">{_text("title", 0, 0, y.title, "middle")}</g>']
    return out


def _text(kind: str, x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" text-anchor="{anchor}" x="{x:.1f}" y="{y:.1f}">{html.escape(words)}</text>'


def _rule(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _path(points: Sequence[tuple[float, float]], sx: Scale, sy: Scale, kind: str) -> str:
    drawn = " L".join(f"{sx(px):.1f} {sy(py):.1f}" for px, py in points)
    return f'<path class="{kind}" d="M{drawn}"/>'


def _apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places moved as little as needed so that neighbours are `gap` apart and all lie within [low, high]."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    out = list(places)
    for before, after in pairwise(order):
        out[after] = max(out[after], out[before] + gap)
    limit = high
    for i in reversed(order):
        out[i] = min(out[i], limit)
        limit = out[i] - gap
    shift = max(0.0, low - min(out, default=low))
    return [place + shift for place in out]


def _svg(parts: Iterable[str], size: tuple[int, int]) -> str:
    return f'<svg viewBox="0 0 {size[0]} {size[1]}" role="img">{"".join(parts)}</svg>'
