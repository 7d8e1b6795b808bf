"""Predictions and metrics for people: in the terminal with rich, as PNG with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from swarmx.files import replacing
from swarmx.predict.explain import Reason
from swarmx.predict.metrics import REPORTED
from swarmx.predict.text import text_of
from swarmx.quantiles import QuantileGrid
from swarmx.types import Call, Prediction

BAR = 26  # characters of the picture's axis


def print_prediction(call: Call, prediction: Prediction, reason: Reason) -> None:
    """Quantiles of every target as a strip, and why."""
    console = Console(highlight=False)
    text = text_of(call.prompt)
    console.print(f"[bold]{escape(text[:200])}{'…' if len(text) > 200 else ''}[/]")
    console.print(f"answered by {prediction.source} of model {prediction.model_version}", style="dim")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (("", "left"), ("0 to q0.99, ● median", "left"), ("q0.1", "right"), ("q0.5", "right"),
                          ("q0.9", "right"), ("q0.95", "right"), ("q0.99", "right")):  # fmt: skip
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name, grid in _targets(prediction):
        table.add_row(name, strip(grid), *(f"{float(grid.at(level)):,.1f}" for level in (0.1, 0.5, 0.9, 0.95, 0.99)))
    console.print(table)
    if reason.nearest_type:
        console.print(f"nearest call type of the training log: [bold]{escape(reason.nearest_type)}[/]")
    for what, factor in reason.moves:
        console.print(f"  without {escape(what)} the median would be ×{factor:.2f}")


def _targets(prediction: Prediction) -> list[tuple[str, QuantileGrid]]:
    rows = [("output tokens", prediction.tokens)]
    several = len(prediction.downstream) > 1
    rows += [(f"calls to come{f', {m}' if several else ''}", grid) for m, grid in prediction.downstream.items()]
    if prediction.remaining_tokens is not None:
        rows.append(("tokens to come", prediction.remaining_tokens))
    return rows


def strip(grid: QuantileGrid, width: int = BAR) -> str:
    """One distribution on an axis from 0 to its 0.99 quantile: ─ from q0.1, ━ between q0.25 and q0.75, ● the median."""
    top = max(float(grid.at(0.99)), 1e-9)
    at = {
        level: min(int(float(grid.at(level)) / top * (width - 1)), width - 1) for level in (0.1, 0.25, 0.5, 0.75, 0.99)
    }
    cells = [" "] * width
    for i in range(at[0.1], at[0.99] + 1):
        cells[i] = "━" if at[0.25] <= i <= at[0.75] else "─"
    cells[at[0.5]] = "●"
    return "".join(cells)


def draw_prediction(calls: Sequence[Call], predictions: Sequence[Prediction], path: Path) -> None:
    """Predicted quantile functions of the output tokens, one line per prompt. Needs matplotlib."""
    from swarmx.predict.card import figure

    drawing, axes = figure((6.4, 4.0))
    for call, prediction in zip(calls, predictions, strict=True):
        text = " ".join(text_of(call.prompt).split()) or call.id
        axes.plot(prediction.tokens.values, prediction.tokens.levels, marker="o", markersize=3,
                  label=(text[:50] + "…" if len(text) > 50 else text).replace("$", r"\$"))  # fmt: skip
    axes.set(xlabel="output tokens", ylabel="share of answers no longer than that", ylim=(0, 1.02))
    axes.set_xlim(left=0)
    axes.legend(frameon=False, fontsize=8)
    with replacing(path) as temporary:
        drawing.savefig(temporary, dpi=130, format="png")


def print_metrics(metrics: dict[str, Any], out: Path) -> None:
    """The table that `swarmx train` ends with."""
    console = Console(highlight=False)
    console.print(f"measured on {metrics['test_rows']:,} calls whose prompt groups were held out", style="dim")
    console.print("left: pinball loss over that of quantiles per type; right: calls at or below", style="dim")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("", "R² log", *(f"q{level:g}" for level in REPORTED), "≤q0.9", "≤q0.95", "≤q0.99"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for target, arms in metrics["targets"].items():
        for arm, found in arms.items():
            ratio = found["baselines"]["per_type"]["pinball_ratio"]
            table.add_row(
                target[:18] if arm == "with_type" else "  type hidden",
                f"{found['r2_log']:.2f}",
                *(f"{ratio[f'{level:g}']:.2f}" for level in REPORTED),
                *(f"{found['coverage'][level]:.1%}" for level in ("0.9", "0.95", "0.99")),
            )
    console.print(table)
    for note in metrics["notes"]:
        console.print(f"note: {note}", markup=False)
    console.print(f"model written to {out}; look at {out / 'card.md'}", markup=False, soft_wrap=True)
