"""Routers on emulated engines and a virtual clock: what an HTTP or Ray suite does in minutes, in seconds of CPU."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _http_suite import BATCH_SHARE, PREFILL_S, Piece, Run

from swarmx.adapters.mock_replica import HiddenRule, MockReplica
from swarmx.adapters.ray_serve.grants import Grants
from swarmx.adapters.ray_serve.messages import Ask, Done, Report, Told
from swarmx.adapters.ray_serve.states import Ended
from swarmx.engine import EngineConstants
from swarmx.presets import preset
from swarmx.sim.cluster import ReplicaSpec
from swarmx.types import Call, CallRecord, Prediction, ReplicaState, Start

MODEL = "m"
Predict = Callable[[str], Prediction]


@dataclass(frozen=True)
class Fleet:
    """Engines of several speeds, the hidden rule of their answers, and what stands between them and a router.

    token_s : seconds per output token of a call alone at speed 1
    told : whether routers are told the speeds; else they learn what they can
    report_s, grant_s, serve_s : from a call's end to the owner of the queue, from its decision to who asked, from there
        into the replica; a router that binds at once pays the last alone
    """

    speeds: Sequence[float]
    slots: int
    token_s: float
    rule: HiddenRule
    report_s: float
    grant_s: float
    serve_s: float
    told: bool = True

    def states(self) -> tuple[ReplicaState, ...]:
        return tuple(
            ReplicaState(f"r{i}", MODEL, f"x{v:g}", self.slots, speed=v if self.told else 1.0)
            for i, v in enumerate(self.speeds)
        )

    def engines(self) -> dict[str, MockReplica]:
        service = EngineConstants(self.token_s * (1 - BATCH_SHARE), self.token_s * BATCH_SHARE, 0.0, PREFILL_S)
        return {
            state.id: MockReplica(ReplicaSpec(state.id, batched=True, slots=self.slots, speed=v, service=service))
            for state, v in zip(self.states(), self.speeds, strict=True)
        }


class VirtualTime(selectors.DefaultSelector):
    """A selector that does not wait: it moves the clock."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found and timeout:
            self.now_s += timeout
        return found


class Router:
    """A preset in front of a fleet, `late` as the owner of a queue. place : waits until the call has a replica;
    over : hears of its end"""

    def __init__(self, name: str, seed: int, fleet: Fleet, loop: asyncio.AbstractEventLoop) -> None:
        self.fleet, self.engines = fleet, fleet.engines()
        self.loop, self.found = loop, dict[str, asyncio.Future[str]]()
        self.owner = Grants(loop.time, name, lease_s=1e9) if name == "late" else None
        self.at_once = None if self.owner else preset(name, seed)
        if self.owner is not None:
            self.owner.told(Told("h", (), fleet.states()))
        if self.at_once is not None:
            self.at_once.replicas_changed(fleet.states(), loop.time())

    async def place(self, call: Call, prediction: Prediction | None) -> str:
        if self.at_once is not None:
            starts = self.at_once.arrive(call, prediction, self.loop.time())
            return next(d.replica for d in starts if isinstance(d, Start))
        assert self.owner is not None
        self.found[call.id] = self.loop.create_future()
        await asyncio.sleep(self.fleet.grant_s)
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
            self.loop.call_later(self.fleet.grant_s, self.found[call_id].set_result, replica)


async def drive(router: Router, runs: Sequence[Run], warm: int, predict: Predict | None) -> list[float]:
    """Seconds of each workflow after the first `warm`, in their order."""
    loop, fleet, took = router.loop, router.fleet, dict[str, float]()
    begin = loop.time()

    async def call(run: Run, place: int, piece: Piece, waits: list[asyncio.Task[None]]) -> None:
        await asyncio.gather(*waits)
        tokens, prompt = fleet.rule.length(f"user: {piece.prompt}"), max(1, len(piece.prompt) // 4)
        asked = Call(
            f"{run.id}-{place}", MODEL, loop.time(), piece.prompt, prompt, workflow_id=run.id,
            workflow_arrival_s=begin + run.at_s, type=piece.type,
        )  # fmt: skip
        replica = await router.place(asked, None if predict is None else predict(piece.prompt))
        await asyncio.sleep(fleet.serve_s)
        began = loop.time()
        async for _ in router.engines[replica].generate(prompt, tokens, (), False):
            pass
        loop.call_later(fleet.report_s, router.over, asked, replica, tokens, loop.time() - began)

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
            router.tick()

    ticks = asyncio.create_task(ticking())
    await asyncio.gather(*(one(run) for run in runs))
    ticks.cancel()
    return [took[run.id] for run in runs[warm:]]


def simulated(
    name: str, seed: int, fleet: Fleet, runs: Sequence[Run], warm: int, predict: Predict | None
) -> list[float]:
    """Workflow seconds under one router; the same runs at the same times for every router."""
    clock = VirtualTime()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now_s  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(drive(Router(name, seed, fleet, loop), runs, warm, predict))
    finally:
        loop.close()


def predictor(records: Sequence[CallRecord], folder: Path) -> Predict:
    """Trained on earlier prompts of the same kind; remembers its answers."""
    from swarmx.predict.runtime import Predictor
    from swarmx.predict.train import TrainConfig, train

    train(records, folder / "model", TrainConfig(plots=False))
    model, known = Predictor.load(folder / "model"), dict[str, Prediction]()

    def predict(prompt: str) -> Prediction:
        if prompt not in known:
            call = Call("c", MODEL, 0.0, prompt, max(1, len(prompt) // 4))
            known[prompt] = model.predict([call])[0]
        return known[prompt]

    return predict


def interval(ours: Sequence[Any], theirs: Sequence[Any], level: float = 0.99) -> list[float]:
    """95 % interval of a ratio of quantiles, by a bootstrap over the workflows of all seeds, which both had alike."""
    a, b, rng = np.concatenate(ours), np.concatenate(theirs), np.random.default_rng(0)
    picks = rng.integers(0, a.size, (500, a.size))
    ratios = np.quantile(a[picks], level, axis=1) / np.quantile(b[picks], level, axis=1)
    return [round(float(q), 3) for q in np.quantile(ratios, [0.025, 0.975])]
