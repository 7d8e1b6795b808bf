"""A scaling receipt in words: what was wanted, what each term contributed, what bounds and budget changed and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.quantiles import level_of
from swarmx.scaling.decisions import ScaleReceipt

Array = NDArray[np.float64]
SHOWN = (0.5, 0.9, 0.95, 0.99)  # quantiles of demand that a reader is told
WORLD_S = 1e9  # Unix times are larger; simulations begin at 0


@dataclass(frozen=True, slots=True)
class Told:
    """head : one line; lines : what there is to say; table : (first row: headings) contributions per window"""

    head: str
    lines: tuple[str, ...]
    table: tuple[tuple[str, ...], ...]


def receipt_of(row: Mapping[str, Any], where: str = "receipt") -> ScaleReceipt:
    """The receipt that was written as this JSON object. Raises BadInput naming the field that is missing or unknown."""
    known = {f.name for f in fields(ScaleReceipt)}
    if unknown := set(row) - known:
        raise BadInput(f"{where}: no scaling receipt has a field {min(unknown)!r}; it has {', '.join(sorted(known))}")
    if missing := {"id", "pool", "decided_s", "policy", "wanted", "target", "before"} - set(row):
        raise BadInput(f"{where}: field {min(missing)!r} is missing; a scaling receipt needs it")
    lists = {k: tuple(v) for k, v in row.items() if k in ("levels", "demand", "changes", "edges_s")}
    terms = {k: tuple(v) if isinstance(v, Sequence) else float(v) for k, v in row.get("terms", {}).items()}
    return ScaleReceipt(**{**row, **lists, "terms": terms})


def is_scaling(row: Mapping[str, Any]) -> bool:
    """Whether a JSON object is the receipt of a scaler and not of a router."""
    return "pool" in row and "target" in row


def told(receipt: ScaleReceipt) -> Told:
    """Everything that the receipt knows, for people."""
    lines = [_reason(receipt)]
    if receipt.demand:
        lines.append(f"busy slots once a replica ordered now is ready: {_quantiles(receipt)}")
    lines += [f"{name} {value:.4g}" for name, value in receipt.terms.items() if isinstance(value, float)]
    lines += _changed(receipt)
    return Told(_head(receipt), tuple(lines), _windows(receipt))


def moment(time_s: float) -> str:
    """A time of the world's clock, or of a simulation's."""
    if time_s < WORLD_S:
        return f"at {time_s:.3f} s"
    return f"at {datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _head(receipt: ScaleReceipt) -> str:
    before, after = receipt.before, receipt.target
    moved = f"stays at {after}" if before == after else f"{before} -> {after}"
    return f"{receipt.pool} {moved} replicas {moment(receipt.decided_s)}, by {receipt.policy}"


def _reason(receipt: ScaleReceipt) -> str:
    if receipt.wanted is None:
        return f"{receipt.policy} could not say how many: a metric that it needs is missing"
    return f"{receipt.policy} wanted {receipt.wanted}" + (f": {receipt.why}" if receipt.why else "")


def _quantiles(receipt: ScaleReceipt) -> str:
    levels, demand = np.array(receipt.levels), np.array(receipt.demand)
    shown = [level for level in SHOWN if levels[0] <= level <= levels[-1]]
    told = [f"p{level * 100:g} {np.interp(level, levels, demand):.3g}" for level in shown]
    return ", ".join(told) + _reached(receipt, levels, demand)


def _reached(receipt: ScaleReceipt, levels: Array, demand: Array) -> str:
    """Which quantile the target covers, where the receipt knows what a replica holds."""
    slots = receipt.terms.get("slots_per_replica")
    if not isinstance(slots, float):
        return ""
    return f"; {receipt.target} replicas hold p{100 * level_of(levels, demand, receipt.target * slots):.3g}"


def _changed(receipt: ScaleReceipt) -> list[str]:
    if receipt.changes:
        return [f"changed on its way: {change}" for change in receipt.changes]
    return ["nothing was changed on its way"] if receipt.wanted == receipt.target else []


def _windows(receipt: ScaleReceipt) -> tuple[tuple[str, ...], ...]:
    """Slots per window from now: a row per term, then what they need at the policy's quantile, and what is there."""
    rows = {name: value for name, value in receipt.terms.items() if isinstance(value, tuple)}
    if not rows:
        return ()
    count = len(next(iter(rows.values())))
    edges = receipt.edges_s if len(receipt.edges_s) == count + 1 else tuple(float(i) for i in range(count + 1))
    head = ("slots in", *(f"{a:.0f}-{b:.0f} s" for a, b in pairwise(edges)))
    return (head, *((name.replace("_", " "), *(f"{v:.2f}" for v in row)) for name, row in rows.items()))
