"""card.md of a trained model: what it learned from, how good it is, where it is not, what its data are worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swarmx.predict.card_plots import draw_calibration, draw_groups, draw_learning_curve, draw_pinball
from swarmx.predict.metrics import REPORTED

ARMS = {"with_type": "with the call's type", "without_type": "without it"}
NAMES = [f"{level:g}" for level in REPORTED]
MOST_GROUPS = 24  # types listed, those of most calls


def write_card(directory: Path, description: dict[str, Any], metrics: dict[str, Any], plots: bool = True) -> None:
    """Write card.md, and its pictures unless `plots` is False."""
    lines = ["# Model card", ""]
    learned, models = description["log"]["trained_on"], ", ".join(description["models"])
    lines.append(f"Learned from {learned:,} calls of {models};")
    lines += [f"measured on {metrics['test_rows']:,} calls of prompt groups that no step of the training saw.", ""]
    lines += [f"- {note}" for note in metrics["notes"]]
    chosen = _chosen(description)
    for target, arms in metrics["targets"].items():
        lines += ["", f"## {target}", "", *chosen.get(target, [])]
        for arm, found in arms.items():
            lines += [*_scores(found, ARMS[arm]), ""]
        lines += _groups(arms["with_type"].get("by_type", {}))
    lines += _seconds(metrics.get("seconds")) + _workflows(metrics.get("downstream"))
    lines += _study(metrics.get("study"))
    if plots:
        lines += _draw(directory, metrics)
    lines += [
        "A pinball ratio below 1 is better than that baseline. Coverage is the share of held-out calls at or below the",
        "predicted quantile; where a target is often exactly zero, every level covers at least those calls. Width is",
        "the mean log of a level over the median: of two grids that cover alike, the narrower one knows more. Levels",
        "whose tail holds fewer than about ten held-out calls say little.",
        "",
    ]
    (directory / "card.md").write_text("\n".join(lines))


def _chosen(description: dict[str, Any]) -> dict[str, list[str]]:
    """Of each target, whether the networks answer or the ridge with residual bins; nothing without either."""
    fit = description.get("fit", {})
    weights, losses = fit.get("networks_weight", []), fit.get("loss_over_ridge_alone", [])
    found = zip(description["targets"], weights, losses, strict=False)
    out = {}
    for name, given, loss in found:
        shares = given if isinstance(given, list) else [given]  # one for all levels until 0.1
        if any(shares):
            weight = (
                f"{min(shares):g}" if min(shares) == max(shares) else f"{min(shares):g} to {max(shares):g} by level"
            )
            what = f"The networks answer with weight {weight}, the ridge with residual bins with the rest: out of fold"
            out[name] = [f"{what} {1 - loss:.1%} less loss than that alone.", ""]
        else:
            out[name] = ["The ridge with residual bins answers alone: out of fold the networks did not better it.", ""]
    return out


def _seconds(found: dict[str, Any] | None) -> list[str]:
    """Seconds on the device that each held-out call was sent to."""
    return [] if not found else ["", "## seconds", "", *_scores(found, "on the replica they were sent to"), ""]


def _workflows(found: dict[str, Any] | None) -> list[str]:
    """What workflows still asked for, and which calls came next."""
    if not found:
        return []
    lines = []
    for target, parts in found["targets"].items():
        lines += ["", f"## {target}, of workflows", ""]
        for part, scores in parts.items():
            lines += [*_scores(scores, part, "states of held-out workflows"), ""]
    own, base = found["branches"]["log_loss"], found["branches"]["per_kind"]
    return [*lines, f"Which calls come next: log loss {own:.3f} nats a state, {base:.3f} by the state's kind.", ""]


def _scores(found: dict[str, Any], arm: str, unit: str = "calls") -> list[str]:
    rows = [f"{found['rows']:,} {unit}, {arm}: R² of the log {found['r2_log']:.3f}", "",
            *_head("", [f"q{level}" for level in NAMES])]  # fmt: skip
    rows.append(_row("coverage", [f"{found['coverage'][level]:.3f}" for level in NAMES]))
    rows.append(_row("pinball", [f"{found['pinball'][level]:.2f}" for level in NAMES]))
    for name, base in found["baselines"].items():
        rows.append(_row(f"ratio to {name}", [f"{base['pinball_ratio'][level]:.3f}" for level in NAMES]))
    rows.append(_row("width", _widths(found)))
    return rows + [_row(f"width of {name}", _widths(base)) for name, base in found["baselines"].items()]


def _widths(found: dict[str, Any]) -> list[str]:
    return [f"{found['sharpness'][level]:.2f}" if level in found["sharpness"] else "" for level in NAMES]


def _groups(by_type: dict[str, dict[str, Any]]) -> list[str]:
    """Table by call type: where the model gains on quantiles of the type, and where not."""
    if not by_type:
        return []
    columns = ["calls", *(f"ratio q{q}" for q in NAMES[:3]), *(f"covered q{q}" for q in NAMES[:3])]
    out = _head("type", columns)
    for name, found in sorted(by_type.items(), key=lambda item: -item[1]["rows"])[:MOST_GROUPS]:
        ratios = [f"{found['pinball_ratio'][q]:.3f}" for q in NAMES[:3]]
        shares = [f"{found['coverage'][q]:.3f}" for q in NAMES[:3]]
        out.append(_row(name.replace("|", "/"), [f"{found['rows']:,}", *ratios, *shares]))
    return ["Pinball over that of quantiles per type, by type:", "", *out, ""]


def _study(found: dict[str, Any] | None) -> list[str]:
    """Learning curve and ablation of `study`."""
    if not found:
        return []
    lines = ["", "## What the data are worth", "",
             f"Linear part alone, target {found['target']}, out of fold on {found['rows']:,} calls; ratios are pinball",
             "over that of quantiles per type from all of them.", ""]  # fmt: skip
    lines += _head("learned from", ["groups", "calls", "R² log", "q0.5", "q0.9", "q0.95"])
    for row in found["learning_curve"]:
        lines.append(_row(f"{row['share']:.0%} of the groups", [f"{row['groups']:,}", f"{row['rows']:,}", *_four(row)]))
    lines += ["", *_head("features", ["R² log", "q0.5", "q0.9", "q0.95"])]
    lines += [_row(name, _four(row)) for name, row in found["ablation"].items()]
    return [*lines, ""]


def _four(row: dict[str, float]) -> list[str]:
    return [f"{row[name]:.3f}" for name in ("r2_log", "q0.5", "q0.9", "q0.95")]


def _head(first: str, columns: list[str]) -> list[str]:
    return [_row(first, columns), "|---" * (len(columns) + 1) + "|"]


def _row(first: str, cells: list[str]) -> str:
    return f"| {first} | " + " | ".join(cells) + " |"


def _draw(directory: Path, metrics: dict[str, Any]) -> list[str]:
    """The pictures, and the lines that show them."""
    draw_calibration(metrics, directory / "calibration.png")
    draw_pinball(metrics, directory / "pinball.png")
    lines = ["![share of calls below each predicted quantile](calibration.png)", "",
             "![pinball loss against the baselines](pinball.png)", ""]  # fmt: skip
    if by_type := next(iter(metrics["targets"].values()))["with_type"].get("by_type"):
        draw_groups(by_type, directory / "by_type.png")
        lines += ["![pinball loss against quantiles per type, by type](by_type.png)", ""]
    if metrics.get("study") and metrics["study"]["learning_curve"]:
        draw_learning_curve(metrics["study"]["learning_curve"], directory / "learning_curve.png")
        lines += ["![learning curve](learning_curve.png)", ""]
    return lines
