"""Compiled loops before the first request: compiling one takes seconds, loading it milliseconds that a call should not
wait for, and some of them run for the first time when dozens of calls have ended.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from swarmx.predict.features import features
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.scheduler import Scheduler
from swarmx.types import Call, CallRecord, Prediction, ReplicaState, Start

CALLS = 160  # when so many have ended, the engine's constants have been refitted and the predictor judged
BURST = 8  # calls that come at once: twice as many as there are slots
TOKENS = 40.0
LONG = 300  # prompt tokens of every fourth call, which one of the replicas cannot take: others overtake it
REPLICAS = ("rehearsal-a", "rehearsal-b")


def rehearse(scheduler: Scheduler, name: str = "rehearsal") -> None:
    """Play predicted calls through a scheduler that serves nobody, and read a prompt. name : begins the calls' ids"""
    large, small = (ReplicaState(replica, "rehearsal", slots=2) for replica in REPLICAS)
    scheduler.replicas_changed([large, replace(small, context_tokens=LONG)], 0.0)
    said = Prediction(QuantileGrid(LEVELS, np.linspace(1.0, 2 * TOKENS, len(LEVELS))), "neural")
    for i in range(0, CALLS, BURST):
        now, running = float(i), list[str]()
        for k in range(i, i + BURST):
            call = Call(f"{name}-{k}", "rehearsal", now, prompt_tokens=8 if k % 4 else LONG)
            decisions = scheduler.arrive(call, said, now)
            running += [decision.call_id for decision in decisions if isinstance(decision, Start)]
        for started in running:  # grows while they end
            now += 0.5
            scheduler.started(started, now)
            scheduler.progress(started, TOKENS / 2, now + 0.2)
            tokens = int(TOKENS) + len(running) % 7
            record = CallRecord(started, "rehearsal", float(i), "ok", output_tokens=tokens, prompt_tokens=8)
            decisions = scheduler.finished(record, now + 0.4)
            running += [decision.call_id for decision in decisions if isinstance(decision, Start)]
        scheduler.tick(now + 1.0)
    features([Call(name, "rehearsal", 0.0, "user: Read it once.")])
