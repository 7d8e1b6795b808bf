"""What is there is only ever replaced by what was meant to replace it."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarmx.errors import BadInput
from swarmx.files import check_directory, check_file, check_replaceable


def test_a_directory_of_something_else_is_never_replaced(tmp_path: Path) -> None:
    check_replaceable(tmp_path / "new" / "model", "manifest.json")
    (tmp_path / "empty").mkdir()
    check_replaceable(tmp_path / "empty", "manifest.json")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "manifest.json").write_text("{}")
    check_replaceable(tmp_path / "model", "manifest.json")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    with pytest.raises(BadInput, match=r"thesis holds other things, which would be deleted \(it has no manifest.json"):
        check_replaceable(tmp_path / "thesis", "manifest.json")
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "x"


def test_a_file_and_a_directory_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("x")
    check_file(tmp_path / "log.csv")
    check_file(tmp_path / "not" / "yet" / "there.csv")
    assert not (tmp_path / "not").exists()
    with pytest.raises(BadInput, match="is a directory; name a file to write"):
        check_file(tmp_path)
    with pytest.raises(BadInput, match=r"log.csv is a file; name a directory"):
        check_replaceable(tmp_path / "log.csv", "manifest.json")
    check_directory(tmp_path)
    with pytest.raises(BadInput, match=r"out cannot be written \(.*log.csv: Not a directory\)"):
        check_directory(tmp_path / "log.csv" / "out")
