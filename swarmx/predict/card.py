"""card.md of a trained model: what it learned from, how good it is, where it is not; with two pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swarmx.predict.metrics import REPORTED

ARMS = {"with_type": "with the call's type", "without_type": "without it"}


def write_card(directory: Path, description: dict[str, Any], metrics: dict[str, Any], plots: bool = True) -> None:
    """Write card.md, and calibration.png and pinball.png unless `plots` is False."""
    lines = ["# Model card", ""]
    learned, models = description["log"]["trained_on"], ", ".join(description["models"])
    lines.append(f"Learned from {learned:,} calls of {models};")
    lines += [f"measured on {metrics['test_rows']:,} calls of prompt groups that no step of the training saw.", ""]
    lines += [f"- {note}" for note in metrics["notes"]]
    for target, arms in metrics["targets"].items():
        lines += ["", f"## {target}", ""]
        for arm, found in arms.items():
            lines += [*_table(found, ARMS[arm]), ""]
    if plots:
        draw_calibration(metrics, directory / "calibration.png")
        draw_pinball(metrics, directory / "pinball.png")
        lines += ["![share of calls below each predicted quantile](calibration.png)", "",
                  "![pinball loss against the baselines](pinball.png)", ""]  # fmt: skip
    lines += [
        "A pinball ratio below 1 is better than that baseline. Coverage is the share of held-out calls at or below the",
        "predicted quantile; where a target is often exactly zero, every level covers at least those calls. Levels",
        "whose tail holds fewer than about ten held-out calls say little.",
        "",
    ]
    (directory / "card.md").write_text("\n".join(lines))


def _table(found: dict[str, Any], arm: str) -> list[str]:
    levels = [f"{level:g}" for level in REPORTED]
    rows = [f"{found['rows']:,} calls, {arm}: R² of the log {found['r2_log']:.3f}", "",
            "| | " + " | ".join(f"q{level}" for level in levels) + " |", "|---" * (len(levels) + 1) + "|"]  # fmt: skip
    rows.append("| coverage | " + " | ".join(f"{found['coverage'][level]:.3f}" for level in levels) + " |")
    rows.append("| pinball | " + " | ".join(f"{found['pinball'][level]:.2f}" for level in levels) + " |")
    for name, base in found["baselines"].items():
        rows.append(
            f"| ratio to {name} | " + " | ".join(f"{base['pinball_ratio'][level]:.3f}" for level in levels) + " |"
        )
    return rows


def draw_calibration(metrics: dict[str, Any], path: Path) -> None:
    """Observed share below each predicted level, one line per target."""
    drawing, axes = figure((4.6, 4.2))
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1, zorder=1)
    for target, arms in metrics["targets"].items():
        shares = arms["with_type"]["coverage"]
        axes.plot(
            [float(level) for level in shares],
            list(shares.values()),
            marker="o",
            markersize=3,
            linewidth=1.2,
            label=target,
        )
    axes.set(xlabel="quantile level", ylabel="share of held-out calls below", xlim=(0, 1), ylim=(0, 1.01))
    axes.legend(frameon=False, fontsize=8)
    drawing.savefig(path, dpi=120)


def draw_pinball(metrics: dict[str, Any], path: Path) -> None:
    """Pinball ratio of the output tokens to each baseline, by level; below the line at 1 is better."""
    drawing, axes = figure((5.6, 3.4))
    arms = metrics["targets"]["tokens"]
    base = arms["with_type"]["baselines"]
    width = 0.8 / max(len(base), 1)
    for i, (name, found) in enumerate(base.items()):
        values = [found["pinball_ratio"][f"{level:g}"] for level in REPORTED]
        axes.bar(
            [k + (i - (len(base) - 1) / 2) * width for k in range(len(values))],
            values,
            width * 0.92,
            label=f"vs {name}",
        )
    axes.axhline(1, color="0.4", linewidth=1)
    axes.set_xticks(range(len(REPORTED)), [f"q{level:g}" for level in REPORTED])
    axes.set(ylabel="pinball ratio, output tokens")
    axes.legend(frameon=False, fontsize=8)
    drawing.savefig(path, dpi=120)


def figure(size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure that needs no display and leaves no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return drawing, axes
