"""What a model expects of a call, for people: in the terminal with rich, as PNG with matplotlib."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swarmx.files import replacing
from swarmx.predict.expectation import Expectation, OnDevice
from swarmx.predict.text import text_of
from swarmx.quantiles import QuantileGrid
from swarmx.types import Prediction

BAR = 22  # characters of the picture's axis
LEVELS_SHOWN = (0.1, 0.5, 0.9, 0.95, 0.99)
WIDTH = 80  # of the table where the output is no terminal
COLOURS = ("#3366cc", "#dc6900", "#2e8b57", "#8e44ad", "#b03a2e", "#5f6a6a")


def print_expectation(found: Expectation) -> None:
    """Quantiles of every target as a strip, seconds of every device on one axis, and why."""
    console = Console(highlight=False)
    console = console if console.width >= WIDTH else Console(highlight=False, width=WIDTH)
    text, prediction = text_of(found.call.prompt), found.prediction
    console.print(f"[bold]{escape(text[:200])}{'…' if len(text) > 200 else ''}[/]")
    console.print(f"answered by {prediction.source} of model {prediction.model_version}", style="dim")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", overflow="fold")
    table.add_column("0 to q0.99, ● median", no_wrap=True, min_width=BAR)
    for level in LEVELS_SHOWN:
        table.add_column(f"q{level:g}", justify="right", no_wrap=True)
    for name, grid in _targets(prediction):
        _add(table, name, grid, top_of([grid]))
    if found.devices:
        top = top_of([on.seconds for on in found.devices])
        table.add_row("[dim]seconds on …[/]")
        for on in found.devices:
            _add(table, _place(on), on.seconds, top)
    console.print(table)
    _print_why(console, found)


def _place(on: OnDevice) -> str:
    busy = f"{on.device} {'idle' if not on.running else f'+{on.running}'}"
    return busy if on.source == "neural" else f"{busy}, unknown: borrowed"


def _add(table: Table, name: str, grid: QuantileGrid, top: float) -> None:
    table.add_row(escape(name), strip(grid, top), *(f"{float(grid.at(level)):,.1f}" for level in LEVELS_SHOWN))


def _print_why(console: Console, found: Expectation) -> None:
    if found.reason.nearest_type:
        console.print(f"nearest call type of the training log: [bold]{escape(found.reason.nearest_type)}[/]")
    if found.outlook is not None:
        named = [
            f"{escape(branch.type or branch.model)} {share:.0%}" for branch, share in found.outlook.branches.items()
        ]
        console.print(f"when it has ended: {', '.join([*named[:5], f'nothing {found.outlook.ends:.0%}'])}")
    for what, factor in found.reason.moves:
        console.print(f"  without {escape(what)} the median would be ×{factor:.2f}")


def _targets(prediction: Prediction) -> list[tuple[str, QuantileGrid]]:
    rows = [("output tokens", prediction.tokens)]
    several = len(prediction.downstream) > 1
    rows += [(f"calls to come{f', {m}' if several else ''}", grid) for m, grid in prediction.downstream.items()]
    if prediction.remaining_tokens is not None:
        rows.append(("tokens to come", prediction.remaining_tokens))
    return rows


def top_of(grids: Sequence[QuantileGrid]) -> float:
    """Right end of an axis that these are shown on: the largest 0.99 quantile."""
    return max(1e-9, *(float(grid.at(0.99)) for grid in grids))


def strip(grid: QuantileGrid, top: float, width: int = BAR) -> str:
    """One distribution on an axis from 0 to `top`: ─ from q0.1 to q0.99, ━ between q0.25 and q0.75, ● the median."""
    at = {
        level: min(int(float(grid.at(level)) / top * (width - 1)), width - 1) for level in (0.1, 0.25, 0.5, 0.75, 0.99)
    }
    cells = [" "] * width
    for i in range(at[0.1], at[0.99] + 1):
        cells[i] = "━" if at[0.25] <= i <= at[0.75] else "─"
    cells[at[0.5]] = "●"
    return "".join(cells)


def draw_expectations(found: Sequence[Expectation], path: Path) -> None:
    """Predicted tokens of every prompt; seconds on every device and what moves the median, of the first. Needs
    matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    first = found[0]
    panels = 1 + bool(first.devices) + bool(first.reason.moves)
    drawing = Figure(figsize=(1.2 + 4.2 * panels, 3.9), layout="constrained")
    FigureCanvasAgg(drawing)
    places = drawing.subplots(1, panels, squeeze=False)[0]
    _draw_tokens(places[0], found)
    whose = ", first prompt" if len(found) > 1 else ""
    if first.devices:
        _draw_seconds(places[1], first, whose)
    if first.reason.moves:
        _draw_moves(places[-1], first, whose)
    for axes in places:
        axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a prompt may hold what the font has not: drawn as a box
        drawing.savefig(temporary, dpi=130, format="png")


