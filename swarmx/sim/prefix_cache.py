"""Prompt blocks in an engine's KV memory: shared by the calls that use them, kept after that until room is needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hint:
    """What is known of a session when one of its calls leaves.

    reuse : chance that the next call uses what is left here, in [0, 1]; pause_s : time until then, its 95th percentile
    """

    session: str = ""
    now: float = 0.0
    reuse: float = 1.0
    pause_s: float = 0.0


NO_HINT = Hint()


class PrefixCache:
    """Blocks by hash: `used` by running calls (counted), or idle in least-recently-used order."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._used: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def used_tokens(self) -> int:
        return len(self._used) * self.block_tokens

    def present(self, blocks: Sequence[int]) -> tuple[int, int]:
        """(leading blocks that are here, how many of those are idle and would take room when used)."""
        here = idle = 0
        for block in blocks:
            if block not in self._used:
                if block not in self._idle:
                    break
                idle += 1
            here += 1
        return here, idle

    def acquire(self, blocks: Sequence[int]) -> None:
        """Use these blocks; those not here are from now on."""
        for block in blocks:
            self._idle.pop(block, None)
            self._used[block] = self._used.get(block, 0) + 1

    def release(self, blocks: Sequence[int]) -> None:
        """Stop using them. The end of a prompt is forgotten before its beginning, which more prompts share."""
        for block in reversed(blocks):
            count = self._used[block] - 1
            if count:
                self._used[block] = count
            else:
                del self._used[block]
                self._idle[block] = None

    def keep(self, blocks: Sequence[int]) -> None:
        """Blocks that an answer completed: here and idle, if not used anyway."""
        for block in reversed(blocks):
            if block not in self._used:
                self._idle[block] = None
                self._idle.move_to_end(block)

    def leave(self, blocks: Sequence[int], answer: Sequence[int], hint: Hint = NO_HINT) -> None:
        """A call stops using its prompt's blocks and leaves those of its answer, which are forgotten before them."""
        self.keep(answer)
        self.release(blocks)

    def shrink(self, room_tokens: float, now: float = 0.0) -> None:
        """Forget the longest idle blocks until the idle ones fit into `room_tokens`."""
        while self._idle and len(self._idle) * self.block_tokens > room_tokens:
            self._idle.popitem(last=False)

    def clear(self) -> None:
        self._used.clear()
        self._idle.clear()
