"""Predicted TTFT and TPOT at one quantile, room to the limits, an affinity gate: llm-d's latency-aware router."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarmx import kernel
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.routing.counts import LeastOutstandingPerSpeed
from swarmx.routing.placement import Array
from swarmx.state import ClusterState
from swarmx.waiting import Waiting

EMPTY = np.zeros(0)
NONE_BLOCKED = np.zeros(0, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class LlmdPredicted:
    """The replica whose predicted time to first token and time per output token leave the most room.

    Replicas that hold at least `sticky` of the prompt are preferred, unless the best of them is more than `penalty_s`
    of TTFT worse than the best of all. Those that keep both limits come before those that do not. Within a tier the
    score is ttft_share of the TTFT and the rest of the TPOT, each relative to the largest of the tier.

    level : the one quantile at which waiting is predicted: the wait times the ratio of that quantile to the mean of the
        call lengths
    ttft_s, tpot_s : limits; None: all replicas are one tier and the quickest is taken
    explore : share of calls that go to the tier that misses the limits
    pack : take the least room instead of the most (llm-d's default, for keeping replicas free)
    What differs: the latencies come from the learned service model in place of boosted trees (less is to be learned,
    and it knows the devices, which that router takes to be alike), and the best is taken in place of a draw by weight.
    """

    level: float = 0.9
    ttft_s: float | None = None
    tpot_s: float | None = None
    ttft_share: float = 0.8
    sticky: float = 0.8
    penalty_s: float = 5.0
    explore: float = 0.01
    pack: bool = False

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        cluster.refresh(now)
        if not cluster.is_fitted:
            return LeastOutstandingPerSpeed().costs(waiting, cluster, usable, now, rng)
        ttft, tpot, held = self.latencies(waiting, cluster, now)
        gate = self.gated(ttft, held, waiting.call.prompt_tokens, usable)
        return self.scores(ttft, tpot, gate, rng)

    def latencies(self, waiting: Waiting, cluster: ClusterState, now: float) -> tuple[Array, Array, Array]:
        """((R,) TTFT in s, (R,) seconds per output token, (R,) prompt tokens cached)."""
        call, lengths, table = waiting.call, waiting.lengths, cluster.replicas
        blocks = call.prefix_blocks
        live, held = (cluster.prefix.live(blocks), cluster.prefix.cached(blocks)) if blocks else (EMPTY, EMPTY)
        limit = np.inf if call.max_tokens is None else call.max_tokens
        out = np.empty((4, table.shape[1]))
        row = np.array([lengths.mean, 0.0, call.prompt_tokens, limit])  # no tokens of its own: own finish is TTFT
        kernel.costs(table, row, NONE_BLOCKED, live, held, now, 1.0, out)
        cached = held if blocks else np.zeros(table.shape[1])
        prefill = table[kernel.P] * np.maximum(call.prompt_tokens - cached, 0.0)
        at = float(QuantileGrid(LEVELS, lengths.grid).at(self.level))
        ttft = np.maximum(out[0] - prefill, 0.0) * max(at / max(lengths.mean, 1e-12), 1.0) + prefill
        running = np.minimum(table[kernel.N] + 1, table[kernel.SLOTS])
        kv = np.minimum(table[kernel.KV] + call.prompt_tokens, table[kernel.KV_CAPACITY])
        return ttft, table[kernel.A] + table[kernel.B] * running + table[kernel.C] * kv, cached

    def gated(self, ttft: Array, held: Array, prompt_tokens: int, usable: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(R,) replicas that remain after the affinity gate."""
        sticky = usable & (held >= self.sticky * max(prompt_tokens, 1))
        if sticky.any() and ttft[sticky].min() <= ttft[usable].min() + self.penalty_s:
            return sticky
        return usable

    def scores(self, ttft: Array, tpot: Array, gate: NDArray[np.bool_], rng: np.random.Generator) -> Array:
        """(R,) lower is better; infinite outside the gate and outside the tier that is served."""
        limits = (np.inf if self.ttft_s is None else self.ttft_s, np.inf if self.tpot_s is None else self.tpot_s)
        keeps = gate & (ttft <= limits[0]) & (tpot <= limits[1])
        misses = gate & ~keeps
        tier = keeps if keeps.any() and not (misses.any() and rng.random() < self.explore) else misses
        score = self.ttft_share * _relative(ttft, tier) + (1 - self.ttft_share) * _relative(tpot, tier)
        return np.where(tier, -score if self.pack and keeps.any() else score, np.inf)


def _relative(seconds: Array, among: NDArray[np.bool_]) -> Array:
    """Seconds as a share of the largest finite one among those."""
    finite = seconds[among & np.isfinite(seconds)]
    return seconds / max(float(finite.max()) if finite.size else 1.0, 1e-12)
