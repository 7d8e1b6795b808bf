"""The registry in MLflow: registered versions, the aliases champion and challenger, one run per version and event.

Needs mlflow (skinny will do) and, for a sqlite store, sqlalchemy and alembic. Slow next to a directory (an import of
seconds, tens of milliseconds per call): for trainers and watchers, never in a request's path.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swarmx.adapt.registry import RegistryError, Role
from swarmx.errors import BadInput
from swarmx.files import replacing_directory
from swarmx.predict.bundle import read_manifest
from swarmx.predict.tracking import NAME

EXPERIMENT = "swarmx-adaptation"
VERSION, ABOUT, EVENT = "swarmx.version", "swarmx.about", "swarmx.event"
MOST_EVENTS = 1000  # of the history that are read, the latest


@dataclass
class MlflowRegistry:
    """client : of the store; experiment : where runs go; cache : local directory of downloaded versions"""

    client: Any
    experiment: str
    cache: Path
    _numbers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, uri: str, cache: Path | None = None) -> MlflowRegistry:
        """Raises BadInput when mlflow is missing or the store cannot be used."""
        try:
            import mlflow
        except ImportError:
            raise BadInput("an MLflow registry needs mlflow; install swarmx-scheduler[mlflow]") from None
        database = Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None
        if cache is None:
            cache = Path(tempfile.gettempdir()) / "swarmx-models" if database is None else Path(f"{database}.models")
        try:
            with _reaching(uri):
                client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
                found = client.get_experiment_by_name(EXPERIMENT)
                if found is not None:
                    return cls(client, found.experiment_id, cache)
                where = None if database is None else Path(f"{database}.artifacts").absolute().as_uri()
                made = cls(client, client.create_experiment(EXPERIMENT, artifact_location=where), cache)
                if not client.search_registered_models(f"name = '{NAME}'"):
                    client.create_registered_model(NAME)
                return made
        except RegistryError as problem:
            raise BadInput(f"{problem}; try sqlite:///mlflow.db") from None

    def add(self, directory: Path, about: Mapping[str, Any]) -> str:
        manifest = read_manifest(directory)
        version = str(manifest["version"])
        with _reaching("the MLflow store"):
            if self._number(version) is None:
                run = self._run("added", version, about)
                self.client.log_artifacts(run, str(directory), "model")
                for name, value in _numbers(about.get("metrics", {})).items():
                    self.client.log_metric(run, name, value)
                made = self.client.create_model_version(NAME, f"runs:/{run}/model", run, tags={VERSION: version})
                self._numbers[version] = made.version
        return version

    def path(self, version: str) -> Path:
        target = self.cache / Path(version).name
        try:
            read_manifest(target)
            return target
        except BadInput:
            pass  # not there yet, or half of it
        with _reaching("the MLflow store"):
            number = self._number(version)
            if number is None:
                raise BadInput(f"the MLflow store has no version {version!r} of {NAME}")
            run = self.client.get_model_version(NAME, number).run_id
            with replacing_directory(target) as temporary:
                model = Path(self.client.download_artifacts(run, "model", str(temporary)))
                for file in model.iterdir():
                    file.rename(temporary / file.name)
                model.rmdir()
        read_manifest(target)
        return target

    def get(self, role: Role) -> str | None:
        with _reaching("the MLflow store"):
            aliases = self.client.get_registered_model(NAME).aliases
            if role not in aliases:
                return None
            found = self.client.get_model_version(NAME, aliases[role])
            return str(found.tags[VERSION]) if VERSION in found.tags else None

    def set(self, role: Role, version: str | None, about: Mapping[str, Any]) -> None:
        with _reaching("the MLflow store"):
            if version is None:
                self.client.delete_registered_model_alias(NAME, role)
            else:
                number = self._number(version)
                if number is None:
                    raise BadInput(f"the MLflow store has no version {version!r} of {NAME}")
                self.client.set_registered_model_alias(NAME, role, number)
            self._run(role, version, about)

    def history(self) -> list[dict[str, Any]]:
        with _reaching("the MLflow store"):
            runs = self.client.search_runs(
                [self.experiment], order_by=["attributes.start_time DESC"], max_results=MOST_EVENTS
            )
        rows = []
        for run in runs:
            tags = run.data.tags
            if EVENT in tags:
                about = json.loads(tags.get(ABOUT, "{}"))
                at = run.info.start_time / 1000
                rows.append({"at": at, "event": tags[EVENT], "version": tags.get(VERSION) or None, **about})
        return rows[::-1]

    def _run(self, event: str, version: str | None, about: Mapping[str, Any]) -> str:
        text = json.dumps(dict(about), default=str)
        tags = {EVENT: event, VERSION: version or "", ABOUT: text, "mlflow.runName": f"{event} {version or 'none'}"}
        run = str(self.client.create_run(self.experiment, tags=tags).info.run_id)
        self.client.set_terminated(run)
        return run

    def _number(self, version: str) -> str | None:
        """MLflow's own number of a version."""
        if version not in self._numbers:
            for found in self.client.search_model_versions(f"name = '{NAME}'"):
                if VERSION in found.tags:
                    self._numbers[found.tags[VERSION]] = found.version
        return self._numbers.get(version)


@contextmanager
def _reaching(what: str) -> Iterator[None]:
    """Turn whatever the store raises into RegistryError."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError, ImportError) as problem:  # a database without its driver
        raise RegistryError(f"{what} cannot be used ({str(problem).splitlines()[0][:200]})") from None


def _numbers(tree: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested numbers as one level, names joined by slashes."""
    out: dict[str, float] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            out |= _numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float):
            out[f"{prefix}{key}".replace(":", "/")] = float(value)
    return out
