"""The reservoir: bounded, recent, every group and the tails in it, honest about what each example stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmx.adapt.example import Example
from swarmx.adapt.packing import pack, unpack
from swarmx.adapt.reservoir import Reservoir


def example(seq: int, kind: str = "a", tokens: float = 10.0, embedding: bytes = b"\x00" * 8) -> Example:
    return Example(
        seq, float(seq), "m", kind, "gpu", f"g{seq}", f"t{seq}", embedding, b"\x00" * 4, b"", tokens, kind=kind
    )


def fed(rows: int, total: int, seed: int = 0, half_life: float = 1e9, rare: int = 50) -> Reservoir:
    """Log-normal lengths; every `rare`-th call is of type "b"."""
    rng = np.random.default_rng(1)
    reservoir = Reservoir(rows=rows, half_life=half_life, seed=seed)
    for seq in range(total):
        reservoir.add(example(seq, "b" if seq % rare == 0 else "a", float(rng.lognormal(4, 1))))
    return reservoir


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 40), limit=st.integers(400, 20_000), total=st.integers(0, 120))
def test_it_never_holds_more_than_it_may(rows: int, limit: int, total: int) -> None:
    reservoir = Reservoir(rows=rows, limit_bytes=limit)
    for seq in range(total):
        reservoir.add(example(seq, f"k{seq % 3}"))
        assert len(reservoir) <= rows
        assert reservoir.used_bytes <= limit
    kept, weights = reservoir.draw()
    assert len(kept) == len(weights) == len(reservoir)
    assert reservoir.used_bytes == sum(one.size_bytes for one in kept)


def test_a_rare_group_is_kept_whole_and_the_tail_beyond_its_share() -> None:
    kept, _ = fed(600, 5000).draw()
    assert sum(one.type == "b" for one in kept) == 100
    body = [one.tokens for one in kept if one.type == "a"]
    assert np.mean(np.array(body) > np.exp(4 + 1.2816)) > 0.2  # a tenth of the stream lies there


def test_the_weights_give_back_the_streams_distribution() -> None:
    """Weighted share of long calls and of the rare type; 3 binomial deviations of 1,000 kept examples."""
    kept, weights = fed(1000, 10_000).draw()
    assert weights.mean() == pytest.approx(1.0)
    own = np.array([one.type == "a" for one in kept])
    long = np.array([one.tokens for one in kept])[own] > np.exp(4 + 1.2816)
    assert np.average(long, weights=weights[own]) == pytest.approx(0.1, abs=0.03)
    assert np.average(~own, weights=weights) == pytest.approx(0.02, abs=0.005)


def test_old_calls_make_room_for_recent_ones() -> None:
    kept, _ = fed(500, 6000, half_life=500).draw()
    body = [one.seq for one in kept if one.type == "a"]
    assert np.mean(body) > 4500
    assert min(body) < np.mean(body) - 300  # by weight, not a plain window


def test_the_same_seed_keeps_the_same_calls() -> None:
    assert fed(200, 3000, seed=4).draw()[0] == fed(200, 3000, seed=4).draw()[0]
    assert fed(200, 3000, seed=4).draw()[0] != fed(200, 3000, seed=5).draw()[0]


def test_a_record_without_text_teaches_nothing() -> None:
    reservoir = Reservoir()
    reservoir.add(example(0, embedding=b""))
    assert len(reservoir) == 0


def test_a_restored_reservoir_stands_for_the_same_calls() -> None:
    one = fed(300, 4000)
    other = Reservoir(rows=300, half_life=1e9)
    other.restore(*one.snapshot())
    assert {e.seq for e in other.draw()[0]} == {e.seq for e in one.draw()[0]}
    assert other.draw()[1].sum() == pytest.approx(one.draw()[1].sum())
    rare = [w for e, w in zip(*other.draw(), strict=True) if e.type == "b"]
    assert rare == pytest.approx([w for e, w in zip(*one.draw(), strict=True) if e.type == "b"])


def test_packed_examples_come_back_as_they_were() -> None:
    examples = fed(50, 400).draw()[0]
    assert unpack(pack(examples)) == examples
    assert unpack(pack([])) == []
