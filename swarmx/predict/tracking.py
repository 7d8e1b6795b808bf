"""A trained model as an MLflow run with a registered version, so that a rollout can follow an alias. Needs mlflow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from swarmx.errors import BadInput
from swarmx.predict.bundle import read_manifest

NAME = "swarmx-predictor"
ALIAS = "newest"  # MLflow keeps "latest" for itself
_forbidden = re.compile(r"[^\w\-./ ]", re.ASCII)


def check_store(uri: str) -> None:
    """Whether the store answers, asked before a training. Raises BadInput when mlflow is missing or it does not."""
    try:
        import mlflow
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise BadInput("--mlflow needs mlflow; install swarmx-scheduler[mlflow]") from None
    try:
        mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri).search_experiments(max_results=1)
    except (MlflowException, ImportError) as problem:  # the latter for a database whose driver is not installed
        why = " ".join(str(problem).split())[:200]
        raise BadInput(f"the MLflow store {uri} cannot be used ({why}); try sqlite:///mlflow.db") from None


def track(uri: str, directory: Path, metrics: dict[str, Any]) -> str:
    """Log metrics and files of a model directory under `uri` (for example sqlite:///mlflow.db); returns the run's id.

    The version is registered as `swarmx-predictor` and gets the alias `newest`; moving `champion` is left to people.
    Raises BadInput when mlflow is not installed or the store cannot be used.
    """
    try:
        import mlflow
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise BadInput("--mlflow needs mlflow; install swarmx-scheduler[mlflow]") from None
    manifest = read_manifest(directory)
    try:
        mlflow.set_tracking_uri(uri)
        client = mlflow.MlflowClient()
        with mlflow.start_run(run_name=manifest["version"]) as run:
            mlflow.log_params(
                {"version": manifest["version"], "rows": manifest["log"]["trained_on"], **manifest.get("fit", {})}
            )
            mlflow.log_metrics(_flat(metrics["targets"]))
            mlflow.log_artifacts(str(directory), "model")
        if not client.search_registered_models(f"name = '{NAME}'"):
            client.create_registered_model(NAME)
        version = client.create_model_version(NAME, f"runs:/{run.info.run_id}/model", run.info.run_id)
        client.set_registered_model_alias(NAME, ALIAS, version.version)
    except MlflowException as problem:
        raise BadInput(f"the MLflow store {uri} cannot be used ({problem}); try sqlite:///mlflow.db") from None
    return str(run.info.run_id)


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested numbers as one level, names joined by slashes, in the letters that MLflow allows."""
    out: dict[str, float] = {}
    for key, value in tree.items():
        name = f"{prefix}{_forbidden.sub('_', str(key).replace(':', '/'))}"
        if isinstance(value, dict):
            out |= _flat(value, name + "/")
        elif isinstance(value, int | float):
            out[name] = float(value)
    return out
