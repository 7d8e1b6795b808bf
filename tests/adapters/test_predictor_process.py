"""A predictor in a process of its own says what it would say here, also while that is starting, dead or stuck."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE_S, wait_until

from swarmx.adapters import predictor_process
from swarmx.adapters.adaptation import AdaptationSettings, Adapting
from swarmx.adapters.predicting import Forecaster, Told, load_predictor
from swarmx.adapters.predictor_process import PredictorProcess
from swarmx.errors import BadInput
from swarmx.predict.bundle import shipped
from swarmx.predict.runtime import Predictor
from swarmx.types import Call, Prediction

CALLS = [Call(str(i), "smollm2-135m-instruct", 0.0, f"Name {i} rivers.", max_tokens=40 + i) for i in range(20)]
UNTOLD = Told(lambda: None, lambda calls: None)


@pytest.fixture(scope="module")
def here() -> Predictor:
    return Predictor.load(shipped())


@pytest.fixture
def there(here: Predictor, monkeypatch: pytest.MonkeyPatch) -> Iterator[PredictorProcess]:
    monkeypatch.setattr(predictor_process, "AGAIN_S", 0.0)
    monkeypatch.setattr(predictor_process, "HANGS_S", 2.0)
    process = PredictorProcess(here, shipped())
    yield process
    process.close()


def asked_until_beside(process: PredictorProcess) -> None:
    wait_until(lambda: bool(process.predict(CALLS[:1])) and process.beside)


def same(found: list[Prediction], wanted: list[Prediction]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert replace(one, tokens=other.tokens, remaining_tokens=None, downstream={}) == replace(
            other, remaining_tokens=None, downstream={}
        )
        np.testing.assert_allclose(one.tokens.values, other.tokens.values, rtol=1e-5)


def test_it_says_the_same_from_its_first_moment_on(here: Predictor, there: PredictorProcess) -> None:
    wanted = here.predict(CALLS)
    assert not there.beside
    same(there.predict(CALLS), wanted)  # it is still starting
    asked_until_beside(there)
    same(there.predict(CALLS), wanted)
    same(there.fallback_for(CALLS), here.fallback_for(CALLS))
    odd = Call("x", "m", 0.0, prompt=7, max_tokens="many")  # type: ignore[arg-type]
    same(there.predict([odd]), here.predict([odd]))
    deep: object = "x"
    for _ in range(800):
        deep = [deep]
    odd = replace(CALLS[0], prompt=({"role": "user", "content": deep},))
    same(there.predict([*CALLS, odd]), here.predict([*CALLS, odd]))
    assert there.beside


@pytest.mark.fault
@pytest.mark.parametrize("calls", [CALLS, [replace(CALLS[0], prompt="a long one " * 200_000)]], ids=["short", "long"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_child_that_dies_or_hangs_is_replaced_and_no_call_goes_without(
    how: signal.Signals, calls: list[Call], here: Predictor, there: PredictorProcess
) -> None:
    asked_until_beside(there)
    first = there._child
    assert first is not None
    os.kill(first.pid, how)
    same(there.predict(calls), here.predict(calls))
    assert first.poll() is not None and not there.beside
    asked_until_beside(there)
    assert there._child is not first


@pytest.mark.fault
def test_it_ends_with_its_parent() -> None:
    program = (
        "import os; from swarmx.adapters.predicting import load_predictor; from swarmx.predict.bundle import shipped;"
        "process = load_predictor(shipped(), True); print(process._child.pid, flush=True); os._exit(9)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 9, ended.stderr
    child = Path("/proc") / ended.stdout.strip()
    wait_until(lambda: not child.exists() or "\nState:\tZ" in (child / "status").read_text())


def test_what_lies_in_the_working_directory_is_not_run(
    tmp_path: Path, here: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "random", "typing", "numpy", "swarmx"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not meant to be run')")
    monkeypatch.chdir(tmp_path)
    process = PredictorProcess(here, shipped())
    try:
        asked_until_beside(process)
    finally:
        process.close()


@pytest.mark.fault
def test_without_descriptors_for_another_child_it_predicts_here(here: Predictor, there: PredictorProcess) -> None:
    asked_until_beside(there)
    assert there._child is not None
    there._child.kill()
    there._child.wait()
    lowest = os.dup(0)
    os.close(lowest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))  # the line that is closed leaves one, a pair needs two
    try:
        for _ in range(2):
            same(there.predict(CALLS), here.predict(CALLS))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    asked_until_beside(there)


def test_closed_it_predicts_here(here: Predictor, there: PredictorProcess) -> None:
    asked_until_beside(there)
    child = there._child
    there.close()
    assert child is not None and child.returncode is not None and not there.beside  # a busy machine may have to kill it
    same(there.predict(CALLS), here.predict(CALLS))


def test_no_model_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="manifest"):
        load_predictor(tmp_path, True)


def test_a_child_that_found_another_version_is_not_asked(
    here: Predictor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(shipped(), tmp_path / "model")
    older = Predictor.load(tmp_path / "model")
    older.version = "before"
    process = PredictorProcess(older, tmp_path / "model")
    wait_until(lambda: bool(process.predict(CALLS[:1])) and "found version" in caplog.text)
    assert not process.beside
    process.close()


def test_a_new_model_has_a_process_of_its_own_and_the_old_one_ends(tmp_path: Path) -> None:
    async def run() -> None:
        model = tmp_path / "model"
        shutil.copytree(shipped(), model)
        forecast = Forecaster(load_predictor(model, True), 2.0, UNTOLD)
        old = forecast.predictor
        assert isinstance(old, PredictorProcess) and await forecast(CALLS[0]) is not None
        task = asyncio.create_task(forecast.watch(model, True, every_s=0.02))
        await asyncio.sleep(0.1)
        fresh = tmp_path / "fresh"
        shutil.copytree(shipped(), fresh)
        (fresh / "manifest.json").replace(model / "manifest.json")
        async with asyncio.timeout(PATIENCE_S):
            while forecast.swaps == 0:
                await asyncio.sleep(0.02)
        new = forecast.predictor
        assert isinstance(new, PredictorProcess) and new is not old
        assert old._child is None and new._child is not None
        child, said = new._child, await forecast(CALLS[0])
        assert said is not None and said.source == "neural"
        task.cancel()
        await asyncio.to_thread(forecast.close)
        assert child.poll() is not None

    asyncio.run(run())


def test_a_model_in_office_predicts_in_its_process() -> None:
    adapting = Adapting.open(AdaptationSettings(kind="tail_loss"), shipped(), own_process=True)
    process = adapting.office.predicts
    assert isinstance(process, PredictorProcess)
    wait_until(lambda: adapting.predict(CALLS[:1])[0].source == "neural" and process.beside)
    adapting.close()
    assert process._child is None
