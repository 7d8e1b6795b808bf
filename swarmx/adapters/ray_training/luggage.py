"""Directories as bytes, so that nodes need no file system in common."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path


def pack(directory: Path, names: Iterable[str] | None = None) -> bytes:
    """A tar of the directory's files, or of those named. Raises OSError when one cannot be read."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in sorted(p.name for p in directory.iterdir()) if names is None else names:
            tar.add(directory / name, arcname=name)
    return buffer.getvalue()


def unpack(data: bytes, directory: Path) -> Path:
    """Write the files of a tar into the directory, made where it is missing; nothing outside of it is touched."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(directory, filter="data")
    return directory
