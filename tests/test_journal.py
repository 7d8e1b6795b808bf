"""A journal leads to the same decisions in another process; a changed one does not, and says where."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from swarmx.adapters.journal_files import JournalFiles
from swarmx.cli import app
from swarmx.errors import BadInput
from swarmx.journal import VERSION, journalled, replay
from swarmx.presets import PRESETS, preset
from swarmx.sim import ReplicaSpec, cluster, simulate
from swarmx.sim.arms import PerType
from swarmx.sim.suites.batched import JOBS
from swarmx.sim.synthetic import Sizes, mix
from swarmx.sim.workload import arriving, poisson


def run_of(name: str, sink, every: int = 10**6) -> None:  # type: ignore[no-untyped-def]
    """Forty workflows on four batched replicas."""
    rng = np.random.default_rng(5)
    drawn = mix(40, Sizes(), rng)
    replicas = cluster(ReplicaSpec("r", batched=True, slots=4, service=JOBS[0].spec.service), [1.0, 1.0, 0.5, 0.5])
    workload = arriving(drawn, 0.4, poisson, rng)
    simulate(workload, replicas, journalled(preset(name, 3), sink, every), PerType(drawn), seed=1)


@pytest.mark.parametrize("name", ["late", "push_steal", "power_of_two", "swarmx", "prequal", "beyond_prediction"])
def test_a_journal_decides_the_same_again(name: str) -> None:
    lines: list[str] = []
    run_of(name, lines.append, every=300)
    snapshots = [n for n, line in enumerate(lines) if "snapshot" in line]
    assert len(snapshots) > 2, "a run of many events has more than one snapshot"
    assert sum('"Start"' in line for line in lines) > 100
    assert not list(replay(lines))
    assert not list(replay(lines[snapshots[1] :])), "from a snapshot in the middle"


def test_another_process_with_other_hashes_decides_the_same(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path, "pool", keep=2)
    run_of("late", files, every=400)
    files.close()
    kept = files.files()
    assert len(kept) == 2, "older files were given up"
    for seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-m", "swarmx", "replay", *map(str, kept)],
            capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": seed},
        )  # fmt: skip
        assert answer.returncode == 0, answer.stdout + answer.stderr
        assert "no decisions differ" in answer.stdout


def test_a_changed_decision_is_named_with_its_line() -> None:
    lines: list[str] = []
    run_of("late", lines.append)
    place = next(n for n, line in enumerate(lines) if '"Start"' in line and n > 50)
    entry = json.loads(lines[place])
    entry["decisions"][0][2] = "elsewhere"
    lines[place] = json.dumps(entry)
    (found,) = list(replay(lines))
    assert (found.line, found.then[0][2]) == (place + 1, "elsewhere")


def test_prompts_stay_out_of_it() -> None:
    from swarmx.types import Call, ReplicaState

    lines: list[str] = []
    scheduler = journalled(preset("late"), lines.append)
    scheduler.replicas_changed([ReplicaState("r", "m")], 0.0)
    scheduler.arrive(Call("c", "m", 0.0, prompt="my secret", prompt_tokens=2), None, 0.0)
    assert len(lines) == 3
    assert "secret" not in "".join(lines)
    assert not list(replay(lines))


def test_a_sink_that_fails_stops_the_journal_and_nothing_else() -> None:
    told = 0

    def full(line: str) -> None:
        nonlocal told
        told += 1
        raise OSError("no space left on device")

    run_of("late", full)
    assert told == 1


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["nonsense"], "line 1: is no journal entry"),
        (['{"event": "tick", "args": [1.0], "decisions": []}'], "line 1: a journal begins with a snapshot"),
        (['{"version": 99, "snapshot": ""}'], "version 99"),
        ([json.dumps({"version": VERSION, "snapshot": ""})], "line 1: is no journal entry"),
    ],
)
def test_what_is_no_journal_is_refused(lines: list[str], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        list(replay(lines, "j.jsonl"))


def test_every_preset_can_be_put_into_a_snapshot() -> None:
    for name in PRESETS:
        lines: list[str] = []
        journalled(preset(name), lines.append).tick(0.0)
        assert not list(replay(lines)), name


def test_the_command_leaves_out_a_line_that_a_crash_cut_short(tmp_path: Path) -> None:
    lines: list[str] = []
    run_of("late", lines.append)
    path, empty = tmp_path / "j.jsonl", tmp_path / "empty.jsonl"
    path.write_text("\n".join(lines)[:-20])
    empty.touch()
    said = CliRunner().invoke(app, ["replay", str(path), str(empty)])
    assert said.exit_code == 0
    assert f"{len(lines) - 2} events, no decisions differ" in said.output
    assert "the last line was cut short" in said.output
    assert "nothing is in it" in str(CliRunner().invoke(app, ["replay", str(empty)]).exception)
