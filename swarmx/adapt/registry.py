"""Where model versions live and which of them is champion: one contract, two stores.

A plain directory:

    versions/<version>/     model directories as `swarmx train` writes them, put there whole by a rename
    champion, challenger    files with a version, replaced atomically; serving processes watch `champion`
    history.jsonl           one line per event: version, role, reason, data window, metrics

`MlflowRegistry` (registry_mlflow.py) means the same by registered versions and aliases.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from swarmx.errors import BadInput
from swarmx.files import replacing, replacing_directory
from swarmx.predict.bundle import read_manifest

Role = Literal["champion", "challenger"]
ROLES: tuple[Role, ...] = ("champion", "challenger")


KEPT = 20  # versions without a role that a directory keeps, the latest ones
LEFTOVER_S = 3600.0  # what a crash left half-written is removed after so long


class RegistryError(Exception):
    """The store cannot be reached or written now; trying again later may help. The champion in use goes on."""


class Registry(Protocol):
    """A store of versions. All but BadInput for an unusable model may raise RegistryError."""

    def add(self, directory: Path, about: Mapping[str, Any]) -> str:
        """Store a model directory; returns its version. Adding one that is there changes nothing."""
        ...

    def path(self, version: str) -> Path:
        """A local directory with that version, whole. Raises BadInput when there is none."""
        ...

    def get(self, role: Role) -> str | None:
        """The version that has the role."""
        ...

    def set(self, role: Role, version: str | None, about: Mapping[str, Any]) -> None:
        """Give the role to a version, or to none; `about` goes into the history: reason, window, metrics."""
        ...

    def history(self) -> list[dict[str, Any]]:
        """Everything that happened, oldest first."""
        ...


@dataclass(frozen=True)
class DirectoryRegistry:
    """The plain directory. clock : stamps the history"""

    root: Path
    clock: Any = None

    def add(self, directory: Path, about: Mapping[str, Any]) -> str:
        version = str(read_manifest(directory)["version"])
        target = self.root / "versions" / version
        try:
            if not _is_whole(target):
                with replacing_directory(target) as temporary:
                    shutil.copytree(directory, temporary, dirs_exist_ok=True)
                self._note({"event": "added", "version": version, **about})
                self._prune(version)
        except OSError as problem:
            raise RegistryError(f"{self.root} cannot be written: {problem}") from None
        return version

    def path(self, version: str) -> Path:
        target = self.root / "versions" / Path(version).name
        if not target.parent.is_dir():
            raise RegistryError(f"{target.parent} does not exist")
        if not target.is_dir():
            raise BadInput(f"{self.root} has no version {version!r}; there are {', '.join(self.versions()) or 'none'}")
        read_manifest(target)
        return target

    def versions(self) -> list[str]:
        """All that are whole or were once; in order of name."""
        try:
            return sorted(p.name for p in (self.root / "versions").iterdir() if not p.name.startswith("."))
        except OSError:
            return []

    def get(self, role: Role) -> str | None:
        try:
            return (self.root / role).read_text().strip() or None
        except FileNotFoundError:
            if not self.root.exists():
                raise RegistryError(f"{self.root} does not exist") from None
            return None
        except OSError as problem:
            raise RegistryError(f"{self.root / role} cannot be read: {problem}") from None

    def set(self, role: Role, version: str | None, about: Mapping[str, Any]) -> None:
        if version is not None:
            self.path(version)
        try:
            with replacing(self.root / role) as temporary:
                temporary.write_text(f"{version}\n" if version is not None else "")
            self._note({"event": role, "version": version, **about})
        except OSError as problem:
            raise RegistryError(f"{self.root} cannot be written: {problem}") from None

    def history(self) -> list[dict[str, Any]]:
        """A line that a crash cut short is left out."""
        try:
            lines = (self.root / "history.jsonl").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        except OSError as problem:
            raise RegistryError(f"{self.root} cannot be read: {problem}") from None
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def clean(self, now: float) -> None:
        """Remove what crashes left half-written long before `now` (as files are stamped)."""
        for path in (self.root / "versions").glob(".*"):
            if now - path.stat().st_mtime > LEFTOVER_S:
                shutil.rmtree(path, ignore_errors=True)

    def _prune(self, latest: str) -> None:
        """Keep the versions with a role, the one before the champion, and the latest `KEPT`."""
        named = [row["version"] for row in self.history() if row.get("event") == "champion" and row.get("version")]
        kept = {latest, self.get("champion"), self.get("challenger"), *named[-2:]}
        rest = [self.root / "versions" / name for name in self.versions() if name not in kept]
        for path in sorted(rest, key=lambda p: p.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(path, ignore_errors=True)

    def _note(self, entry: Mapping[str, Any]) -> None:
        row = dict(entry) if self.clock is None else {"at": self.clock(), **entry}
        path = self.root / "history.jsonl"
        with path.open("ab") as out:
            # a line that a crash cut short must not swallow this one
            text = json.dumps(row, sort_keys=True, default=str).encode() + b"\n"
            out.write(text if out.tell() == 0 or _ends_well(path) else b"\n" + text)
            out.flush()
            os.fsync(out.fileno())


def _ends_well(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _is_whole(directory: Path) -> bool:
    try:
        read_manifest(directory)
    except BadInput:
        return False
    return True


def open_registry(store: str, clock: Any = None) -> Registry:
    """A directory, or an MLflow URI such as sqlite:///mlflow.db. Raises BadInput when it cannot be used."""
    if "://" not in store:
        root = Path(store)
        try:
            (root / "versions").mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise BadInput(f"{root} cannot be used as a model registry: {problem}") from None
        return DirectoryRegistry(root, clock)
    from swarmx.adapt.registry_mlflow import MlflowRegistry

    return MlflowRegistry.open(store)
