"""`swarmx train --on`: options that do not fit together, and luggage. No Ray runs here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from swarmx.adapters.ray_training.connecting import plain_errors
from swarmx.adapters.ray_training.luggage import pack, unpack
from swarmx.errors import BadInput


@pytest.mark.parametrize("option", [("--ray-address", "x"), ("--embeddings", "x")])
def test_options_for_ray_need_on_ray(option: tuple[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "swarmx.cli", "train", "log.parquet", "--out", str(tmp_path / "m"), *option]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "200"})
    assert done.returncode == 2 and f"{option[0]} goes with --on ray" in done.stderr


def test_a_directory_travels_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_text("1")
    (tmp_path / "a" / "two").write_bytes(b"\0\1")
    there = unpack(pack(tmp_path / "a"), tmp_path / "b")
    assert {p.name: p.read_bytes() for p in there.iterdir()} == {"one": b"1", "two": b"\0\1"}
    assert [p.name for p in unpack(pack(tmp_path / "a", ["two"]), tmp_path / "c").iterdir()] == ["two"]


def test_bad_input_of_a_task_arrives_as_such_and_other_errors_as_they_are() -> None:
    with pytest.raises(BadInput, match=r"^log\.parquet, row 3: wrong$"), plain_errors():
        raise RuntimeError("ray::task\n  swarmx.errors.BadInput: log.parquet, row 3: wrong\nThe above exception")
    with pytest.raises(RuntimeError, match="something else"), plain_errors():
        raise RuntimeError("something else")
