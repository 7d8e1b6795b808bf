"""Estimated latency over its limit, as a gateway's latency predictor tells it, for the policies that scale on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from swarmx.sim.pool import Pool
from swarmx.sim.replicas import Replica
from swarmx.sim.scaling.fleet import Unit
from swarmx.sim.scaling.watch import Tally

RECENT_S = 60.0


@dataclass
class BatchedLatency:
    """For batched engines with limits on the first token and on each token after it.

    A new call is prefilled after the prompts that wait there; decoding takes a step of the present batch, and is
    stalled for the share of the recent time that prefill takes. Where calls wait for room, as many must end before.
    prompt_tokens, answer_tokens : of the call that is estimated
    """

    prompt_tokens: float
    answer_tokens: float

    def __call__(self, model: str, pool: Pool, ready: list[Unit], tally: Tally, now: float) -> dict[str, float]:
        awaiting: dict[str, float] = {}
        prefilled: dict[str, float] = {}
        for router in pool.routers:
            for job in router.jobs.values():
                if job.replica is None:
                    continue
                name = job.replica.spec.id
                if job.first_token_s != job.first_token_s:
                    awaiting[name] = awaiting.get(name, 0.0) + job.call.prompt_tokens
                elif job.first_token_s > now - RECENT_S:
                    prefilled[name] = prefilled.get(name, 0.0) + job.call.prompt_tokens
        out: dict[str, float] = {}
        for unit in ready:
            name = unit.spec.id
            ratio = self._ratio(pool.replicas[name], awaiting.get(name, 0.0), prefilled.get(name, 0.0), tally, now)
            out[name] = ratio
        if out and tally.arrived > tally.finished:
            tally.estimates.extend((now, ratio) for ratio in out.values())
        while tally.estimates and tally.estimates[0][0] < now - RECENT_S:
            tally.estimates.popleft()
        if tally.estimates:
            out[""] = float(np.quantile([r for _, r in tally.estimates], 0.9))
        return out

    def _ratio(self, replica: Replica, awaiting: float, prefilled: float, tally: Tally, now: float) -> float:
        spec, limits = replica.spec, tally.limits
        p = spec.service.p / spec.speed
        busy = min(prefilled * p / RECENT_S, 0.95)
        step = float(spec.service.tau(max(replica.running, 1), replica.kv_tokens(now))) / spec.speed
        tpot = step / (1 - busy)
        ttft = (awaiting + self.prompt_tokens) * p
        if replica.waiting_count:
            ends_per_s = max(replica.running, 1) / (self.answer_tokens * tpot)
            ttft = (replica.waiting_count + 1) / ends_per_s + self.prompt_tokens * p
        return max(ttft / (limits.ttft_s or np.inf), tpot / (limits.tpot_s or np.inf))


@dataclass
class QueueLatency:
    """For pools of one-at-a-time replicas behind one queue: expected wait and service over the limit of the whole."""

    def __call__(self, model: str, pool: Pool, ready: list[Unit], tally: Tally, now: float) -> dict[str, float]:
        calls = sum(len(router.jobs) for router in pool.routers)
        service = tally.service_s
        limit = tally.limits.total_s
        if service is None or limit is None or not ready:
            return {}
        slots = sum(u.spec.slots * u.spec.speed for u in ready)
        wait = max(calls + 1 - slots, 0) * service / slots
        ratio = (wait + service) / limit
        return {**{u.spec.id: ratio for u in ready}, "": ratio}
