"""A continuous-batching engine: slots, KV memory, prefill (stalling or chunked), prefix cache, recompute on overflow.

All n decoding calls advance together at v / (a + b·n + c·kv) tokens a second. One decode clock counts the tokens that
each has produced; since kv grows by n per tick of that clock, the time to any point on it is a quadratic, and nothing
is stepped. Prompts are prefilled one after another in order of admission; the first token comes with the prefill's end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import inf, sqrt

from swarmx.sim.cluster import ReplicaSpec
from swarmx.sim.job import Job
from swarmx.sim.prefix_cache import Hint
from swarmx.sim.session_cache import cache_of
from swarmx.types import ReplicaState

Entry = tuple[float, int, Job]


class BatchedReplica:
    """Admission is first come first served (or by workflow), without passing the head of the queue: it needs a slot
    and KV room for the prompt, less blocks already in use, plus `reserve_tokens`.

    When KV overflows, the call admitted last gives up its memory and goes back to the queue; its tokens so far become
    part of the prompt that must be prefilled again, and nothing is admitted until a call has ended. A call never
    outgrows context or KV memory: its answer is cut there.
    """

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
        self.recomputed = 0
        self._speed = spec.speed
        self._clock_s = 0.0
        self._tokens = 0.0  # the decode clock
        self._context = 0.0  # tokens that the decoding calls attend to
        self._private = 0.0  # KV tokens of admitted calls outside the shared blocks
        self._decoding: list[Entry] = []
        self._prefilling: deque[Job] = deque()
        self._admitted: dict[Job, None] = {}  # in order of admission
        self._waiting: list[Entry] = []
        self._cache = cache_of(spec)
        self._closed = False  # after an overflow, until a call ends
        self._number = 0
        self._event = ""
        self._event_tokens = 0.0  # the decode clock at due_s

    # --- the interface of `Replica` ---

    def submit(self, job: Job, now: float) -> bool:
        self._advance(now)
        if self.spec.start_if_free and (self._waiting or not self._fits(job)):
            self._plan()
            return False
        job.output_tokens = min(job.output_tokens, self.spec.longest_tokens - job.call.prompt_tokens)
        self._queue(job)
        self._admit(now)
        self._plan()
        return True

    def wake(self, now: float) -> None:
        while self.due_s <= now:
            due = self.due_s
            self._advance(due)
            if self._event == "prefilled":
                self._prefilled(self._prefilling.popleft(), due)
            elif self._event == "overflow":
                self._overflow(next(reversed(self._admitted)))
            else:
                self._tokens = self._decoding[0][0]
                self._end(heappop(self._decoding)[2])
            self._admit(due)
            self._plan()

    def remove(self, job: Job, now: float) -> bool:
        self._advance(now)
        if job in self._admitted:
            self._withdraw(job)
            self._closed = False
        elif not _drop(self._waiting, job):
            return False
        else:
            self.waiting_count -= 1
        self._admit(now)
        self._plan()
        return True

    def set_speed(self, speed: float, now: float) -> None:
        self._advance(now)
        self._speed = speed
        self._plan()

    def clear(self, now: float) -> list[Job]:
        self._advance(now)
        jobs = [*self._admitted, *(e[2] for e in sorted(self._waiting))]
        for part in (self._decoding, self._prefilling, self._admitted, self._waiting):
            part.clear()
        self._cache.clear()
        self.running = self.waiting_count = 0
        self._context = self._private = self._tokens = 0.0
        self._closed = False
        self._plan()
        return jobs

    def progress(self, now: float) -> Iterator[tuple[Job, float]]:
        self._advance(now)
        self._plan()
        return ((job, self._tokens - job.start_mark) for _, _, job in self._decoding)

    def kv_tokens(self, now: float) -> int:
        self._advance(now)
        self._plan()
        return int(self._private + self._cache.used_tokens)

    def state(self, now: float) -> ReplicaState:
        return self.spec.state(self.running, self.waiting_count, self.kv_tokens(now), self.draining, now)

    # --- time ---

    def _advance(self, now: float) -> None:
        """Bring clock, tokens and KV to `now`, which lies before or at `due_s`."""
        elapsed = now - self._clock_s
        if elapsed <= 0:
            return
        self._clock_s = now
        stalled = bool(self._prefilling) and not self.spec.chunk_tokens
        if stalled:
            self._prefilling[0].prefill_left -= elapsed * self._speed / self.spec.service.p
        elif self._prefilling or self._decoding:
            moved = self._event_tokens - self._tokens if now >= self.due_s else self._moved(elapsed)
            self._tokens += moved
            grown = moved * len(self._decoding)
            self._context += grown
            self._private += grown
            if self._prefilling:
                self._prefilling[0].prefill_left -= moved * self.spec.chunk_tokens

    def _step_s(self) -> float:
        """Seconds per token of the decode clock right now, at speed 1."""
        service = self.spec.service
        chunk = service.p * self.spec.chunk_tokens if self._prefilling else 0.0
        return service.a + service.b * len(self._decoding) + service.c * self._context + chunk

    def _moved(self, elapsed: float) -> float:
        """Tokens of the decode clock in `elapsed` seconds: the root of s·x + c·n·x²/2 = v·elapsed."""
        work, step = elapsed * self._speed, self._step_s()
        return 2 * work / (step + sqrt(step * step + 2 * self.spec.service.c * len(self._decoding) * work))

    def _plan(self) -> None:
        """Find the next event: the prefill's end, a call's end, or KV overflow."""
        if self._prefilling and not self.spec.chunk_tokens:
            left = max(self._prefilling[0].prefill_left, 0.0)
            self._event, self._event_tokens = "prefilled", self._tokens
            self.due_s = self._clock_s + left * self.spec.service.p / self._speed
            return
        event, tokens = "", inf
        if self._decoding:
            event, tokens = "ended", max(self._decoding[0][0] - self._tokens, 0.0)
            room = self.spec.kv_capacity_tokens - self._private - self._cache.used_tokens
            if room / len(self._decoding) < tokens and len(self._admitted) > 1:
                event, tokens = "overflow", max(room, 0.0) / len(self._decoding)
        if self._prefilling:
            prefill = max(self._prefilling[0].prefill_left, 0.0) / self.spec.chunk_tokens
            if prefill <= tokens:
                event, tokens = "prefilled", prefill
        if not event:
            self.due_s = inf
            self._tokens = 0.0  # nothing refers to the clock: keep its digits
            return
        self._event, self._event_tokens = event, self._tokens + tokens
        growth = self.spec.service.c * len(self._decoding) * tokens / 2
        self.due_s = self._clock_s + tokens * (self._step_s() + growth) / self._speed

    # --- calls in and out ---

    def _queue(self, job: Job) -> None:
        self._number += 1
        key = job.call.workflow_start_s if self.spec.queue == "workflow" else 0.0
        heappush(self._waiting, (key, self._number, job))
        self.waiting_count += 1

    def _fits(self, job: Job) -> bool:
        if self.running >= self.spec.slots or self._closed:
            return False
        blocks = job.call.prefix_blocks if self.spec.block_tokens else ()
        here, idle = self._cache.present(blocks)
        live = (here - idle) * self.spec.block_tokens
        need = job.call.prompt_tokens + job.produced - live + self.spec.reserve_tokens
        return need <= self.spec.kv_capacity_tokens - self._private - self._cache.used_tokens or not self._admitted

    def _admit(self, now: float) -> None:
        while self._waiting and self._fits(self._waiting[0][2]):
            job = heappop(self._waiting)[2]
            self.waiting_count -= 1
            self.running += 1
            self._admitted[job] = None
            if job.started_s != job.started_s:  # nan: this is its first start here
                job.started_s = now
            held = job.call.prompt_tokens + job.produced
            cached = min(float(job.sim.cached_tokens), held - 1)
            if self.spec.block_tokens:
                blocks = job.call.prefix_blocks
                self._trim()
                hit = self._cache.present(blocks)[0] * self.spec.block_tokens
                cached = max(cached, min(hit, held - 1))
                self._cache.acquire(blocks)
                held -= len(blocks) * self.spec.block_tokens
            self._private += max(held, 0)
            job.cached_tokens = int(cached)
            job.prefill_left = job.call.prompt_tokens + job.produced - max(cached, job.carried_tokens)
            job.carried_tokens = 0.0
            if job.prefill_left <= 0 or self.spec.service.p == 0:
                self._prefilled(job, now)
            else:
                job.prefill_left += self.spec.prefill_base_s / self.spec.service.p
                self._prefilling.append(job)
            self._trim()

    def _prefilled(self, job: Job, now: float) -> None:
        """The first token is there; the others follow on the decode clock."""
        first = min(1.0, job.output_tokens - job.produced)
        job.produced += first
        self._private += first
        if job.first_token_s != job.first_token_s:  # nan
            job.first_token_s = now
        if job.told != job.attempt:
            job.told = job.attempt
            self.first.append(job)
        job.start_mark = self._tokens - job.produced
        job.end_mark = job.start_mark + job.output_tokens
        self._context += job.call.prompt_tokens + job.produced
        self._number += 1
        heappush(self._decoding, (job.end_mark, self._number, job))

    def _end(self, job: Job) -> None:
        job.produced = job.output_tokens
        sim = job.sim
        hint = Hint(job.call.workflow, self._clock_s, sim.reuse, sim.pause_s)
        self._release(job, sim.output_blocks, hint)
        self._context -= job.call.prompt_tokens + job.produced
        self._trim()
        self._closed = False
        self.ended.append(job)
        if not self._decoding:
            self._context = 0.0  # rounding must not pile up
        if not self._admitted:
            self._private = 0.0

    def _withdraw(self, job: Job) -> None:
        """Take an admitted call out, keeping what it has produced."""
        if _drop(self._decoding, job):
            job.produced = min(max(self._tokens - job.start_mark, job.produced), job.output_tokens)
            self._context -= job.call.prompt_tokens + job.produced
        else:
            self._prefilling.remove(job)
        self._release(job)

    def _overflow(self, job: Job) -> None:
        self._withdraw(job)
        self._number += 1
        heappush(self._waiting, (-inf, -self._number, job))  # before all others, the youngest of such last
        self.waiting_count += 1
        self.recomputed += 1
        self._closed = True

    def _release(self, job: Job, answer: Sequence[int] = (), hint: Hint | None = None) -> None:
        del self._admitted[job]
        self.running -= 1
        held = job.call.prompt_tokens + job.produced
        if self.spec.block_tokens:
            self._cache.leave(job.call.prefix_blocks, answer, hint or Hint(job.call.workflow, self._clock_s))
            held = max(held - len(job.call.prefix_blocks) * self.spec.block_tokens, 0)
        self._private -= held

    def _trim(self) -> None:
        if self.spec.block_tokens:
            room = self.spec.kv_capacity_tokens - self._private - self._cache.used_tokens
            self._cache.shrink(room, self._clock_s)


def _drop(queue: list[Entry], job: Job) -> bool:
    for place, entry in enumerate(queue):
        if entry[2] is job:
            del queue[place]
            heapify(queue)
            return True
    return False
