"""The trainer follows what servers write, and goes on after being killed at any point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from adapt_stream import stream

from swarmx.adapt.events import LoopConfig
from swarmx.adapt.records import RecordDirectory
from swarmx.adapt.registry import DirectoryRegistry
from swarmx.adapt.retrain import Plan
from swarmx.adapt.watch import STATE, STATUS, Trainer
from swarmx.adapt.worker import InlineWorker
from swarmx.adapters.gateway.records import line_of
from swarmx.errors import BadInput
from swarmx.logs.table import write_log
from swarmx.predict.bundle import read_manifest
from swarmx.types import CallRecord

SMALL = LoopConfig(plan=Plan(landmarks=32, count_landmarks=16, hidden=16, batch=128, epochs=2), first=100)


def journal(path: Path, records: list[CallRecord], torn: str = "") -> None:
    with path.open("a") as out:
        out.write("".join(line_of(record) for record in records) + torn)


def test_journals_are_read_as_they_grow_and_calls_that_move_into_a_table_only_once(tmp_path: Path) -> None:
    calls = stream(30)
    journal(tmp_path / "calls.jsonl", calls[:10], torn=line_of(calls[10])[:40])
    follower = RecordDirectory(tmp_path)
    assert follower.read() == calls[:10]
    assert follower.read() == []
    with (tmp_path / "calls.jsonl").open("a") as out:
        out.write(line_of(calls[10])[40:])
    assert follower.read() == calls[10:11]
    write_log(calls[:11], tmp_path / "calls-1.parquet")
    (tmp_path / "calls.jsonl").unlink()
    journal(tmp_path / "calls.jsonl", calls[11:15])  # a new journal of the same name, shorter than the old one
    journal(tmp_path / "calls-2-1.jsonl.open", calls[15:20])
    assert follower.read() == calls[11:20]
    (tmp_path / "calls-2-1.jsonl.open").rename(tmp_path / "calls-2-1.jsonl")
    assert follower.read() == []
    again = RecordDirectory(tmp_path).go_to(json.loads(json.dumps(follower.position)))
    journal(tmp_path / "calls.jsonl", calls[20:22])
    assert again.read() == calls[20:22]


def test_rubbish_in_the_directory_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "calls-9.parquet").write_bytes(b"rubbish")
    (tmp_path / "calls.jsonl").write_text('{"half": \nnot json\n[1]\n')
    assert RecordDirectory(tmp_path).read() == []
    assert RecordDirectory(tmp_path / "absent").read() == []


def open_trainer(tmp_path: Path, first: Path | None) -> Trainer:
    registry = DirectoryRegistry(tmp_path / "models")
    worker = InlineWorker(tmp_path / "work")
    return Trainer.open(tmp_path / "records", registry, worker, tmp_path / "models", first, SMALL)


def test_a_trainer_resumes_and_tells_its_state(tmp_path: Path, first_model: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "models").mkdir()
    with pytest.raises(BadInput, match="has no champion"):
        open_trainer(tmp_path, None)
    trainer = open_trainer(tmp_path, first_model)
    journal(tmp_path / "records" / "calls.jsonl", stream(60))
    stop = threading.Event()
    thread = threading.Thread(target=trainer.run, args=(stop,))
    thread.start()
    until = time.monotonic() + 20
    while trainer.loop.seq < 60 and time.monotonic() < until:
        time.sleep(0.05)
    stop.set()
    thread.join(20)
    status = json.loads((tmp_path / "models" / STATUS).read_text())
    assert status["records"] == 60
    assert status["champion"] == read_manifest(first_model)["version"]
    assert status["reservoir"]["examples"] == 60
    other = open_trainer(tmp_path, None)
    assert other.loop.seq == 60
    assert not other.step()
    journal(tmp_path / "records" / "calls.jsonl", stream(5, seed=1, first=60))
    assert other.step()
    assert other.loop.seq == 65


@pytest.mark.fault
@pytest.mark.slow
def test_killed_at_any_point_the_trainer_resumes_and_nothing_half_written_is_champion(
    tmp_path: Path, first_model: Path
) -> None:
    """kill -9 while records come and a retraining runs, three times: the registry stays whole, no call is lost."""
    (tmp_path / "records").mkdir()
    models, records = tmp_path / "models", stream(300, seed=1) + stream(500, seed=2, factor=2.0, first=300)
    command = [sys.executable, "-m", "swarmx.cli", "adapt", "--watch", str(tmp_path / "records")]
    command += ["--models", str(models), "--model", str(first_model)]
    at = 0
    for pause, rows in ((3.0, 300), (4.0, 250), (1.5, 250)):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"following")
        journal(tmp_path / "records" / "calls.jsonl", records[at : at + rows])
        at += rows
        time.sleep(pause)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        registry = DirectoryRegistry(models)
        champion = registry.get("champion")
        assert champion is not None
        read_manifest(registry.path(champion))
    trainer = open_trainer(tmp_path, None)
    trainer.step()
    assert trainer.loop.seq == len(records)
    assert not [p for p in models.iterdir() if p.name.startswith(f".{STATE}") and p.stat().st_size == 0]
