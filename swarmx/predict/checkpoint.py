"""What a training run has finished, kept on disk beside its output so that a killed run goes on where it was.

Plain arrays, read without executing anything. They belong to one log and one configuration, named by a key: another run
of the same output begins anew. The finished model is bit for bit that of a run that was never interrupted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.files import replacing
from swarmx.types import CallRecord

Arrays = Mapping[str, NDArray[Any]]
KEY = "key.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Named sets of arrays in a directory."""

    directory: Path

    def load(self, name: str) -> dict[str, NDArray[Any]] | None:
        """What was stored under the name; None when nothing was, or the file is damaged."""
        try:
            with (self.directory / f"{name}.npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return {key: stored[key] for key in stored.files}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def store(self, name: str, arrays: Arrays) -> None:
        """Keep the arrays under the name, whole or not at all."""
        with replacing(self.directory / f"{name}.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # of arrays, not of its flag

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def checkpoint_of(out: Path, key: str) -> tuple[Checkpoint, bool]:
    """The checkpoint of the model directory `out`, and whether it holds an earlier run of the same key."""
    place = Checkpoint(out.parent / f".{out.name}.progress")
    try:
        known = json.loads((place.directory / KEY).read_text())["key"] == key
    except (OSError, ValueError, KeyError, TypeError):
        known = False
    if not known:
        place.remove()
        with replacing(place.directory / KEY) as temporary:
            temporary.write_text(json.dumps({"key": key}) + "\n")
    return place, known


def key_of(records: Sequence[CallRecord], *parts: object) -> str:
    """Digest of a log's rows and of all else that decides the model."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(repr(record).encode("utf-8", "replace"))
    for part in parts:
        digest.update(repr(part).encode("utf-8", "replace"))
    return digest.hexdigest()
