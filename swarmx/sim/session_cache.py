"""A prefix cache that knows whose blocks it holds: eviction by session, held over the tool calls of its workflow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from swarmx.inferred_graph import MOST_TTL_S
from swarmx.sim.cluster import ReplicaSpec
from swarmx.sim.prefix_cache import NO_HINT, Hint, PrefixCache

WORKFLOW_AWARE = (0.3, 0.5, 0.2)  # recency, chance of not being used again, size (SAGA)
RECENCY_ALONE = (1.0, 0.0, 0.0)
CALM, FULL = 0.7, 0.9  # memory in use below which a hold is not shortened, and above which it is halved


@dataclass(slots=True)
class _Session:
    """Idle blocks of one workflow, the first to be forgotten first. until_s : when it stops being held"""

    last_s: float = 0.0
    reuse: float = 1.0
    until_s: float = -inf
    blocks: OrderedDict[int, None] = field(default_factory=OrderedDict)


class SessionCache(PrefixCache):
    """Forgets the session with the largest sum of weights * (idle time, 1 - chance of reuse, size), each over the
    largest such value here; of a session the end of its context first.

    holds : a session that waits for a tool is held for min(P95 of that tool's time * (1 - m / 2), 300 s), m rising from
        0 to 1 as memory use goes from 0.7 to 0.9; held sessions go only when nothing else is left
    After SAGA's WA-LRU and tool-call TTL (arXiv 2605.00528).
    """

    def __init__(
        self, block_tokens: int, capacity_tokens: int, weights: tuple[float, float, float], holds: bool
    ) -> None:
        super().__init__(block_tokens)
        self.capacity_tokens = capacity_tokens
        self.weights = weights
        self.holds = holds
        self._sessions: dict[str, _Session] = {}
        self._owner: dict[int, str] = {}  # idle block -> session

    def leave(self, blocks: Sequence[int], answer: Sequence[int], hint: Hint = NO_HINT) -> None:
        super().leave(blocks, answer, hint)
        mine = [block for block in (*reversed(answer), *reversed(blocks)) if block in self._idle]
        for block in mine:
            self._disown(block)
        if not mine:
            return
        session = self._sessions.setdefault(hint.session, _Session())
        session.last_s, session.reuse = hint.now, hint.reuse
        if self.holds and hint.reuse > 0:
            pressure = (self.used_share - CALM) / (FULL - CALM)
            hold_s = min(hint.pause_s * (1 - min(max(pressure, 0.0), 1.0) / 2), MOST_TTL_S)
            session.until_s = hint.now + hold_s
        for block in mine:
            self._owner[block] = hint.session
            session.blocks[block] = None

    @property
    def used_share(self) -> float:
        """Of the memory that blocks, used and idle, take."""
        return (len(self._used) + len(self._idle)) * self.block_tokens / self.capacity_tokens

    def acquire(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._disown(block)
        super().acquire(blocks)

    def shrink(self, room_tokens: float, now: float = 0.0) -> None:
        while self._idle and len(self._idle) * self.block_tokens > room_tokens:
            session = self._sessions[self._worst(now)]
            while session.blocks and len(self._idle) * self.block_tokens > room_tokens:
                block = next(iter(session.blocks))
                self._disown(block)
                del self._idle[block]

    def clear(self) -> None:
        super().clear()
        self._sessions.clear()
        self._owner.clear()

    def _worst(self, now: float) -> str:
        oldest = max(max(now - s.last_s for s in self._sessions.values()), 1e-9)
        largest = max(len(s.blocks) for s in self._sessions.values())
        recency, chance, size = self.weights

        def score(name: str) -> tuple[bool, float]:
            s = self._sessions[name]
            value = recency * (now - s.last_s) / oldest + chance * (1 - s.reuse) + size * len(s.blocks) / largest
            return now >= s.until_s, value

        return max(self._sessions, key=score)

    def _disown(self, block: int) -> None:
        owner = self._owner.pop(block, None)
        if owner is not None:
            blocks = self._sessions[owner].blocks
            del blocks[block]
            if not blocks:
                del self._sessions[owner]


def cache_of(spec: ReplicaSpec) -> PrefixCache:
    """The cache that the replica is configured to have."""
    if spec.evicts == "lru" and not spec.holds_sessions:
        return PrefixCache(spec.block_tokens)
    weights = WORKFLOW_AWARE if spec.evicts == "wa_lru" else RECENCY_ALONE
    return SessionCache(spec.block_tokens, spec.kv_capacity_tokens, weights, spec.holds_sessions)
