"""The simulator's continuous-batching replica on the wall clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import count
from math import inf

from swarmx.sim.cluster import ReplicaSpec
from swarmx.sim.job import Job
from swarmx.sim.replicas_batched import BatchedReplica
from swarmx.sim.workload import SimCall
from swarmx.types import Call

STREAM_STEP_S = 0.01  # progress of streamed calls is looked at no more often than this


class EngineLost(ConnectionError):
    """The engine died with the call inside."""


class _Run:
    """One call inside: what its consumer is told."""

    __slots__ = ("done", "lost", "streamed", "tokens", "woken")

    def __init__(self, streamed: bool) -> None:
        self.streamed = streamed
        self.tokens = 0
        self.done = self.lost = False
        self.woken = asyncio.Event()


class MockReplica:
    """One emulated engine. All methods run on the event loop of its server."""

    def __init__(self, spec: ReplicaSpec) -> None:
        self.spec = spec
        self.engine = BatchedReplica(spec, 0)
        self.aborted = self.finished = self.prompt_tokens = self.output_tokens = 0
        self.cached_tokens = 0
        self._runs: dict[Job, _Run] = {}
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    async def generate(
        self, prompt_tokens: int, output_tokens: int, blocks: Sequence[int] = (), streamed: bool = True
    ) -> AsyncIterator[tuple[int, int]]:
        """Yield (tokens so far, cached prompt tokens) as they come; not streamed: once, at the end.

        blocks : hashes of the prompt's leading blocks
        Raises EngineLost when the engine dies. Closing the iterator aborts the call.
        """
        job = self._job(prompt_tokens, output_tokens, blocks)
        run = self._runs[job] = _Run(streamed)
        told = 0
        try:
            self.engine.submit(job, self._now())
            self._look()
            while True:
                await run.woken.wait()
                run.woken.clear()
                if run.lost:
                    raise EngineLost("the engine died")
                if run.done or run.tokens > told:
                    told = run.tokens
                    yield told, job.cached_tokens
                if run.done:
                    return
        finally:
            del self._runs[job]
            self._account(job, run)

    def set_speed(self, factor: float) -> None:
        """Run at this multiple of the configured speed from now on."""
        self.engine.set_speed(self.spec.speed * factor, self._now())
        self._look()

    def die(self) -> None:
        """Lose everything inside, as after running out of memory."""
        for job in self.engine.clear(self._now()):
            self._runs[job].lost = True
            self._runs[job].woken.set()

    def load(self) -> tuple[int, int, int]:
        """(running calls, waiting calls, KV tokens in use)."""
        now = self._now()
        return self.engine.running, self.engine.waiting_count, self.engine.kv_tokens(now)

    # ---- time -----------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        now = asyncio.get_running_loop().time()
        self.engine.wake(now)
        return now

    def _look(self) -> None:
        """Tell consumers what happened, and come back when something is due."""
        now = self._now()
        self.engine.first.clear()
        for job in self.engine.ended:
            run = self._runs.get(job)
            if run is not None:
                run.tokens, run.done = round(job.output_tokens), True
                run.woken.set()
        self.engine.ended.clear()
        streaming = False
        for job, tokens in self.engine.progress(now):
            run = self._runs.get(job)
            if run is not None and run.streamed:
                streaming = True
                if int(tokens) > run.tokens:
                    run.tokens = int(tokens)
                    run.woken.set()
        due = min(self.engine.due_s, now + STREAM_STEP_S if streaming else inf)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due < inf:
            self._timer = asyncio.get_running_loop().call_at(due, self._look)

    # ---- bookkeeping ----------------------------------------------------------------------------------------------

    def _job(self, prompt_tokens: int, output_tokens: int, blocks: Sequence[int]) -> Job:
        number = next(self._numbers)
        key, now = f"{self.spec.id}-{number}", self._now()
        call = Call(key, self.spec.model, now, prompt_tokens=prompt_tokens, prefix_blocks=tuple(blocks))
        sim = SimCall(key, float(output_tokens), prompt_tokens=prompt_tokens, prefix_blocks=tuple(blocks))
        return Job(call, sim, number, None, 0, None)

    def _account(self, job: Job, run: _Run) -> None:
        if run.done:
            self.finished += 1
            self.prompt_tokens += job.call.prompt_tokens
            self.cached_tokens += job.cached_tokens
            self.output_tokens += run.tokens
            return
        self.aborted += 1
        if not run.lost:
            self.engine.remove(job, self._now())
            self._look()
