import json
from pathlib import Path

import pytest

from swarmx.errors import BadInput
from swarmx.predict.tracking import ALIAS, NAME, track


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # mlflow and its database layer warn on their own account
def test_a_model_is_registered_in_sqlite_and_the_alias_follows(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a store in a file keeps its artifacts below the working directory
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    metrics = json.loads((trained / "metrics.json").read_text())
    metrics["targets"]["tokens"]["with_type"]["by_type"] = {"plan → (act)": {"rows": 31}}  # letters MLflow refuses
    runs = [track(uri, trained, metrics) for _ in range(2)]
    client = MlflowClient(uri)
    latest = client.get_model_version_by_alias(NAME, ALIAS)
    assert latest.run_id == runs[1] and int(latest.version) == 2
    found = client.get_run(runs[1]).data
    assert found.metrics["tokens/with_type/r2_log"] == metrics["targets"]["tokens"]["with_type"]["r2_log"]
    assert found.metrics["tokens/with_type/by_type/plan _ _act_/rows"] == 31
    assert found.params["version"] == json.loads((trained / "manifest.json").read_text())["version"]
    kept = {item.path for item in client.list_artifacts(runs[1], "model")}
    assert {"model/heads.onnx", "model/manifest.json"} <= kept


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_store_that_cannot_be_used_is_named(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=r"nonsense://.*sqlite:///mlflow\.db"):
        track("nonsense://x", trained, json.loads((trained / "metrics.json").read_text()))
