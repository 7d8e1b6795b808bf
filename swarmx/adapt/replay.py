"""A recorded stream through the loop, in the order in which calls ended, beside the same model left alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.adapt.contest import COVERED, pinball
from swarmx.adapt.events import Event, LoopConfig
from swarmx.adapt.loop import AdaptationLoop
from swarmx.adapt.model import StoredModel
from swarmx.adapt.registry import DirectoryRegistry
from swarmx.adapt.shift import Shift
from swarmx.adapt.worker import InlineWorker, Worker
from swarmx.quantiles import LEVELS
from swarmx.types import CallRecord

Array = NDArray[np.float64]
Progress = Callable[[str, float], None]
BATCH = 16
WINDOW = 200
SPAN = 1000  # records after a shift over which its recovery is told


@dataclass(frozen=True)
class Replayed:
    """What happened, per record that ended well (N,). loss : pinball over all levels, in tokens: of the first model
    left alone, of the champion raw, of what was served; ideal : of the first model, had it known the shift (without
    one the same as `frozen`)

    covered, frozen_covered : (N, levels of `contest.COVERED`) as served, and by the first model
    start : place of the first shifted record, None without a shift; seqs : place of each record; versions : champions
    """

    frozen: Array
    raw: Array
    served: Array
    ideal: Array
    covered: NDArray[np.bool_]
    frozen_covered: NDArray[np.bool_]
    at: Array
    versions: tuple[str, ...]
    types: tuple[str, ...]
    events: tuple[Event, ...]
    start: int | None
    shift: Shift | None

    def windows(self, of: NDArray[Any], window: int = WINDOW) -> Array:
        """Mean over the latest `window` records at each record, over fewer at the beginning."""
        total = np.concatenate((np.zeros((1, *of.shape[1:])), np.cumsum(of, axis=0, dtype=np.float64)))
        at = np.arange(1, len(of) + 1)
        first = np.maximum(at - window, 0)
        means: Array = (total[at] - total[first]) / (at - first).reshape(-1, *[1] * (of.ndim - 1))
        return means


def replay(
    records: Sequence[CallRecord], model: Path, shift: Shift | None = None, config: LoopConfig | None = None,
    worker: Worker | None = None, registry: DirectoryRegistry | None = None, seed: int = 0,
    progress: Progress = lambda what, done: None,
) -> Replayed:  # fmt: skip
    """Run the loop over a stream, sorted here by when its calls ended; trainings are waited for.

    worker, registry : in a temporary place when not given
    Raises BadInput when the model is not whole or the shift names an unknown type.
    """
    stream = sorted(records, key=lambda r: r.arrival_s if r.finished_s is None else r.finished_s)
    stream, start = (stream, None) if shift is None else shift.apply(stream, seed)
    with tempfile.TemporaryDirectory() as place:
        registry = registry or DirectoryRegistry(Path(place) / "registry")
        version = registry.add(model, {"reason": "first"})
        registry.set("champion", version, {"reason": "first"})
        worker = worker or InlineWorker(Path(place) / "work")
        first = StoredModel.load(registry.path(version))
        loop = AdaptationLoop(first, worker, registry, StoredModel.load, config)
        return _run(loop, first, stream, start, shift, progress)


def _run(
    loop: AdaptationLoop, first: StoredModel, stream: Sequence[CallRecord], start: int | None, shift: Shift | None,
    progress: Progress,
) -> Replayed:  # fmt: skip
    outcomes, frozen, ideal, covered = [], [], [], []
    types: list[str] = []
    begun = None
    for at in range(0, len(stream), BATCH):
        part = stream[at : at + BATCH]
        finished = first.read(part, 0)
        for one, grid in zip(finished, first.tokens(finished), strict=True):
            known = grid
            if shift is not None and start is not None and shift.what == "lengths" and shift.applies(one.record):
                known = grid * shift.factor if len(types) >= start else grid
            tokens = one.example.tokens
            frozen.append(pinball(grid, tokens))
            ideal.append(pinball(known, tokens))
            covered.append(tokens <= grid[COVERED])
            types.append(one.record.type or "")
        outcomes += loop.observe(part)
        progress("replay", min(at + BATCH, len(stream)) / len(stream))
    if start is not None:
        begun = sum(record.status == "ok" for record in stream[:start])
    return Replayed(
        frozen=np.array(frozen), raw=np.array([o.raw for o in outcomes]), served=np.array([o.served for o in outcomes]),
        ideal=np.array(ideal), covered=np.array([o.covered for o in outcomes], bool).reshape(-1, len(COVERED)),
        frozen_covered=np.array(covered, bool).reshape(-1, len(COVERED)), at=np.array([o.at for o in outcomes]),
        versions=tuple(o.version for o in outcomes), types=tuple(types), events=tuple(loop.events), start=begun,
        shift=shift,
    )  # fmt: skip


def summary(found: Replayed) -> dict[str, Any]:
    """The figures of a replay, as JSON has them; those that need a shift are None without one."""
    kinds = [event.kind for event in found.events]
    out: dict[str, Any] = {
        "records": len(found.served),
        "versions": len(set(found.versions)),
        "loss": {name: round(float(getattr(found, name).mean()), 4) for name in ("frozen", "raw", "served")},
        "coverage": _coverage(found.covered),
        "frozen_coverage": _coverage(found.frozen_covered),
        **{f"{kind}s": kinds.count(kind) for kind in ("alarm", "retrain", "promoted", "rejected", "rolled_back")},
    }
    if found.start is not None and found.shift is not None:
        out |= {
            "shift": asdict(found.shift) | {"start": found.start},
            "detect_records": _detected(found),
            "alarms_before": sum(e.kind == "alarm" and e.seq < found.start for e in found.events),
            "recovered": _recovered(found),
            "coverage_records": coverage_records(found),
        }
    return out


def _coverage(covered: NDArray[np.bool_]) -> dict[str, float]:
    return {f"{LEVELS[k]:g}": round(float(share), 4) for k, share in zip(COVERED, covered.mean(axis=0), strict=True)}


def _touched(found: Replayed) -> NDArray[np.int64]:
    """Places of the records that the shift has changed."""
    assert found.start is not None and found.shift is not None
    kind = found.shift.type
    rows = [i for i in range(found.start, len(found.types)) if kind is None or found.types[i] == kind]
    return np.array(rows, dtype=np.int64)


def _detected(found: Replayed) -> int | None:
    """Shifted records until the first alarm after the shift."""
    after = [e.seq for e in found.events if e.kind == "alarm" and e.seq >= (found.start or 0)]
    return int((_touched(found) <= after[0]).sum()) if after else None


def _recovered(found: Replayed, span: int = SPAN) -> dict[str, float | None]:
    """Share of the loss that the shift costs which the loop wins back, over each 250 of the shifted records."""
    rows, out = _touched(found), {}
    for begin in range(0, min(len(rows), span + 250), 250):
        at = rows[begin : begin + 250]
        lost = float((found.frozen[at] - found.ideal[at]).sum())
        won = float((found.frozen[at] - found.served[at]).sum())
        out[f"{begin}-{begin + len(at)}"] = round(won / lost, 4) if lost > 0 else None
    return out


def coverage_records(found: Replayed, window: int = WINDOW) -> dict[str, int | None]:
    """Shifted records until the latest `window` of them are covered as often as two binomial deviations allow."""
    rows = _touched(found)
    out: dict[str, int | None] = {}
    for k, level in enumerate(LEVELS[COVERED]):
        allowed = 2 * np.sqrt(level * (1 - level) / window)
        hits = found.covered[rows, k]
        out[f"{level:g}"] = None
        for end in range(window, len(rows) + 1):
            if abs(hits[end - window : end].mean() - level) <= allowed:
                out[f"{level:g}"] = end - window
                break
    return out
