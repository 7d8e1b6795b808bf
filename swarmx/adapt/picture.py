"""A replay as a picture: loss and coverage over the stream, what the loop noticed, and which model was in office."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from swarmx.adapt.contest import COVERED
from swarmx.adapt.replay import WINDOW, Replayed
from swarmx.files import replacing
from swarmx.quantiles import LEVELS

INK, SHIFT = "#222222", "#f9f3e6"
FROZEN, SERVED, IDEAL = "#b3423a", "#1f5fa8", "#6b8f3c"
LEVEL_COLOURS = ("#1f5fa8", "#3f8f8a", "#c27a1a")
SHOWN = (0, 1, 2)  # of COVERED: 0.5, 0.9, 0.95
LANES = (
    ("alarm", "alarms", "v", "#b3423a"),
    ("retrain", "retraining begins", "o", "#8a6d1f"),
    ("challenger", "challenger on trial", ">", "#5a4a9c"),
    ("promoted", "promoted", "^", "#2f7d4f"),
    ("rejected", "rejected", "x", "#8a8a8a"),
    ("rolled_back", "rolled back", "X", "#b3423a"),
)


def draw(found: Replayed, path: Path, title: str = "") -> None:
    """Write the PNG. Needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7.6), layout="constrained")
    FigureCanvasAgg(figure)
    loss, coverage, lanes = figure.subplots(3, 1, sharex=True, height_ratios=(3.2, 3, 1.9))
    _loss(loss, found)
    _coverage(coverage, found)
    _lanes(lanes, found)
    for axes in (loss, coverage, lanes):
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0)
        if found.start is not None:
            axes.axvspan(found.start, len(found.served), color=SHIFT, zorder=0, linewidth=0)
    if found.start is not None:
        loss.annotate(" shifted from here", (found.start, 1), (0, -4), xycoords=("data", "axes fraction"),
                      textcoords="offset points", va="top", fontsize=8.5, color="#8a6d3b")  # fmt: skip
    lanes.set_xlabel("finished calls")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)


def _loss(axes: Any, found: Replayed) -> None:
    x = np.arange(len(found.served))
    shown = slice(WINDOW // 4, None)  # a mean of a handful of calls says nothing
    axes.plot(x[shown], found.windows(found.frozen)[shown], color=FROZEN, lw=1.6, label="first model, left alone")
    axes.plot(x[shown], found.windows(found.served)[shown], color=SERVED, lw=1.8, label="with adaptation")
    if found.start is not None and found.shift is not None and found.shift.what == "lengths":
        ideal = found.windows(found.ideal)
        axes.plot(x[shown], ideal[shown], color=IDEAL, lw=1.2, ls="--", label="first model, told of the shift")
    axes.set_ylim(0, 1.12 * axes.dataLim.y1)  # room for what is written there
    axes.set_ylabel(f"pinball loss, tokens\n(mean of the latest {WINDOW})")
    axes.legend(frameon=False, fontsize=9, loc="upper left")


def _coverage(axes: Any, found: Replayed) -> None:
    x = np.arange(len(found.served))[WINDOW // 2 :]
    served, frozen = found.windows(found.covered), found.windows(found.frozen_covered)
    for k, colour in zip(SHOWN, LEVEL_COLOURS, strict=True):
        level = float(LEVELS[COVERED[k]])
        band = 2 * np.sqrt(level * (1 - level) / WINDOW)
        axes.axhspan(level - band, min(level + band, 1), color=colour, alpha=0.13, lw=0)
        axes.plot(x, frozen[WINDOW // 2 :, k], color=colour, lw=0.9, ls=":")
        axes.plot(x, served[WINDOW // 2 :, k], color=colour, lw=1.6, label=f"{level:g}")
    axes.set_ylim(max(0.0, float(frozen[WINDOW // 2 :, 0].min(initial=0.5)) - 0.05), 1.01)
    axes.set_ylabel("share of calls at or below\nthe predicted quantile")
    legend = axes.legend(
        frameon=False, fontsize=9, ncols=3, loc="lower left",
        title="level (band: ±2 sd; dotted: first model, left alone)", title_fontsize=8.5,
    )  # fmt: skip
    legend._legend_box.align = "left"


def _lanes(axes: Any, found: Replayed) -> None:
    kinds = [lane for lane in LANES if any(event.kind == lane[0] for event in found.events)]
    rows = {kind: len(kinds) - i for i, (kind, *_) in enumerate(kinds)}
    for kind, _, marker, colour in kinds:
        at = [event.seq for event in found.events if event.kind == kind]
        axes.scatter(at, [rows[kind]] * len(at), marker=marker, color=colour, s=34, zorder=3)
    changes = [0, *(i for i in range(1, len(found.versions)) if found.versions[i] != found.versions[i - 1])]
    ends = [*changes[1:], len(found.versions)]
    names = list(dict.fromkeys(found.versions))
    for begin, end in zip(changes, ends, strict=True):
        version = found.versions[begin]
        shade = ("#c9d6e6", "#9fbadb", "#7fa3cf", "#5f8bc0")[min(names.index(version), 3)]
        axes.barh(0, end - begin, left=begin, height=0.72, color=shade, zorder=2)
        if end - begin > len(found.versions) / 12:
            axes.text((begin + end) / 2, 0, version[:8], ha="center", va="center", fontsize=8, color=INK, zorder=4)
    labels = {0: "model in office", **{rows[kind]: label for kind, label, *_ in kinds}}
    axes.set_yticks(list(labels), list(labels.values()), fontsize=9)
    axes.set_ylim(-0.6, len(kinds) + 0.6)
    axes.tick_params(axis="y", length=0)
