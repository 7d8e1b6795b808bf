"""Equal prompts to equal replicas by hashing alone, none of them overloaded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from swarmx.routing.placement import Array, outstanding
from swarmx.state import ClusterState
from swarmx.waiting import Waiting


@dataclass(frozen=True, slots=True)
class PrefixAffinity:
    """Weighted rendezvous hashing of the prompt's beginning, with bounded load.

    A key ranks the replicas in an order of its own, faster ones more often first; the call goes to the first that would
    hold at most `bound` times its share, by speed, of all outstanding calls. Adding or removing a replica moves only
    that replica's keys. When a replica is full its keys spread over all others instead of falling on one neighbour.

    bound : 1.25 as in the gateways that offer this
    key : "prefix" hashes the first `key_tokens` tokens; "workflow" the workflow, which keeps sessions together
    Mirrokni, Thorup and Zadimoghaddam (2018), Consistent Hashing with Bounded Loads.
    """

    bound: float = 1.25
    key: Literal["prefix", "workflow"] = "prefix"
    key_tokens: int = 256

    def costs(
        self,
        waiting: Waiting,
        cluster: ClusterState,
        usable: NDArray[np.bool_],
        now: float,
        rng: np.random.Generator,
    ) -> Array:
        key = self.key_of(waiting, cluster.prefix.block_tokens)
        draws = np.array([_uniform(key, state.id) for state in cluster.states])
        distance = -np.log(draws) / cluster.speeds  # exponential with rate = speed: the least is drawn by speed
        rank = np.empty(usable.size)
        rank[np.argsort(distance)] = np.arange(usable.size)
        share = np.where(usable, cluster.speeds, 0.0)
        calls = outstanding(cluster)
        most = np.ceil(self.bound * (calls[usable].sum() + 1) * share / share.sum())
        return np.where(calls + 1 <= most, rank, usable.size + rank)

    def key_of(self, waiting: Waiting, block_tokens: int) -> str:
        """What is hashed; calls without prefix blocks go by their workflow."""
        blocks = waiting.call.prefix_blocks
        if self.key == "workflow" or not blocks:
            return waiting.call.workflow
        count = min(max(self.key_tokens // block_tokens, 1), len(blocks))
        return str(blocks[count - 1])  # a block's hash covers the blocks before it


def _uniform(key: str, replica: str) -> float:
    digest = blake2b(f"{key}\0{replica}".encode(), digest_size=8).digest()
    return math.ldexp(int.from_bytes(digest, "little") + 0.5, -64)
