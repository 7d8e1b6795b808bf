"""Which replica holds which prompt prefix, from what was sent there: an approximation of engine prefix caches.

A prompt is a chain of blocks; a block's hash covers the blocks before it, so equal hashes mean equal prefixes. Each
replica keeps as many as its KV memory holds: those of running calls, and the others until room is needed, those whose
call ended longest ago going first, and of one prompt its end before its beginning, as in the engines.
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
        self._idle: list[OrderedDict[int, None]] = []  # per replica: blocks that no running call uses, by age
        self._capacity: list[int] = []

    def set_replicas(self, old: Sequence[int | None], kv_tokens: Iterable[float]) -> None:
        """The replicas are now these: `old[i]` is the former index of replica i, None when it is new."""
        kept = len(self._idle)
        stay = list(old[:kept]) == list(range(kept)) and all(j is None for j in old[kept:])
        self._idle = [OrderedDict() if j is None else self._idle[j] for j in old]
        self._counts = [{} if j is None else self._counts[j] for j in old]
        self._capacity = [max(1, min(int(kv // self.block_tokens), self.most_blocks)) for kv in kv_tokens]
        if stay:  # the bits mean what they meant; a new replica holds nothing
            return
        self._holders, self._running = {}, {}
        for i, (idle, counts) in enumerate(zip(self._idle, self._counts, strict=True)):
            for block in (*idle, *counts):
                self._holders[block] = self._holders.get(block, 0) | (1 << i)
            for block in counts:
                self._running[block] = self._running.get(block, 0) | (1 << i)

    def cached(self, blocks: Sequence[int]) -> Array:
        """(R,) leading prompt tokens that each replica holds."""
        return self._depth(blocks, self._holders)

    def live(self, blocks: Sequence[int]) -> Array:
        """(R,) leading prompt tokens that calls running on each replica hold now: they cost no further KV."""
        return self._depth(blocks, self._running)

    def _depth(self, blocks: Sequence[int], sets: dict[int, int]) -> Array:
        out = np.zeros(len(self._idle))
        if not blocks:
            return out
        get = sets.get
        alive = get(blocks[0], 0)
        for depth, block in enumerate(blocks):
            following = alive & get(block, 0)
            if following != alive:
                self._note(out, alive & ~following, depth)
                alive = following
            if not alive:
                return out
        self._note(out, alive, len(blocks))
        return out

    def _note(self, out: Array, replicas: int, depth: int) -> None:
        """These replicas, a bit set, hold so many blocks."""
        while replicas:
            low = replicas & -replicas
            out[low.bit_length() - 1] = depth * self.block_tokens
            replicas ^= low

    def start(self, i: int, blocks: Sequence[int]) -> int:
        """A call with these blocks starts on replica i; returns how many of them it held already."""
        idle, counts, bit = self._idle[i], self._counts[i], 1 << i
        new = 0
        for block in blocks:
            before = counts.get(block, 0)
            counts[block] = before + 1
            if not before:
                self._running[block] = self._running.get(block, 0) | bit
                if block in idle:
                    del idle[block]
                else:
                    self._holders[block] = self._holders.get(block, 0) | bit
                    new += 1
        surplus = len(idle) + len(counts) - self._capacity[i]
        while surplus > 0 and idle:
            _clear(self._holders, idle.popitem(last=False)[0], bit)
            surplus -= 1
        return len(blocks) - new

    def end(self, i: int, blocks: Sequence[int], keep: int | None = None) -> None:
        """The call has ended there and the first `keep` of its blocks stay; None: all.

        Where it was refused or failed early the others never came to be.
        """
        idle, counts, bit = self._idle[i], self._counts[i], 1 << i
        place = len(blocks)
        for block in reversed(blocks):
            place -= 1
            before = counts.pop(block, 0)
            if before > 1:
                counts[block] = before - 1
                continue
            _clear(self._running, block, bit)
            if keep is None or place < keep:
                idle[block] = None
            else:
                idle.pop(block, None)
                _clear(self._holders, block, bit)


def _clear(sets: dict[int, int], block: int, bit: int) -> None:
    left = sets.pop(block, 0) & ~bit
    if left:
        sets[block] = left
