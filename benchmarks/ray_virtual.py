"""The queue owner and its rivals on emulated engines and a virtual clock: many workflows in seconds of CPU.

    swarmx bench ray_virtual [--quick] [--json]

Engines, prompts, workflows, predictor and the owner's rules are those of `swarmx bench ray`; Ray is replaced by fixed
delays: those that were measured between a call's end and the next one's start on an otherwise idle machine. `late` pays
all of them, a router that binds at once only the way into the replica.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).parent)
sys.path[:] = [p for p in sys.path if p not in ("", HERE)] + [HERE]  # last: this folder holds a ray.py

import numpy as np  # noqa: E402
from _http_suite import BATCH_SHARE, PREFILL_S, TOKEN_S, Piece, Run  # noqa: E402
from _ray_suite import CALLS_PER_RUN, RULE, SLOTS, SPEEDS, capacity_per_s, training_records, workload  # noqa: E402

from swarmx.adapters.mock_replica import MockReplica  # noqa: E402
from swarmx.adapters.ray_serve.grants import Grants  # noqa: E402
from swarmx.adapters.ray_serve.messages import Ask, Done, Report, Told  # noqa: E402
from swarmx.adapters.ray_serve.states import Ended  # noqa: E402
from swarmx.engine import EngineConstants  # noqa: E402
from swarmx.presets import preset  # noqa: E402
from swarmx.sim.cluster import ReplicaSpec  # noqa: E402
from swarmx.types import Call, CallRecord, Prediction, ReplicaState, Start  # noqa: E402

REPORT_S, GRANT_S, SERVE_S = 0.0034, 0.0028, 0.0046  # end -> owner, owner -> handle, handle -> replica
LOAD, MODEL = 0.9, "m"
STATES = tuple(ReplicaState(f"r{i}", MODEL, f"x{v:g}", SLOTS, speed=v) for i, v in enumerate(SPEEDS))
Predict = Callable[[str], Prediction]


class VirtualTime(selectors.DefaultSelector):
    """A selector that does not wait: it moves the clock."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found and timeout:
            self.now_s += timeout
        return found


class Fleet:
    """The engines, and a router in front. place : waits until the call has a replica; over : hears of its end"""

    def __init__(self, name: str, seed: int, loop: asyncio.AbstractEventLoop) -> None:
        a, b = TOKEN_S * (1 - BATCH_SHARE), TOKEN_S * BATCH_SHARE
        service = EngineConstants(a, b, 0.0, PREFILL_S)
        specs = [ReplicaSpec(s.id, batched=True, slots=SLOTS, speed=s.speed, service=service) for s in STATES]
        self.engines = {spec.id: MockReplica(spec) for spec in specs}
        self.loop, self.found = loop, dict[str, asyncio.Future[str]]()
        self.owner = Grants(loop.time, name, lease_s=1e9) if name == "late" else None
        self.at_once = None if self.owner else preset(name, seed)
        if self.owner is not None:
            self.owner.told(Told("h", (), STATES))
        if self.at_once is not None:
            self.at_once.replicas_changed(STATES, loop.time())

    async def place(self, call: Call, prediction: Prediction | None) -> str:
        if self.at_once is not None:
            starts = self.at_once.arrive(call, prediction, self.loop.time())
            return next(d.replica for d in starts if isinstance(d, Start))
        assert self.owner is not None
        self.found[call.id] = self.loop.create_future()
        await asyncio.sleep(GRANT_S)
        self.owner.told(Told("h", (Ask(call, prediction, call.id),)))
        self._grant()
        try:
            return await self.found[call.id]
        finally:
            del self.found[call.id]

    def over(self, call: Call, replica: str, tokens: int, seconds: float) -> None:
        now = self.loop.time()
        if self.at_once is not None:
            record = CallRecord(call.id, MODEL, call.arrival_s, "ok", type=call.type, output_tokens=tokens)
            self.at_once.finished(record, now)
        if self.owner is not None:
            ended = Ended(call.id, call.type or "", "ok", tokens, seconds, 1.0, float(call.prompt_tokens), 0.0)
            self.owner.report(Report(replica, {}, (), (ended,)))
            self.owner.told(Told("h", (Done(call.id),)))
            self._grant()

    def tick(self) -> None:
        if self.owner is not None:
            self.owner.tick()
            self._grant()

    def _grant(self) -> None:
        assert self.owner is not None
        for call_id, replica in self.owner.fetch("h").grants:
            self.loop.call_later(GRANT_S, self.found[call_id].set_result, replica)


