"""How soon drift is told, how often wrongly, and how soon predictions are right again; with river's detectors beside.

    python benchmarks/adaptation.py [--quick] [--data DIR]

DIR holds the public logs `bfcl/` and `bfcl_multi_turn_vllm/`, which are not part of the project; without them the
tables are of made-up shifts and the shipped log alone. Every number is measured in the run, with the seeds it tells.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _adaptation_calibration import CALIBRATIONS, Calibrated, calibrated, coverage_records
from _adaptation_detectors import SLOW, Detector, alarms, concerns, detectors
from _adaptation_guard import WORST_ARMS, adversarial
from _adaptation_loop import recovered
from _adaptation_monitor import false_alarms, spreads
from _adaptation_real import through_loop
from _adaptation_routing import beside_retraining
from _adaptation_streams import (
    SHIFTS,
    Stream,
    bfcl,
    busy_group,
    replayed,
    shifted,
    vllm_builds,
)  # fmt: skip

from swarmx.drift import Reference
from swarmx.quantiles import LEVELS

HOME = Path(__file__).parents[1]
MISSED = "missed"
OURS = "DriftMonitor, 1 per 100k"
FEW = (OURS, "ADWIN", "PageHinkley")
SHORT = ("bfcl tokens",)
DOUBLED = ("lengths double", "one type doubles", "one group doubles", "device slows")


def run(quick: bool = False, data: str | None = None) -> dict[str, Any]:
    """All of it, each part told on standard error as it begins and ends. quick : few seeds, three detectors, one
    regime, less of the public logs, and none of the routing beside a retraining; data : directory of the public logs,
    `../shared/data` beside the checkout when it is there"""
    folder = Path(data) if data else HOME.parent / "shared" / "data"
    seeds = range(3 if quick else 8)
    names = FEW if quick else tuple(detectors())
    found = timed("detectors", lambda: detection(seeds, names))
    wide = timed("spreads", lambda: spreads(detectors()[OURS], range(4 if quick else 16)))
    stationary = timed("stationary", lambda: false_alarms(*((2, 50_000) if quick else (10, 100_000)), names, OURS))
    coverage = timed("calibration", lambda: coverages(range(3 if quick else 12)))
    loop = timed("loop", lambda: recovered(quick))
    public = timed("logs", lambda: dict(logs(folder, names, 3000 if quick else 15_000)))
    through = timed("logs through the loop", lambda: through_loop(folder, SHORT if quick else ()))
    guard = timed("guard", lambda: adversarial(quick, arms=() if quick else WORST_ARMS, say=say))
    routing = None if quick else timed("routing beside a retraining", lambda: beside_retraining(30_000))
    return {
        "detect_records_2x": _worst(found, OURS, DOUBLED),
        "false_alarms_per_100k": stationary[OURS]["per_100k"],
        "loss_recovered_1000": loop["recovered_1000"],
        "coverage_records": coverage["OnlineCalibration"]["records_max"],
        "adversarial_p99_vs_led_max": guard["worst_p99_vs_led"],
        "detectors": found,
        "spreads": wide,
        "stationary": stationary,
        "calibration": coverage,
        "loop": loop,
        "guard": guard,
        "logs": public,
        "logs_through_the_loop": through,
        "routing": routing,
        "meta": {"quick": quick, "seeds": len(seeds), "data": str(folder) if folder.is_dir() else None},
    }  # fmt: skip


Found = TypeVar("Found")


def timed(part: str, measure: Callable[[], Found]) -> Found:
    """What `measure` returns; what part of the run it is, and how long that took, on standard error."""
    say(f"{part} ...")
    begun, used = time.monotonic(), time.process_time()
    found = measure()
    say(f"{part}: {time.monotonic() - begun:.0f} s, {time.process_time() - used:.0f} of this process")
    return found


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


# ---- detectors ----


def detection(seeds: Iterable[int], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Per detector and made-up shift: records of the touched group until its first alarm (median and largest over the
    seeds, the groups' records where several shifted), and alarms before the shift or about groups that did not. Other
    detectors than ours see the first three seeds."""
    out: dict[str, dict[str, Any]] = {name: {} for name in names}
    for shift in SHIFTS[:-1]:
        streams = [shifted(shift, seed, rows=1500) for seed in seeds]
        for name in names:
            runs = [_detected(one, detectors()[name]) for one in (streams if name == OURS else streams[:3])]
            records = [record for record, _ in runs if record is not None]
            out[name][shift] = {
                "records_median": float(np.median(records)) if records else None,
                "records_max": max(records) if len(records) == len(runs) else MISSED,
                "found": f"{len(records)} of {len(runs)}",
                "wrong": sum(wrong for _, wrong in runs),
            }
    return out


