"""Killed at any point: the retraining, the trainer, whoever started it, the store. The champion stays in office,
nothing half-written is ever read, and the next start goes on. The processes and files here are real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from adapt_stream import stream
from patience import wait_until

from swarmx.adapt.events import LoopConfig
from swarmx.adapt.loop import AdaptationLoop
from swarmx.adapt.model import StoredModel
from swarmx.adapt.registry import DirectoryRegistry, Registry, open_registry
from swarmx.adapt.retrain import Plan
from swarmx.adapt.worker import ProcessWorker
from swarmx.predict.bundle import read_manifest, write_manifest

pytestmark = [pytest.mark.fault, pytest.mark.slow]
SMALL = LoopConfig(plan=Plan(landmarks=32, count_landmarks=16, hidden=16, batch=128, epochs=2), first=100, pause=200)

# Every fork dies like by SIGKILL, without clean-up, just before its n-th change of a file; then another one goes on.
SWEEP = """
import os, sys
from pathlib import Path

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod"}

def forked(work, dies_at):
    pid = os.fork()
    if pid == 0:
        seen = 0
        def hook(event, args):
            nonlocal seen
            if event in CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & WRITES):
                seen += 1
                if seen == dies_at:
                    os._exit(9)
        sys.addaudithook(hook)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def sweep(begin, work, check):
    for dies_at in range(1, 1000):
        begin()
        code = forked(work, dies_at)
        assert code in (0, 9), f"failed by itself at {dies_at}"
        check(False)
        if code == 0:
            print(dies_at - 1)
            return
        assert forked(work, 0) == 0, f"cannot go on after dying at {dies_at}"
        check(True)
"""

PROMOTION = """
import shutil
from swarmx.adapt.registry import DirectoryRegistry
from swarmx.predict.bundle import read_manifest

place, first, second = map(Path, sys.argv[1:4])
old, new = (read_manifest(path)["version"] for path in (first, second))

def begin():
    shutil.rmtree(place, ignore_errors=True)
    (place / "versions").mkdir(parents=True)
    registry = DirectoryRegistry(place)
    registry.set("champion", registry.add(first, {}), {"reason": "first"})

def work():
    registry = DirectoryRegistry(place)
    registry.set("challenger", registry.add(second, {}), {"reason": "retrained"})
    registry.set("champion", new, {"reason": "better"})
    registry.set("challenger", None, {"reason": "promoted"})

def check(again):
    registry = DirectoryRegistry(place)
    champion, challenger = registry.get("champion"), registry.get("challenger")
    assert champion == new if again else champion in (old, new), champion
    for version in {champion, challenger, *registry.versions()} - {None}:
        read_manifest(registry.path(version))
    assert {row["event"] for row in registry.history()} >= {"added", "champion"}

sweep(begin, work, check)
"""


def swept(script: str, *arguments: Path) -> int:
    """Points at which it was killed."""
    command = [sys.executable, "-c", SWEEP + script, *map(str, arguments)]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | threads, check=False)
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


def small_model(path: Path, weight: str) -> Path:
    path.mkdir()
    (path / "heads.onnx").write_text(weight * 1000)
    (path / "drift.json").write_text("{}")
    write_manifest(path, {"weight": weight})
    return path


def test_a_promotion_that_is_killed_at_any_change_of_a_file_leaves_a_whole_registry(tmp_path: Path) -> None:
    models = small_model(tmp_path / "first", "1"), small_model(tmp_path / "second", "2")
    assert swept(PROMOTION, tmp_path / "registry", *models) > 15


def made(registry: Registry, first: Path, place: Path) -> AdaptationLoop:
    version = registry.get("champion") or registry.add(first, {"reason": "first"})
    registry.set("champion", version, {"reason": "first"})
    worker = ProcessWorker(place)
    return AdaptationLoop(StoredModel.load(registry.path(version)), worker, registry, StoredModel.load, SMALL)


def feed(loop: AdaptationLoop, rows: int, seed: int, factor: float = 1.0) -> None:
    records = stream(rows, seed=seed, factor=factor, first=loop.seq)
    for at in range(0, rows, 16):
        loop.observe(records[at : at + 16])


def kinds(loop: AdaptationLoop) -> list[str]:
    return [event.kind for event in loop.events]


def test_a_killed_retraining_is_told_and_the_next_one_is_promoted(first_model: Path, tmp_path: Path) -> None:
    loop = made(open_registry(str(tmp_path / "models")), first_model, tmp_path / "work")
    first = loop.champion.version
    feed(loop, 48, seed=1)
    feed(loop, 300, seed=2, factor=2.0)
    assert isinstance(loop.worker, ProcessWorker)
    assert loop.worker.process is not None
    os.kill(loop.worker.process.pid, signal.SIGKILL)
    loop.worker.process.wait()
    feed(loop, 16, seed=3, factor=2.0)
    assert kinds(loop)[-1] == "failed"
    assert "killed by SIGKILL" in loop.events[-1].detail["reason"]
    assert loop.champion.version == first == loop.registry.get("champion")
    feed(loop, 400, seed=4, factor=2.0)  # twice the pause after one in vain
    assert loop.training
    wait_until(lambda: loop.poll() or not loop.training)
    feed(loop, 400, seed=5, factor=2.0)
    assert "promoted" in kinds(loop)
    assert loop.registry.get("champion") == loop.champion.version != first


RETRAINS = """
import sys, time
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[3])
from adapt_stream import stream
from swarmx.adapt.model import StoredModel
from swarmx.adapt.retrain import Job
from swarmx.adapt.worker import ProcessWorker

