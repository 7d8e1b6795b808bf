"""`swarmx bench NAME` runs every benchmark that it lists."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "swarmx.cli", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_the_documents_name_is_listed() -> None:
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    words = " ".join(path.read_text() for path in documents).split("swarmx bench ")[1:]
    named = {word.split()[0].strip("`.,;:()") for word in words} - {"NAME"}
    listed = set(bench("list").stdout.split())
    assert len(named) > 8 and named <= listed, named - listed
    assert listed <= {path.stem for path in (ROOT / "benchmarks").glob("*.py")}


def test_an_unknown_benchmark_is_told_in_one_sentence() -> None:
    done = bench("no-such")
    assert done.returncode == 2 and "'no-such'" in done.stderr and "simulator" in done.stderr


def test_a_data_set_where_there_is_one_is_told_in_one_sentence() -> None:
    done = bench("decision", "--data", "other")
    assert done.returncode == 2 and "leave --data out" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["decision", "fidelity", "simulator"])
def test_its_result_is_json(name: str) -> None:
    done = bench(name, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
