"""The loop notices a shift, retrains, promotes what is proven better, sends back what is worse, and survives a store
that is gone. Models, registry and training are real; only their size is small."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from adapt_stream import stream

from swarmx.adapt.contest import Contest, Probation
from swarmx.adapt.events import LoopConfig, Outcome, Rival
from swarmx.adapt.loop import AdaptationLoop
from swarmx.adapt.model import StoredModel
from swarmx.adapt.registry import DirectoryRegistry
from swarmx.adapt.retrain import Plan
from swarmx.adapt.state import restore, save
from swarmx.adapt.worker import InlineWorker
from swarmx.errors import BadInput
from swarmx.types import CallRecord

SMALL = LoopConfig(plan=Plan(landmarks=32, count_landmarks=16, hidden=16, batch=128, epochs=4), first=150, window=100)
Make = Callable[..., AdaptationLoop]


@pytest.fixture
def make(tmp_path: Path, first_model: Path) -> Make:
    def made(config: LoopConfig = SMALL) -> AdaptationLoop:
        registry = DirectoryRegistry(tmp_path / "registry")
        version = registry.get("champion") if registry.root.exists() else None
        if version is None:
            version = registry.add(first_model, {"reason": "first"})
            registry.set("champion", version, {"reason": "first"})
        champion = StoredModel.load(registry.path(version))
        return AdaptationLoop(champion, InlineWorker(tmp_path / "work"), registry, StoredModel.load, config)

    return made


def feed(loop: AdaptationLoop, records: list[CallRecord], batch: int = 16) -> list[Outcome]:
    return [o for at in range(0, len(records), batch) for o in loop.observe(records[at : at + batch])]


def kinds(loop: AdaptationLoop) -> list[str]:
    return [event.kind for event in loop.events]


@pytest.mark.slow
def test_a_doubling_is_noticed_learned_and_promoted_and_the_loss_recovered(make: Make) -> None:
    loop = make()
    before = feed(loop, stream(400, seed=1))
    assert kinds(loop) == []
    shifted = stream(1000, seed=2, factor=2.0, first=400)
    frozen = loop.champion.tokens(loop.champion.read(shifted, 0))
    after = feed(loop, shifted)
    first_alarm = next(event for event in loop.events if event.kind == "alarm")
    assert 400 <= first_alarm.seq < 500
    assert "promoted" in kinds(loop)
    assert loop.registry.get("champion") == loop.champion.version != before[0].version
    steady = np.mean([o.served for o in after[700:]]) / 2  # lengths have doubled, so a loss in tokens has
    assert steady == pytest.approx(np.mean([o.served for o in before]), rel=0.25)
    assert np.mean([o.covered[1] for o in after[500:]]) == pytest.approx(0.9, abs=3 * (0.09 / 500) ** 0.5 + 0.02)
    assert np.mean([o.raw for o in after[700:]]) < np.mean([o.raw for o in after[:150]])
    assert frozen.shape == (1000, 16)


def test_a_stationary_stream_changes_nothing(make: Make) -> None:
    loop = make()
    feed(loop, stream(600, seed=3))
    assert kinds(loop) == []
    assert len(loop.reservoir) == 600


def test_a_challenger_that_somebody_puts_up_is_tried_and_rejected_when_worse(make: Make, second_model: Path) -> None:
    """It expects twice the lengths that come."""
    loop = make()
    version = loop.registry.add(second_model, {})
    loop.registry.set("challenger", version, {})
    loop.sync()
    assert isinstance(loop.rival, Rival)
    feed(loop, stream(400, seed=4))
    assert kinds(loop)[:2] == ["challenger", "rejected"]
    assert loop.registry.get("challenger") is None
    assert loop.registry.get("champion") == loop.champion.version != version


def test_a_worse_champion_is_rolled_back_within_its_first_window(make: Make, second_model: Path) -> None:
    loop = make()
    former = loop.champion.version
    version = loop.registry.add(second_model, {})
    loop.rival = Rival(StoredModel.load(loop.registry.path(version)), Contest())
    loop._promoted(loop.rival, {"reason": "a mistake, for the test"})
    assert isinstance(loop.rival.trial, Probation)
    feed(loop, stream(100, seed=4))
    assert "rolled_back" in kinds(loop)
    assert loop.champion.version == former == loop.registry.get("champion")


def test_a_champion_that_somebody_sets_takes_office(make: Make, second_model: Path) -> None:
    loop = make()
    version = loop.registry.add(second_model, {})
    loop.registry.set("champion", version, {})
    loop.sync()
    assert loop.champion.version == version
    assert kinds(loop) == ["champion"]


@pytest.mark.fault
def test_while_the_registry_is_gone_the_champion_goes_on_and_the_step_is_taken_later(
    make: Make, second_model: Path, tmp_path: Path
) -> None:
    loop = make()
    version = loop.registry.add(second_model, {})
    loop.registry.set("challenger", version, {})
    loop.sync()
    shutil.move(tmp_path / "registry", tmp_path / "away")
    (tmp_path / "registry").write_text("not a directory")
    outcomes = feed(loop, stream(300, seed=4, factor=2.0))
    assert {o.version for o in outcomes} == {loop.champion.version} != {version}
    assert "registry" in kinds(loop)
    (tmp_path / "registry").unlink()
    shutil.move(tmp_path / "away", tmp_path / "registry")
    feed(loop, stream(100, seed=5, factor=2.0, first=300))
    assert loop.registry.get("champion") == version


def test_a_new_target_model_calls_for_an_encoder(make: Make) -> None:
    from dataclasses import replace

    loop = make()
    feed(loop, [replace(record, model="m2") for record in stream(160, seed=6)])
    event = next(event for event in loop.events if event.kind == "encoder")
    assert "'m2' is new" in event.detail["reason"]


def test_a_saved_loop_goes_on_where_it_was(make: Make, second_model: Path, tmp_path: Path) -> None:
    loop = make()
    loop.registry.set("challenger", loop.registry.add(second_model, {}), {})
    loop.sync()
    feed(loop, stream(48, seed=7, noise=0.9))
    assert loop.rival is not None
    save(loop, tmp_path / "state.npz", {"offsets": {"a": 3}})
    other = make()
    assert restore(other, tmp_path / "state.npz") == {"offsets": {"a": 3}}
    assert other.seq == loop.seq
    assert other.rival is not None
    assert other.rival.model.version == loop.rival.model.version
    assert other.rival.trial.report() == loop.rival.trial.report()
    assert [e.seq for e in other.reservoir.draw()[0]] == [e.seq for e in loop.reservoir.draw()[0]]
    assert list(other.events) == list(loop.events)
    feed(other, stream(400, seed=8, first=48))
    assert "rejected" in kinds(other)


def test_a_state_that_is_none_is_named(make: Make, tmp_path: Path) -> None:
    assert restore(make(), tmp_path / "absent.npz") == {}
    (tmp_path / "state.npz").write_bytes(b"PK nonsense")
    with pytest.raises(BadInput, match=r"state\.npz is not a usable state"):
        restore(make(), tmp_path / "state.npz")
