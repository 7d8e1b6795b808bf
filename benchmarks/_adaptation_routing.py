"""Time of one routing decision, prediction included, while a retraining runs beside it and while none does."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

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


def beside_retraining(examples: int = 100_000, calls: int = 1500, rounds: int = 3) -> dict[str, Any]:
    """p99_ratio : of the time from a call to its decision, during retrainings over before them; what they cost.

    Rounds of both are taken in turn, so that what else the machine does falls on both alike.
    """
    records = [record for record in read_log(LOG) if record.status == "ok"]
    job, adapting = _job(records, examples), Adapting.open(AdaptationSettings(kind="tail_loss"), shipped())
    before, during, results = [], [], []
    with tempfile.TemporaryDirectory() as place:
        worker = ProcessWorker(Path(place) / "work", limit_s=3600)
        ask = _decisions(adapting, records)
        for _ in range(rounds):
            before += [next(ask) for _ in range(calls)]
            worker.start(job)
            result = None
            while result is None:
                during.append(next(ask))
                result = worker.poll()
            results.append(result)
    quiet, busy = (np.quantile(times, 0.99) for times in (before, during))
    return {
        "p99_ratio": round(float(busy / quiet), 3), "p99_before_ms": round(1e3 * float(quiet), 3),
        "p99_during_ms": round(1e3 * float(busy), 3), "decisions": [len(before), len(during)], "examples": examples,
        "retraining": [_told(result) for result in results],
    }  # fmt: skip


def _told(result: Result) -> dict[str, Any]:
    cost = {"cpu_s": round(result.cpu_s, 1), "wall_s": round(result.wall_s, 1), "peak_mb": result.peak_bytes >> 20}
    return cost | {"problem": result.problem}


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
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    print(json.dumps(beside_retraining(given.examples, rounds=given.rounds), indent=1))
