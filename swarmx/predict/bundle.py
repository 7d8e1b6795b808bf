"""A trained predictor on disk: plain files and a manifest of their checksums. Nothing in it is ever executed.

manifest.json       what the model is, its labels, levels, calibration and the sha256 of every other file
fallback.json       quantiles per call type, the tier below the network
drift.json          how wrong out-of-fold predictions were per group, what a drift monitor starts from
heads.onnx          features -> log quantiles            (absent when the log held no prompts)
encoder.onnx        token ids -> text embedding          (absent likewise)
encoder.json, tokenizer.json.gz
metrics.json, card.md, *.png
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import swarmx
from swarmx.errors import BadInput

SCHEMA = 1
KIND = "swarmx-predictor"
ENCODER_FILES = ("encoder.onnx", "encoder.json", "tokenizer.json.gz")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_manifest(directory: Path, description: dict[str, Any]) -> str:
    """Write manifest.json over all files in the directory; returns the model version, 12 hex digits of their hashes."""
    files = {path.name: sha256(path) for path in sorted(directory.iterdir()) if path.name != "manifest.json"}
    used = {name: digest for name, digest in files.items() if name.endswith((".onnx", ".json", ".gz"))}
    used.pop("metrics.json", None)
    text = json.dumps([used, description], sort_keys=True)
    version = hashlib.sha256(text.encode()).hexdigest()[:12]
    manifest = {
        "kind": KIND,
        "schema": SCHEMA,
        "swarmx": swarmx.__version__,
        "version": version,
        **description,
        "files": files,
    }
    (directory / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    return version


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest, after checking that every file it names is there and unchanged.

    Raises BadInput when the directory is no model, was written by a newer swarmx, or a file is missing or altered.
    """
    path = directory / "manifest.json"
    manifest = read_json(path)
    if manifest.get("kind") != KIND or not isinstance(manifest.get("files"), dict):
        raise BadInput(f"{path} does not describe a swarmx predictor; give a directory that `swarmx train` wrote")
    if manifest.get("schema") != SCHEMA:
        raise BadInput(
            f"{path} has schema {manifest.get('schema')!r}, this swarmx reads {SCHEMA}; train the model again"
        )
    for name, digest in manifest["files"].items():
        file = directory / Path(str(name)).name
        if not file.is_file():
            raise BadInput(f"{file} is missing from the model; copy the whole directory or train it again")
        if sha256(file) != digest:
            raise BadInput(
                f"{file} does not match its checksum in manifest.json; copy it again or train the model again"
            )
    return manifest


def copy_encoder(source: Path, directory: Path) -> None:
    """Copy the encoder's files from one model directory to another. Raises BadInput when one is missing."""
    for name in ENCODER_FILES:
        if not (source / name).is_file():
            raise BadInput(f"{source / name} is missing; an encoder directory holds {', '.join(ENCODER_FILES)}")
        shutil.copyfile(source / name, directory / name)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises BadInput when it is missing, unreadable or not an object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; give a directory that `swarmx train` wrote") from None
    except (OSError, ValueError) as problem:
        raise BadInput(f"{path} cannot be read as JSON ({problem}); copy it again or train the model again") from None
    if not isinstance(data, dict):
        raise BadInput(f"{path} holds {type(data).__name__}, not an object; copy it again or train the model again")
    return data


def shipped() -> Path:
    """Directory of the checkpoint that comes with swarmx: inside the package when installed, beside it in a checkout.

    Raises BadInput when neither is there.
    """
    package = Path(swarmx.__file__).parent
    for place in (package / "models" / "default", package.parent / "models" / "default"):
        if (place / "manifest.json").is_file() or (place / "encoder.json").is_file():
            return place
    raise BadInput("the shipped checkpoint models/default is not installed; give a model directory")
