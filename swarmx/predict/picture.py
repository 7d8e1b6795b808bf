"""The metrics of a training for people, in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from swarmx.predict.metrics import REPORTED


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