async def drive(fleet: Fleet, runs: Sequence[Run], warm: int, predict: Predict | None) -> list[float]:
    """Seconds of each workflow after the first `warm`, in their order."""
    loop, took = fleet.loop, dict[str, float]()
    begin = loop.time()

    async def call(run: Run, place: int, piece: Piece, waits: list[asyncio.Task[None]]) -> None:
        await asyncio.gather(*waits)
        tokens, prompt = RULE.length(f"user: {piece.prompt}"), max(1, len(piece.prompt) // 4)
        asked = Call(
            f"{run.id}-{place}", MODEL, loop.time(), piece.prompt, prompt, workflow_id=run.id,
            workflow_arrival_s=begin + run.at_s, type=piece.type,
        )  # fmt: skip
        replica = await fleet.place(asked, None if predict is None else predict(piece.prompt))
        await asyncio.sleep(SERVE_S)
        began = loop.time()
        async for _ in fleet.engines[replica].generate(prompt, tokens, (), False):
            pass
        loop.call_later(REPORT_S, fleet.over, asked, replica, tokens, loop.time() - began)

    async def one(run: Run) -> None:
        await asyncio.sleep(run.at_s)
        ends: list[asyncio.Task[None]] = []
        for place, piece in enumerate(run.pieces):
            ends.append(asyncio.create_task(call(run, place, piece, [ends[i] for i in piece.after])))
        await asyncio.gather(*ends)
        took[run.id] = loop.time() - begin - run.at_s

    async def ticking() -> None:
        while True:
            await asyncio.sleep(0.1)
            fleet.tick()

    ticks = asyncio.create_task(ticking())
    await asyncio.gather(*(one(run) for run in runs))
    ticks.cancel()
    return [took[run.id] for run in runs[warm:]]


def simulated(name: str, seed: int, runs: int, predict: Predict | None) -> list[float]:
    """One router, one seed: the same workflows at the same times for every router."""
    clock = VirtualTime()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now_s  # type: ignore[method-assign]
    warm = max(20, runs // 7)
    made = workload(seed, runs + warm, LOAD * capacity_per_s(1.0) / CALLS_PER_RUN)
    try:
        return loop.run_until_complete(drive(Fleet(name, seed, loop), made, warm, predict))
    finally:
        loop.close()


def predictor(folder: str) -> Predict:
    """Trained on earlier prompts of the same kind; remembers its answers."""
    from swarmx.predict.runtime import Predictor
    from swarmx.predict.train import TrainConfig, train

    train(training_records(4000, seed=7), Path(folder) / "model", TrainConfig(plots=False))
    model, known = Predictor.load(Path(folder) / "model"), dict[str, Prediction]()

    def predict(prompt: str) -> Prediction:
        if prompt not in known:
            call = Call("c", MODEL, 0.0, prompt, max(1, len(prompt) // 4))
            known[prompt] = model.predict([call])[0]
        return known[prompt]

    return predict


def run(quick: bool = False, data: str | None = None, seeds: int = 0, runs: int = 0) -> dict[str, Any]:
    """Workflow seconds by router, P99 relative to LED for each seed and over all. data : unused"""
    seeds, runs = seeds or (2 if quick else 8), runs or (120 if quick else 250)
    rivals = {
        "serve power of two": "power_of_two",
        "LED": "least_outstanding_per_speed",
        "push": "push",
        "late": "late",
    }
    with tempfile.TemporaryDirectory(prefix="swarmx-model-") as folder:
        predict = predictor(folder)
        found = {
            label: [
                simulated(name, s, runs, predict if name in ("push", "late") else None) for s in range(1, seeds + 1)
            ]
            for label, name in rivals.items()
        }
    p99 = {label: np.array([np.quantile(part, 0.99) for part in parts]) for label, parts in found.items()}
    quantiles = {
        label: np.quantile(np.concatenate(parts), (0.5, 0.95, 0.99)).round(3).tolist() for label, parts in found.items()
    }
    return {
        "p50_p95_p99_s": quantiles,
        "p99_vs_led": {label: round(q[2] / quantiles["LED"][2], 3) for label, q in quantiles.items()},
        "ci95_vs_led": {label: _interval(parts, found["LED"]) for label, parts in found.items() if label != "LED"},
        "late_vs_led_by_seed": (p99["late"] / p99["LED"]).round(3).tolist(),
        "meta": {"seeds": seeds, "workflows_per_seed": runs, "load": LOAD, "delays_s": [REPORT_S, GRANT_S, SERVE_S]},
    }


def _interval(ours: Sequence[Any], theirs: Sequence[Any]) -> list[float]:
    """95 % interval of the ratio of P99s, by a bootstrap over the workflows of all seeds, which both had alike."""
    a, b, rng = np.concatenate(ours), np.concatenate(theirs), np.random.default_rng(0)
    picks = rng.integers(0, a.size, (500, a.size))
    ratios = np.quantile(a[picks], 0.99, axis=1) / np.quantile(b[picks], 0.99, axis=1)
    return [round(float(q), 3) for q in np.quantile(ratios, [0.025, 0.975])]


if __name__ == "__main__":
    print(json.dumps(run("--quick" in sys.argv), indent=2))