def _detected(stream: Stream, make: Callable[[Reference], Detector]) -> tuple[int | None, int]:
    detector = make(Reference.from_rows(stream.reference))
    wrong = len(alarms(detector, stream.before))
    seen: dict[Any, int] = {}
    for i, row in enumerate(stream.after, len(stream.before)):
        seen[row[0]] = seen.get(row[0], 0) + 1
        told = detector.told(row, float(i))
        if told is None:
            continue
        if concerns(told, stream.touched):
            per_group = [seen.get(group, 0) for group in stream.touched if told[0] in ("*", group[0])]
            return max(per_group), wrong
        wrong += 1
    return None, wrong


def _worst(found: dict[str, dict[str, Any]], name: str, shifts: Sequence[str]) -> int | None:
    values = [found[name][shift]["records_max"] for shift in shifts]
    return None if MISSED in values else max(values)


# ---- online calibration ----


def coverages(seeds: Iterable[int]) -> dict[str, dict[str, Any]]:
    """Per calibration: records after a doubling until every level is covered within its interval, the coverage error
    from 500 records on, and loss over that of the uncorrected grids before the shift and after."""
    out = {}
    only = [busy_group(np.random.default_rng([seed, 5])) for seed in seeds]
    for name, make in CALIBRATIONS.items():
        found = [calibrated(make(), before, after) for before, after in only]
        plain = [calibrated(CALIBRATIONS["none"](), before, after) for before, after in only]
        records = [coverage_records(after) for _, after in found]
        out[name] = {
            "records_median": None if None in records else float(np.median([r for r in records if r is not None])),
            "records_max": None if None in records else max(r for r in records if r is not None),
            "error_after_500": round(_error([after for _, after in found], 500), 4),
            "error_stationary": round(_error([before for before, _ in found], 300), 4),
            "loss_stationary": round(_ratio([b for b, _ in found], [b for b, _ in plain]), 4),
            "loss_shifted": round(_ratio([a for _, a in found], [a for _, a in plain]), 4),
        }
    return out


def _error(found: Sequence[Calibrated], begin: int) -> float:
    """Largest gap over the levels between the share covered and the level."""
    below = np.concatenate([one.below[begin:] for one in found])
    return float(np.abs(below.mean(axis=0) - LEVELS).max())


def _ratio(found: Sequence[Calibrated], plain: Sequence[Calibrated]) -> float:
    return float(np.sum([one.loss.sum() for one in found]) / np.sum([one.loss.sum() for one in plain]))


# ---- public logs ----


def logs(folder: Path, names: Sequence[str], most: int | None) -> Iterable[tuple[str, dict[str, Any]]]:
    """Each public log: the old run's quantiles per (category, model), replayed into the new run and into itself.

    most : rows of each; None for all
    """
    if (folder / "bfcl").is_dir():
        for target in ("latency_s", "output_tokens"):
            yield (
                f"bfcl {target}, 2024-07-25 into 2024-08-11",
                _log(replayed(f"bfcl {target}", *bfcl(folder, target), 0), names, most),
            )
    if (folder / "bfcl_multi_turn_vllm").is_dir():
        yield (
            "gpt-oss-120b latency_s, vLLM v0.10.2 into 2025-11-12",
            _log(replayed("vllm", *vllm_builds(folder), 0), names, most),
        )


def _log(streams: tuple[Stream, Stream], names: Sequence[str], most: int | None) -> dict[str, Any]:
    """Places of alarms in the new run and in held-out rows of the old one (false), and loss and coverage there."""
    stream, fresh, held = streams[0], streams[0].after[:most], streams[1].after[:most]
    out: dict[str, Any] = {
        "records": len(fresh), "groups": len({row[0] for row in fresh}), "held_out_records": len(held),
    }  # fmt: skip
    reference = Reference.from_rows(stream.reference)
    out["detectors"] = {
        name: {
            "first_alarm": told[0][0] if (told := alarms(make(reference), fresh)) else None,
            "alarms": len(told),
            "groups_alarmed": len({group for _, group in told}),
            "false_alarms_held_out": len(alarms(make(reference), held)),
        }
        for name, make in detectors().items()
        if name in names and name not in SLOW
    }
    found = {name: calibrated(make(), [], fresh)[1] for name, make in CALIBRATIONS.items()}
    before = calibrated(CALIBRATIONS["none"](), [], held)[1]
    out["loss"] = {"held_out": _loss(before)} | {name: _loss(one) for name, one in found.items()}
    out["coverage_error"] = {name: round(_error([one], 0), 4) for name, one in found.items()}
    return out


def _loss(found: Calibrated) -> float:
    return round(float(found.loss.mean()), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data")
    args = parser.parse_args()
    print(json.dumps(run(args.quick, args.data), indent=1))


if __name__ == "__main__":
    main()
