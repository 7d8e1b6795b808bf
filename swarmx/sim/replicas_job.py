"""A replica whose slots do not slow each other: a server, an agent harness, a video model.

Work runs on one clock in tokens that advances at speed / a; a job ends when the clock has moved by its tokens, so a
change of speed moves every end at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf

from swarmx.sim.cluster import ReplicaSpec
from swarmx.sim.job import Job
from swarmx.types import ReplicaState

Entry = tuple[float, int, Job]


class JobReplica:
    """`slots` calls at once, each `tokens · a / speed` seconds; the first token counts as seen when service starts."""

    def __init__(self, spec: ReplicaSpec, index: int) -> None:
        self.spec = spec
        self.index = index
        self.up = True
        self.draining = False
        self.due_s = inf
        self.planned_s = inf
        self.first: list[Job] = []
        self.ended: list[Job] = []
        self.running = 0
        self.waiting_count = 0
        self._rate = spec.speed / spec.service.a
        self._clock_s = 0.0
        self._work = 0.0
        self._serving: list[Entry] = []
        self._waiting: list[Entry] = []
        self._number = 0

    def submit(self, job: Job, now: float) -> bool:
        if self.running < self.spec.slots:
            self._serve(job, now)
            self._plan()
            return True
        if self.spec.start_if_free:
            return False
        self._number += 1
        key = job.call.workflow_start_s if self.spec.queue == "workflow" else 0.0
        heappush(self._waiting, (key, self._number, job))
        self.waiting_count += 1
        return True

    def wake(self, now: float) -> None:
        serving = self._serving
        while self.due_s <= now:
            self._work, _, job = heappop(serving)
            self._clock_s = self.due_s
            self.running -= 1
            job.produced = job.output_tokens
            self.ended.append(job)
            if self._waiting:
                self.waiting_count -= 1
                self._serve(heappop(self._waiting)[2], self._clock_s)
            self._plan()

    def _serve(self, job: Job, now: float) -> None:
        self._move(now)
        job.started_s = now
        if job.first_token_s != job.first_token_s:  # nan
            job.first_token_s = now
        work = self._work - job.produced
        job.start_mark, job.end_mark = work, work + job.output_tokens
        self._number += 1
        heappush(self._serving, (job.end_mark, self._number, job))
        self.running += 1
        self.first.append(job)

    def _move(self, now: float) -> None:
        """Bring the work clock to `now`."""
        if self._serving:
            self._work += (now - self._clock_s) * self._rate
        else:
            self._work = 0.0  # nothing refers to the clock: keep its digits
        self._clock_s = now

    def _plan(self) -> None:
        if self._serving:
            left = self._serving[0][0] - self._work
            self.due_s = self._clock_s + left / self._rate if left > 0 else self._clock_s
        else:
            self.due_s = inf

    def remove(self, job: Job, now: float) -> bool:
        self._move(now)
        for queue in (self._waiting, self._serving):
            for place, entry in enumerate(queue):
                if entry[2] is job:
                    del queue[place]
                    heapify(queue)
                    if queue is self._waiting:
                        self.waiting_count -= 1
                    else:
                        self.running -= 1
                        job.produced = min(self._work - job.start_mark, job.output_tokens)
                        if self._waiting:
                            self.waiting_count -= 1
                            self._serve(heappop(self._waiting)[2], now)
                    self._plan()
                    return True
        return False

    def set_speed(self, speed: float, now: float) -> None:
        self._move(now)
        self._rate = speed / self.spec.service.a
        self._plan()

    def clear(self, now: float) -> list[Job]:
        jobs = [e[2] for e in sorted(self._serving)] + [e[2] for e in sorted(self._waiting)]
        self._serving.clear()
        self._waiting.clear()
        self.running = self.waiting_count = 0
        self._move(now)
        self._plan()
        return jobs

    def progress(self, now: float) -> Iterator[tuple[Job, float]]:
        self._move(now)
        return ((job, self._work - job.start_mark) for _, _, job in self._serving)

    def kv_tokens(self, now: float) -> int:
        return 0

    def state(self, now: float) -> ReplicaState:
        return self.spec.state(self.running, self.waiting_count, 0, self.draining, now)
