"""What a user can get wrong ends in one sentence and exit code 2, before any long work and with nothing deleted."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarmx.cli import main


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to stand in, with a log that is never read, a directory of something else and a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "calls.csv").write_text("arrival_s,model\n1,m\n")
    return tmp_path


def refusal(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence of a command that exits with 2."""
    monkeypatch.setattr(sys, "argv", ["swarmx", *words.split()])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    found = capsys.readouterr().err.strip().splitlines()
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train log --out thesis", "thesis holds other things, which would be deleted"),
        ("train log --out file", "file is a file; name a directory"),
        ("train log --out m --target-config nowhere", "--target-config nowhere: no such file"),
        pytest.param(
            "train log --out m --mlflow foo://x",
            "the MLflow store foo://x cannot be used",
            marks=[pytest.mark.slow, pytest.mark.filterwarnings("default")],  # mlflow's database layer warns
        ),
        ("log import calls.csv --out thesis", "thesis is a directory; name a file"),
        ("log record --endpoint http://h --model m --prompts p --out thesis --overwrite", "thesis is a directory"),
        ("predict --prompt x --png thesis", "thesis is a directory; name a file"),
        ("evaluate --out file", "file is a file; name a directory"),
        ("adapt log --out file", "file is a file; name a directory"),
        ("adapt log --false-alarms 0", "--false-alarms is 0, but must be a number above 0"),
        ("adapt --watch file --models m", "--watch file is a file; give the directory"),
        ("adapt --watch thesis --models file", "file is a file; name a directory"),
    ],
)
def test_a_wrong_place_is_refused_before_any_work(
    words: str, told: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "://x" in words:
        pytest.importorskip("mlflow")
    before = sorted(place.rglob("*"))
    assert told in refusal(words, monkeypatch, capsys)
    assert sorted(place.rglob("*")) == before


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of this machine that something else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield int(other.getsockname()[1])


REPLICAS = 'replicas: [{url: "http://127.0.0.1:1"}]'
SCALED = 'pools: {m: {sources: ["http://127.0.0.1:1/state"], maximum: 2}}'


@pytest.mark.slow  # a process each
@pytest.mark.parametrize(
    ("verb", "text"),
    [
        ("endpoint-picker", f"model: m\n{REPLICAS}\nlisten: 127.0.0.1:0\nmetrics_listen: 127.0.0.1:PORT"),
        ("endpoint-picker", f"model: m\n{REPLICAS}\nlisten: 127.0.0.1:PORT\nmetrics_listen: 127.0.0.1:0"),
        ("external-scaler", f"{SCALED}\nlisten: 127.0.0.1:0\nmetrics_listen: 127.0.0.1:PORT"),
        ("external-scaler", f"{SCALED}\nlisten: 127.0.0.1:PORT\nmetrics_listen: 127.0.0.1:0"),
        ("serve", f"model_pools: {{m: {{{REPLICAS}}}}}\nserver: {{port: PORT, admin: {{port: 0}}}}"),
    ],
)
def test_a_taken_port_is_told(verb: str, text: str, taken: int, place: Path) -> None:
    (place / "file.yaml").write_text(text.replace("PORT", str(taken)))
    command = [sys.executable, "-m", "swarmx.cli", verb, "file.yaml"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 2
    assert f"127.0.0.1:{taken}" in found.stderr
    assert [line[:8] for line in found.stderr.splitlines() if "add_port.cc" not in line] == ["swarmx: "], found.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("mock-replica --port TAKEN --speeds 1", "127.0.0.1:TAKEN"),
        ("mock-replica --port 65535 --speeds 1,1", "leaves no ports for 2 replicas; begin at 65534"),
        ("mock-replica --slots 0", "needs slots >= 1"),
        ("serve --new-key a --new-admin-token", "ask for one of them"),
        ("endpoint-picker picker.yaml --log-level loud", "unknown log level 'loud'; choose one of debug, info"),
    ],
)
def test_a_wrong_option_is_told(
    words: str, told: str, taken: int, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "picker.yaml").write_text(f"model: m\n{REPLICAS}")
    words, told = (text.replace("TAKEN", str(taken)) for text in (words, told))
    assert told in refusal(words, monkeypatch, capsys)
