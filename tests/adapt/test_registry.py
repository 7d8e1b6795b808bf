"""Both stores keep the same contract; nothing half-written is ever handed out."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from swarmx.adapt.registry import DirectoryRegistry, Registry, RegistryError, open_registry
from swarmx.cli import app
from swarmx.errors import BadInput
from swarmx.predict.bundle import read_manifest

pytestmark = pytest.mark.filterwarnings("default")  # mlflow and its database layer warn on their own account
STORES = ["directory", pytest.param("mlflow", marks=pytest.mark.slow)]


@pytest.fixture(params=STORES)
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Registry:
    if request.param == "directory":
        return open_registry(str(tmp_path / "models"))
    pytest.importorskip("mlflow")
    return open_registry(f"sqlite:///{tmp_path / 'mlflow.db'}")


def test_a_version_gets_roles_and_leaves_a_history(registry: Registry, first_model: Path, second_model: Path) -> None:
    assert registry.get("champion") is None
    first = registry.add(first_model, {"reason": "first", "metrics": {"tokens": {"0.95": 1.5}}})
    second = registry.add(second_model, {"reason": "retrained", "window": [0, 300]})
    assert registry.add(first_model, {"reason": "again"}) == first  # adding it twice changes nothing
    registry.set("champion", first, {"reason": "first"})
    registry.set("challenger", second, {"reason": "retrained"})
    assert (registry.get("champion"), registry.get("challenger")) == (first, second)
    assert read_manifest(registry.path(second))["version"] == second
    registry.set("champion", second, {"reason": "better", "metrics": {"records": 90}})
    registry.set("challenger", None, {"reason": "promoted"})
    assert (registry.get("champion"), registry.get("challenger")) == (second, None)
    events = [(row["event"], row["version"]) for row in registry.history()]
    assert events == [
        ("added", first), ("added", second), ("champion", first), ("challenger", second), ("champion", second),
        ("challenger", None),
    ]  # fmt: skip
    assert registry.history()[1]["window"] == [0, 300]
    assert registry.history()[4]["metrics"] == {"records": 90}
    with pytest.raises(BadInput, match="no version 'nonsense'"):
        registry.set("champion", "nonsense", {})


def test_a_half_written_version_is_not_handed_out_and_can_be_added_again(tmp_path: Path, first_model: Path) -> None:
    registry = DirectoryRegistry(tmp_path)
    version = registry.add(first_model, {})
    heads = tmp_path / "versions" / version / "heads.onnx"
    heads.write_bytes(heads.read_bytes()[:100])
    with pytest.raises(BadInput, match="does not match its checksum"):
        registry.path(version)
    with pytest.raises(BadInput, match="does not match its checksum"):
        registry.set("champion", version, {})
    registry.add(first_model, {})
    assert read_manifest(registry.path(version))["version"] == version


def test_a_line_cut_short_by_a_crash_is_left_out_and_swallows_nothing(tmp_path: Path, first_model: Path) -> None:
    registry = DirectoryRegistry(tmp_path, clock=lambda: 7.0)
    version = registry.add(first_model, {})
    with (tmp_path / "history.jsonl").open("a") as out:
        out.write('{"event": "champ')
    registry.set("champion", version, {})
    assert [row["event"] for row in registry.history()] == ["added", "champion"]
    assert registry.history()[0]["at"] == 7.0


def test_what_a_crash_left_is_removed_later_and_old_versions_go(
    tmp_path: Path, first_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = DirectoryRegistry(tmp_path)
    registry.set("champion", registry.add(first_model, {}), {})
    leftover = tmp_path / "versions" / ".abc.xyz"
    leftover.mkdir()
    registry.clean(leftover.stat().st_mtime + 10)
    assert leftover.exists()
    registry.clean(leftover.stat().st_mtime + 7200)
    assert not leftover.exists()
    monkeypatch.setattr("swarmx.adapt.registry.KEPT", 2)
    for i in range(5):
        shutil.copytree(first_model, tmp_path / f"m{i}")
        manifest = json.loads((first_model / "manifest.json").read_text()) | {"version": f"v{i}"}
        (tmp_path / f"m{i}" / "manifest.json").write_text(json.dumps(manifest))
        registry.add(tmp_path / f"m{i}", {})
    assert registry.get("champion") in registry.versions()
    assert [name for name in registry.versions() if name.startswith("v")] == ["v2", "v3", "v4"]


def test_a_store_that_is_gone_says_so(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="does not exist"):
        DirectoryRegistry(tmp_path / "gone").get("champion")
    with pytest.raises(BadInput, match="cannot be used"):
        (tmp_path / "file").write_text("")
        open_registry(str(tmp_path / "file" / "models"))


def test_the_champion_cannot_be_put_up_against_itself(first_model: Path, second_model: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "models")
    registry = open_registry(store)
    registry.set("champion", registry.add(first_model, {"reason": "first"}), {"reason": "first"})
    again = CliRunner().invoke(app, ["adapt", "--challenger", str(first_model), "--models", store])
    assert isinstance(again.exception, BadInput)
    assert "a challenger is another model" in str(again.exception)
    assert registry.get("challenger") is None
    other = CliRunner().invoke(app, ["adapt", "--challenger", str(second_model), "--models", store])
    assert other.exit_code == 0
    assert registry.get("challenger") == read_manifest(second_model)["version"]
    assert "at" in registry.history()[-1], "a step by hand has a time as others have"


@pytest.mark.parametrize("uri", ["foo://x", "mysql://x"])
def test_a_store_of_an_unknown_kind_or_without_its_driver_is_bad_input(uri: str) -> None:
    pytest.importorskip("mlflow")
    if find_spec("MySQLdb") is not None:
        pytest.skip("the driver is installed here")
    with pytest.raises(BadInput, match=f"{uri} cannot be used"):
        open_registry(uri)