model = StoredModel.load(Path(sys.argv[1]))
examples = [one.example for one in model.read(stream(2000), 0)]
worker = ProcessWorker(Path(sys.argv[2]))
worker.start(Job(examples, np.ones(len(examples)), model.directory))
print(worker.process.pid, flush=True)
time.sleep(600)
"""


def test_a_retraining_ends_when_whoever_started_it_is_killed(first_model: Path, tmp_path: Path) -> None:
    arguments = [str(first_model), str(tmp_path / "work"), str(Path(__file__).parent)]
    with subprocess.Popen([sys.executable, "-c", RETRAINS, *arguments], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(1.0)  # into its work
        assert Path(f"/proc/{child}").exists()
        parent.kill()
    wait_until(lambda: _ended(child))
    assert not list((tmp_path / "work").glob("*/model"))
    ProcessWorker(tmp_path / "work")  # the next start removes what is left
    assert not (tmp_path / "work").exists()


def _ended(pid: int) -> bool:
    """Gone, or dead and not yet waited for by whoever adopted it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


TRAINS = """
import asyncio, sys
from pathlib import Path
from swarmx.adapters import adaptation
adaptation.RESTART_S = 1.0
settings = adaptation.AdaptationSettings(kind="tail_loss", models=sys.argv[1], trainer="process")
asyncio.run(adaptation.run_trainer(settings, Path(sys.argv[2]), Path(sys.argv[3])))
"""


def test_a_gateways_trainer_is_started_again_and_ends_with_the_gateway(first_model: Path, tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    arguments = [str(tmp_path / "models"), str(tmp_path / "records"), str(first_model)]
    command = [sys.executable, "-c", TRAINS, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        try:
            assert parent.stdout.readline().startswith("following")
            (first,) = _children(parent.pid)
            os.kill(first, signal.SIGKILL)
            assert parent.stdout.readline().startswith("following")
            (second,) = _children(parent.pid)
            assert second != first
        finally:
            parent.kill()
    wait_until(lambda: _ended(second))
    registry = DirectoryRegistry(tmp_path / "models")
    assert read_manifest(registry.path(registry.get("champion") or ""))


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_of_two_trainers_of_one_registry_the_second_is_refused(first_model: Path, tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    command = [sys.executable, "-m", "swarmx.cli", "adapt", "--watch", str(tmp_path / "records")]
    command += ["--models", str(tmp_path / "models"), "--model", str(first_model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as one:
        try:
            assert one.stdout is not None
            assert one.stdout.readline().startswith("following")
            other = subprocess.run(command, capture_output=True, text=True, check=False)
            assert other.returncode == 2
            assert "another trainer" in other.stderr + other.stdout
        finally:
            one.terminate()
        assert one.wait(20) == 0
    assert json.loads((tmp_path / "models" / "adapt-status.json").read_text())["records"] == 0


@pytest.mark.filterwarnings("ignore")  # of mlflow's own migrations
def test_while_an_mlflow_store_is_broken_the_champion_goes_on_and_the_step_is_taken_later(
    first_model: Path, second_model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("mlflow")
    database = tmp_path / "mlflow.db"
    loop = made(open_registry(f"sqlite:///{database}"), first_model, tmp_path / "work")
    first = loop.champion.version
    version = loop.registry.add(second_model, {"reason": "put up by hand"})
    loop.registry.set("challenger", version, {})
    loop.sync()
    shutil.copy(database, tmp_path / "kept.db")
    database.write_bytes(b"no database " * 400)
    feed(loop, 300, seed=4, factor=2.0)
    assert "registry" in kinds(loop)
    assert loop.champion.version == first
    shutil.copy(tmp_path / "kept.db", database)
    feed(loop, 100, seed=5, factor=2.0)
    assert loop.registry.get("champion") == version == loop.champion.version
