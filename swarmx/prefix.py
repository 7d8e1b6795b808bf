"""Which replica holds which prompt prefix, from what was sent there: an approximation of engine prefix caches.

A prompt is a chain of blocks; a block's hash covers the blocks before it, so equal hashes mean equal prefixes. Each
replica's blocks are kept in an LRU of its KV capacity, blocks of running calls never being evicted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def block_hashes(items: Sequence[int] | bytes, block: int) -> tuple[int, ...]:
    """Chained 64-bit hashes of the full blocks of a prompt (token ids or bytes); a partial last block is left out."""
    found: list[int] = []
    seed = b""
    for end in range(block, len(items) + 1, block):
        part = items[end - block : end]
        data = bytes(part) if isinstance(part, bytes) else b"".join(int(t).to_bytes(4, "little") for t in part)
        seed = blake2b(seed + data, digest_size=8).digest()
        found.append(int.from_bytes(seed, "little"))
    return tuple(found)


class PrefixIndex:
    """Blocks per replica, as bit sets of replicas per block: bit i stands for replica i.

    block_tokens : tokens in a block, as the engines have it; most_blocks : bound on the blocks kept per replica
    """

    def __init__(self, block_tokens: int = 64, most_blocks: int = 100_000) -> None:
        self.block_tokens = block_tokens
        self.most_blocks = most_blocks
        self._holders: dict[int, int] = {}
        self._running: dict[int, int] = {}
        self._counts: list[dict[int, int]] = []  # per replica: block -> running calls that use it
        self._recent: list[OrderedDict[int, None]] = []
        self._capacity: list[int] = []

    def set_replicas(self, old: Sequence[int | None], kv_tokens: Iterable[float]) -> None:
        """The replicas are now these: `old[i]` is the former index of replica i, None when it is new."""
        recent = [OrderedDict() if j is None else self._recent[j] for j in old]
        counts = [{} if j is None else self._counts[j] for j in old]
        self._recent, self._counts = recent, counts
        self._capacity = [max(1, min(int(kv // self.block_tokens), self.most_blocks)) for kv in kv_tokens]
        self._holders, self._running = {}, {}
        for i, blocks in enumerate(recent):
            for block in blocks:
                self._holders[block] = self._holders.get(block, 0) | (1 << i)
        for i, running in enumerate(counts):
            for block in running:
                self._running[block] = self._running.get(block, 0) | (1 << i)

    def cached(self, blocks: Sequence[int]) -> Array:
        """(R,) leading prompt tokens that each replica holds."""
        return self._depth(blocks, self._holders)

    def live(self, blocks: Sequence[int]) -> Array:
        """(R,) leading prompt tokens that calls running on each replica hold now: they cost no further KV."""
        return self._depth(blocks, self._running)

    def _depth(self, blocks: Sequence[int], sets: dict[int, int]) -> Array:
        out = np.zeros(len(self._recent))
        if not blocks:
            return out
        alive = sets.get(blocks[0], 0)
        depth = 0
        while alive:
            depth += 1
            following = alive & sets.get(blocks[depth], 0) if depth < len(blocks) else 0
            ended = alive & ~following
            while ended:
                low = ended & -ended
                out[low.bit_length() - 1] = depth * self.block_tokens
                ended ^= low
            alive = following
        return out

    def start(self, i: int, blocks: Sequence[int]) -> None:
        """A call with these blocks starts on replica i."""
        recent, counts, bit = self._recent[i], self._counts[i], 1 << i
        for block in blocks:
            counts[block] = counts.get(block, 0) + 1
            self._running[block] = self._running.get(block, 0) | bit
            recent[block] = None
            recent.move_to_end(block)
            self._holders[block] = self._holders.get(block, 0) | bit
        self._evict(i)

    def end(self, i: int, blocks: Sequence[int], keep: bool = True) -> None:
        """The call has ended there; without `keep` its blocks never came to be (it was refused or failed early)."""
        counts, bit = self._counts[i], 1 << i
        for block in blocks:
            left = counts.get(block, 0) - 1
            if left > 0:
                counts[block] = left
                continue
            counts.pop(block, None)
            _clear(self._running, block, bit)
            if not keep:
                self._recent[i].pop(block, None)
                _clear(self._holders, block, bit)

    def _evict(self, i: int) -> None:
        recent, counts, bit = self._recent[i], self._counts[i], 1 << i
        surplus = len(recent) - self._capacity[i]
        if surplus <= 0:
            return
        for block in [b for b in recent if b not in counts][:surplus]:
            del recent[block]
            _clear(self._holders, block, bit)


def _clear(sets: dict[int, int], block: int, bit: int) -> None:
    left = sets.get(block, 0) & ~bit
    if left:
        sets[block] = left
    else:
        sets.pop(block, None)
