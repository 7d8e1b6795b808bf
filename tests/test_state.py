"""The book tells the service model what went on at a replica while each call ran."""

from __future__ import annotations

import pytest

from swarmx.engine import OnlineFit, Segment
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.state import ClusterState
from swarmx.types import Call, ReplicaState
from swarmx.waiting import lengths_of

LENGTHS = lengths_of(QuantileGrid(LEVELS, LEVELS * 100.0), None)


class Seen(OnlineFit):
    """A service model that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.segments: list[Segment] = []

    def observe(self, replica: str, segment: Segment) -> None:
        self.segments.append(segment)


def prefilled(streamed: bool, slots: int = 2) -> list[float]:
    """Prompt tokens prefilled while each of two overlapping calls ran; the second ends after the first."""
    fit = Seen()
    cluster = ClusterState(fit)
    cluster.set_replicas([ReplicaState("r", "m", slots=slots)], 0.0)
    for number, (prompt, now) in enumerate(((100, 0.0), (1000, 1.0))):
        cluster.start(Call(f"c{number}", "m", now, prompt_tokens=prompt, streamed=streamed), LENGTHS, 0, now)
    cluster.finish("c0", 50, 2.5)
    cluster.finish("c1", 50, 4.0)
    return [segment.prefilled for segment in fit.segments]


def test_the_prefill_of_a_call_of_which_only_the_end_is_seen_counts_while_others_run() -> None:
    assert prefilled(streamed=False) == pytest.approx([1100.0, 1000.0])


def test_the_prefill_of_a_stream_counts_when_its_first_token_or_its_end_is_seen() -> None:
    assert prefilled(streamed=True) == pytest.approx([100.0, 1100.0])


def test_a_call_that_had_to_queue_has_its_prefill_later() -> None:
    assert prefilled(streamed=False, slots=1) == pytest.approx([100.0])  # and of the second nothing is learned
