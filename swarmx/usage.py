"""What went on at a replica over time: the sums from which segments for the service model are cut."""

from __future__ import annotations

from dataclasses import dataclass

from swarmx.engine import Segment

Marks = tuple[float, float, float]


@dataclass(slots=True)
class Usage:
    """Integrals over time of one replica: running calls, KV tokens, and prompt tokens prefilled.

    need : KV tokens that our calls there are expected to hold on average, now
    heard_s : when the replica last showed a sign of life
    """

    since_s: float
    batch: float = 0.0
    kv: float = 0.0
    prefilled: float = 0.0
    need: float = 0.0
    heard_s: float = 0.0

    def advance(self, now: float, running: float, kv_tokens: float) -> None:
        """Add the time since the last call, during which that many calls ran and KV tokens were held."""
        elapsed = now - self.since_s
        if elapsed > 0:
            self.batch += elapsed * running
            self.kv += elapsed * kv_tokens
            self.since_s = now

    def marks(self) -> Marks:
        return self.batch, self.kv, self.prefilled

    def segment(self, since: Marks, seconds: float, tokens: float) -> Segment:
        """The stretch from the marks to now, in which a call produced that many tokens."""
        return Segment(
            seconds,
            tokens,
            (self.batch - since[0]) / seconds,
            (self.kv - since[1]) / seconds,
            self.prefilled - since[2],
        )


@dataclass(slots=True)
class Flight:
    """What the book remembers of one call in flight; its numbers for the kernels are in row `row`.

    uncached : prompt tokens whose prefill counts when its first token, or else its end, is seen
    held : blocks of its prompt that were there before it
    queued : the replica had no free slot when the call was sent; decoding : its first token was seen
    seen_* : last observation of the call, and the replica's sums at that time
    """

    call_id: str
    replica: str
    row: int
    started_s: float
    uncached: float
    need: float
    queued: bool
    seen_s: float
    seen_marks: Marks
    blocks: tuple[int, ...] = ()
    held: int = 0
    seen_tokens: float = 0.0
    decoding: bool = False
