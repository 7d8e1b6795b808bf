"""How soon wide spreads are told beside what could be had at best, and how often nothing is taken for something."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from _adaptation_detectors import Detector, alarms, detectors
from _adaptation_streams import TYPES, drawn, one_group
from numpy.typing import NDArray

from swarmx.drift import Reference


def spreads(
    make: Callable[[Reference], Detector], seeds: Iterable[int], sigmas: Sequence[float] = (0.8, 1.2, 1.6, 2.0)
) -> dict[str, dict[str, Any]]:
    """Records until a detector tells a doubling of one group of that spread on the log scale, 1,000 rows for the
    reference and 500 before it; not told within 1,500 records counts as missed.

    best : the same of `best_delays`, median and, of as many as there are seeds, the largest as it is on average
    """
    out: dict[str, dict[str, Any]] = {}
    for sigma in sigmas:
        found = []
        for seed in seeds:
            rng = np.random.default_rng([seed, int(10 * sigma)])
            before, after = one_group(rng, 1500, sigma), one_group(rng, 1500, sigma, 2.0)
            detector = make(Reference.from_rows(before[:1000]))
            alarms(detector, before[1000:])
            told = alarms(detector, after, 500)
            found.append(told[0][0] - 500 + 1 if told else None)
        seen = [n for n in found if n is not None]
        out[f"{sigma:g}"] = {
            "records_median": float(np.median(seen)) if seen else None,
            "records_max": max(seen, default=None),
            "found": f"{len(seen)} of {len(found)}",
            "best": _typical(best_delays(sigma), len(found)),
        }
    return out


def best_delays(sigma: float, runs: int = 1000, before: int = 500, most: int = 2000) -> NDArray[np.float64]:
    """(runs,) records until a doubling is told by the Shiryaev-Roberts rule that knows the factor, its direction and
    the spread, and has an endless reference: one stream of normal scores, one false alarm in 100,000 records."""
    rng, shift = np.random.default_rng(0), np.log(2) / sigma
    worth, told = np.zeros(runs), np.full(runs, np.inf)
    for at in range(-before, most):
        score = rng.normal(size=runs) + (shift if at >= 0 else 0.0)
        worth = (1 + worth) * np.exp(shift * score - shift**2 / 2)
        if at < 0:
            worth[worth >= 1e5] = 0.0
            continue
        told[(worth >= 1e5) & np.isinf(told)] = at + 1
        worth = np.minimum(worth, 1e5)
    return told


def _typical(delays: NDArray[np.float64], count: int, draws: int = 1000) -> dict[str, float]:
    largest = np.random.default_rng(0).choice(delays, (draws, count)).max(axis=1)
    return {"records_median": float(np.median(delays)), "records_max": float(np.round(largest.mean()))}


def false_alarms(runs: int, records: int, names: Sequence[str], main: str) -> dict[str, dict[str, Any]]:
    """Alarms per 100,000 records in stationary made-up streams, with the exact Poisson interval of 95 %; a twentieth of
    the records for all but the `main` detector.

    References of 80, 400 or 2,000 rows for eight groups; every second stream has heavy tails, every third many equal
    observations; the shares of the types change every 2,000 records.
    """
    out = {}
    for name in names:
        make, each = detectors()[name], records if name == main else records // 20
        count = sum(_stationary(make, seed, each) for seed in range(runs))
        low, high = _poisson(count)
        per = 1e5 / (runs * each)
        out[name] = {
            "records": runs * each, "alarms": count, "per_100k": round(count * per, 2),
            "interval": [round(low * per, 2), round(high * per, 2)],
        }  # fmt: skip
    return out


def _stationary(make: Callable[[Reference], Detector], seed: int, records: int, chunk: int = 2000) -> int:
    rng, heavy = np.random.default_rng([seed, 99]), seed % 2 == 1
    step = 40.0 if seed % 3 == 2 else 0.0
    detector = make(Reference.from_rows(drawn(rng, (80, 400, 2000)[seed % 3], heavy=heavy, step=step)))
    count = 0
    for at in range(0, records, chunk):
        rows = drawn(rng, min(chunk, records - at), rng.dirichlet(np.ones(TYPES)), heavy=heavy, step=step)
        count += len(alarms(detector, rows, at))
    return count


def _poisson(count: int) -> tuple[float, float]:
    """Garwood (1936): the means that do not make so few or so many alarms less likely than 2.5 %."""
    from scipy.stats import chi2

    return float(chi2.ppf(0.025, 2 * count)) / 2 if count else 0.0, float(chi2.ppf(0.975, 2 * count + 2)) / 2
