"""The pictures of a model card. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swarmx.predict.metrics import REPORTED


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


def draw_groups(by_type: dict[str, dict[str, Any]], path: Path, most: int = 16) -> None:
    """Pinball ratio to quantiles per type at 0.5 and 0.95, one row per type, those of most calls."""
    shown = sorted(by_type.items(), key=lambda item: -item[1]["rows"])[:most][::-1]
    drawing, axes = figure((5.6, 1.0 + 0.3 * len(shown)))
    for level, colour in (("0.5", "tab:blue"), ("0.95", "tab:orange")):
        ratios = [found["pinball_ratio"][level] for _, found in shown]
        axes.plot(ratios, range(len(shown)), "o", color=colour, markersize=5, label=f"q{level}")
    axes.axvline(1, color="0.4", linewidth=1)
    labels = [f"{name} ({found['rows']})" for name, found in shown]
    axes.set_yticks(range(len(shown)), [label.replace("$", r"\$") for label in labels])
    axes.set(xlabel="pinball over that of quantiles per type")
    axes.legend(frameon=False, fontsize=8)
    drawing.savefig(path, dpi=120)


def draw_learning_curve(curve: list[dict[str, float]], path: Path) -> None:
    """R2 of the log and the pinball ratio at 0.9 by the number of prompt groups learned from."""
    drawing, axes = figure((4.6, 3.4))
    groups = [row["groups"] for row in curve]
    axes.plot(groups, [row["r2_log"] for row in curve], marker="o", label="R² of the log")
    axes.plot(groups, [row["q0.9"] for row in curve], marker="s", label="pinball ratio at q0.9")
    axes.set(xlabel="prompt groups learned from", xscale="log")
    axes.set_xticks(groups, [f"{n:g}" for n in groups])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8)
    drawing.savefig(path, dpi=120)