def _draw_tokens(axes: Any, found: Sequence[Expectation]) -> None:
    for i, one in enumerate(found):
        label = _plain(" ".join(text_of(one.call.prompt).split()) or one.call.id, 38)
        tokens = one.prediction.tokens
        axes.plot(tokens.values, tokens.levels, marker="o", markersize=3, label=label, color=COLOURS[i % len(COLOURS)])
    axes.set(xlabel="output tokens", ylabel="share of answers no longer than that", ylim=(0, 1.02))
    axes.set_xlim(left=0)
    axes.set_title("how long the answer will be", fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=7, loc="lower right")


def _draw_seconds(axes: Any, one: Expectation, whose: str) -> None:
    """A box a device: whiskers q0.1 and q0.95, box q0.25 to q0.75, a line at the median, a dot at q0.99."""
    rows = list(reversed(one.devices))
    names = list(dict.fromkeys(on.device for on in one.devices))
    for y, on in enumerate(rows):
        low, start, middle, end, high, top = (float(on.seconds.at(q)) for q in (0.1, 0.25, 0.5, 0.75, 0.95, 0.99))
        colour = COLOURS[(2 + names.index(on.device)) % len(COLOURS)]  # the first ones stand for prompts
        axes.plot([low, high], [y, y], color=colour, linewidth=1.2)
        axes.barh(y, end - start, left=start, height=0.5, color=colour, alpha=0.35, edgecolor=colour)
        axes.plot([middle, middle], [y - 0.25, y + 0.25], color=colour, linewidth=2.2)
        axes.plot([top], [y], marker=".", color=colour)
    labels = [f"{on.device}\n{'idle' if not on.running else f'{on.running} running'}" for on in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.set_xlabel("seconds: q0.1, quartiles, q0.95, dot q0.99")
    axes.set_xlim(left=0)
    axes.set_title(f"how long it would take where{whose}", fontsize=10, loc="left")


def _draw_moves(axes: Any, one: Expectation, whose: str) -> None:
    moves = list(reversed(one.reason.moves))
    factors = np.array([factor for _, factor in moves])
    colours = [COLOURS[0] if factor < 1 else COLOURS[1] for factor in factors]
    axes.barh(range(len(moves)), np.log2(factors), color=colours, height=0.55)
    names = [_plain(what, 34) for what, _ in moves]
    axes.set_yticks(range(len(moves)), [f"without {_folded(name)}" for name in names], fontsize=7)
    low, high = axes.get_xlim()
    ends = max(abs(low), abs(high), 0.2)
    axes.set_xlim(-1.15 * ends, 1.15 * ends)
    ticks = [t for t in axes.get_xticks() if abs(t) <= 1.15 * ends]
    axes.set_xticks(ticks, [f"×{2**t:.2g}" for t in ticks])
    axes.axvline(0, color="black", linewidth=0.8)
    nearest = one.reason.nearest_type
    axes.set_xlabel("median would be" + (f"; nearest type: {nearest}" if nearest else ""))
    axes.set_title(f"why{whose}", fontsize=10, loc="left")


def _plain(text: str, most: int) -> str:
    """A short text that matplotlib draws as it is: no formulas, no control characters."""
    text = "".join(c if c.isprintable() else "·" for c in text)
    return (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")


def _folded(text: str, width: int = 18) -> str:
    """A long name over two lines, broken at a space."""
    cut = text.rfind(" ", 0, width)
    return text if len(text) <= width or cut < 1 else f"{text[:cut]}\n{text[cut + 1 :]}"
