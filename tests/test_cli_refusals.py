"""What a user can get wrong ends in one sentence and exit code 2, before any long work and with nothing deleted."""

from __future__ import annotations

import sys
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
    before = sorted(place.rglob("*"))
    assert told in refusal(words, monkeypatch, capsys)
    assert sorted(place.rglob("*")) == before
