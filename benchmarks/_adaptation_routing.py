"""Time of one routing decision, prediction included, while a retraining runs beside it and while none does."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.adapt.model import StoredModel
from swarmx.adapt.reservoir import Reservoir
from swarmx.adapt.retrain import Job, Plan
from swarmx.adapt.worker import ProcessWorker, Result
from swarmx.adapters.adaptation import AdaptationSettings, Adapting
from swarmx.logs.table import read_log
from swarmx.predict.bundle import shipped
from swarmx.presets import preset
from swarmx.types import Call, CallRecord, ReplicaState

LOG = Path(__file__).parents[1] / "data" / "execution_log.parquet"
REPLICAS, IN_FLIGHT = 16, 48
GAP_S = 0.01  # between two calls: a router is not busy all the time
SLICE, WARM_UP = 100, 300  # calls
DISTURBED, FEWEST = 0.15, 8  # cores; pairs of slices
TICKS = os.sysconf("SC_CLK_TCK")
Array = NDArray[np.float64]


def beside_retraining(examples: int = 100_000, rounds: int = 1) -> dict[str, Any]:
    """p99_ratio : of the time from a call to its decision, while a retraining runs over while it is stopped; interval :
    95 % of it, by drawing slices of `SLICE` calls anew.

    The retraining is stopped and goes on by turns, a second or so each, so that what else the machine does falls on
    both alike: on a shared one the 99th percentile doubles and halves from one minute to the next. undisturbed : the
    same from those pairs of slices in which the rest of the machine took less than `DISTURBED` of a core.
    """
    records = [record for record in read_log(LOG) if record.status == "ok"]
    job, adapting = _job(records, examples), Adapting.open(AdaptationSettings(kind="tail_loss"), shipped())
    stopped, running, results = [], [], []
    with tempfile.TemporaryDirectory() as place:
        worker = ProcessWorker(Path(place) / "work", limit_s=3600)
        ask = _decisions(adapting, records)
        for _ in range(WARM_UP):
            next(ask)
        for _ in range(rounds):
            worker.start(job)
            while (result := worker.poll()) is None:
                with _stopped(worker):
                    stopped.append(_slice(ask, worker))
                running.append(_slice(ask, worker))
            results.append(result)
            running.pop()  # it ended in between
            stopped.pop()
    if not stopped:
        raise RuntimeError(f"the retraining ended at once: {results[-1].problem or 'nothing to measure beside it'}")
    calm = [i for i, pair in enumerate(zip(stopped, running, strict=True)) if max(s.others for s in pair) < DISTURBED]
    alone, beside = np.array([s.seconds for s in stopped]), np.array([s.seconds for s in running])  # (slices, SLICE)
    return {
        **_told_times(alone, beside),
        "undisturbed": _told_times(alone[calm], beside[calm]) if len(calm) >= FEWEST else {"slices": len(calm)},
        "examples": examples, "retraining": [_told(result) for result in results],
    }  # fmt: skip


def _told_times(alone: Array, beside: Array, draws: int = 500) -> dict[str, Any]:
    """Ratios of percentiles, and what 95 % of pairs of slices drawn anew make of that of the 99th."""
    rng, found = np.random.default_rng(0), []
    for _ in range(draws):
        at = rng.integers(len(alone), size=len(alone))
        found.append(np.quantile(beside[at], 0.99) / np.quantile(alone[at], 0.99))
    p50, p99 = ((float(np.quantile(times, q)) for times in (alone, beside)) for q in (0.5, 0.99))
    (a50, b50), (a99, b99) = p50, p99
    return {
        "p99_ratio": round(b99 / a99, 3), "interval": np.quantile(found, (0.025, 0.975)).round(3).tolist(),
        "p50_ratio": round(b50 / a50, 3), "p99_alone_ms": round(1e3 * a99, 3), "p99_beside_ms": round(1e3 * b99, 3),
        "slices": len(alone),
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slice:
    """seconds : of each decision; others : cores that neither this process nor the retraining used meanwhile"""

    seconds: list[float]
    others: float


def _slice(ask: Iterator[float], worker: ProcessWorker) -> Slice:
    begun, busy = time.perf_counter(), _busy_s(worker)
    seconds = [next(ask) for _ in range(SLICE)]
    return Slice(seconds, (_busy_s(worker) - busy) / (time.perf_counter() - begun))


def _busy_s(worker: ProcessWorker) -> float:
    """CPU seconds so far of everything but this process and the retraining. Linux."""
    user, nice, system, _, _, irq, soft, steal, *_ = map(int, Path("/proc/stat").read_text().split()[1:11])
    spent = (user + nice + system + irq + soft + steal) / TICKS - time.process_time()
    assert worker.process is not None
    with suppress(OSError):  # it has ended
        about = Path(f"/proc/{worker.process.pid}/stat").read_text().rpartition(")")[2].split()
        spent -= (int(about[11]) + int(about[12])) / TICKS
    return spent


@contextmanager
def _stopped(worker: ProcessWorker) -> Iterator[None]:
    """The retraining stands still; it may have ended already."""
    assert worker.process is not None
    worker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        worker.process.send_signal(signal.SIGCONT)


def _told(result: Result) -> dict[str, Any]:
    return {"cpu_s": round(result.cpu_s, 1), "peak_mb": result.peak_bytes >> 20, "problem": result.problem}


def _decisions(adapting: Adapting, records: list[CallRecord]) -> Iterator[float]:
    """Seconds of one decision after the other, of a scheduler whose pool is always as full."""
    scheduler = preset("late")
    scheduler.replicas_changed([ReplicaState(f"r{i}", "m", slots=4) for i in range(REPLICAS)], 0.0)
    running: list[tuple[Call, CallRecord]] = []
    for number, record in enumerate(cycle(records)):
        now = number * 0.05
        call = Call(f"c{number}", "m", now, record.prompt or "", record.prompt_tokens, type=record.type)
        time.sleep(GAP_S)
        begun = time.perf_counter()
        said = adapting.predict([call])[0]
        scheduler.arrive(call, said, now)
        yield time.perf_counter() - begun
        running.append((call, record))
        if len(running) > IN_FLIGHT:
            call, told = running.pop(0)
            ended = replace(told, call_id=call.id, model="m", arrival_s=call.arrival_s, finished_s=now)
            scheduler.finished(ended, now)
            adapting.finished(ended)


def _job(records: list[CallRecord], rows: int) -> Job:
    """As many examples as asked for: the log's, with lengths drawn anew around their own."""
    model = StoredModel.load(shipped())
    rng, known = np.random.default_rng(0), [one.example for one in model.read(records, 0)]
    reservoir = Reservoir(rows=rows)
    for seq in range(rows):
        one = known[int(rng.integers(len(known)))]
        tokens = float(max(1, round(one.tokens * rng.lognormal(0, 0.3))))
        group = f"{one.prompt_group}{seq % 13}"
        reservoir.add(
            replace(one, seq=seq, tokens=tokens, work=tokens, prompt_group=group, text=f"{one.text}{seq % 7}")
        )
    examples, weights = reservoir.draw()
    return Job(examples, weights, shipped(), reason="measured", plan=Plan.of(len(examples)))


if __name__ == "__main__":
    import argparse
    import json

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--examples", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=1)
    given = options.parse_args()
    print(json.dumps(beside_retraining(given.examples, rounds=given.rounds), indent=1))
