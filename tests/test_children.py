from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from swarmx.children import command_of


@pytest.mark.parametrize(("module", "says"), [("swarmx.cli", "Usage"), ("swarmx.adapt.worker", "job.json")])
def test_what_lies_in_the_working_directory_is_not_run(module: str, says: str, tmp_path: Path) -> None:
    for name in ("json", "random", "typing", "numpy", "swarmx"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not meant to be run')")
    argument = "--help" if module == "swarmx.cli" else str(tmp_path)
    ended = subprocess.run([*command_of(module), argument], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert says in ended.stdout + ended.stderr and "not meant" not in ended.stderr
    assert (ended.returncode == 0) == (module == "swarmx.cli")
