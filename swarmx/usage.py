"""What went on at a replica over time: the sums from which segments for the service model are cut."""

from __future__ import annotations

from dataclasses import dataclass

from swarmx.engine import Segment

Marks = tuple[float, float, float]


@dataclass(slots=True)
class Usage:
    """Integrals over time of one replica: running calls, KV tokens, and prompt tokens prefilled."""

    since_s: float
    batch: float = 0.0
    kv: float = 0.0
    prefilled: float = 0.0

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
        return between(since, self.marks(), seconds, tokens)


def between(since: Marks, until: Marks, seconds: float, tokens: float) -> Segment:
    """The stretch between two times, of which these are the marks, in which a call produced that many tokens."""
    return Segment(
        seconds, tokens, (until[0] - since[0]) / seconds, (until[1] - since[1]) / seconds, until[2] - since[2]
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

    def see(self, now: float, tokens: float, marks: Marks) -> None:
        """The call has been observed with so many tokens."""
        self.seen_s, self.seen_tokens, self.seen_marks = now, tokens, marks
