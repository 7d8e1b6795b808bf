"""Writing so that a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swarmx.errors import BadInput


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; it takes that name when the block ends well, and is removed when it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """The same for a directory; an older one of that name is moved aside first and put back if the move fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    old = path.with_name(f".{path.name}.old")
    try:
        yield temporary
        temporary.chmod(0o755)
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
            path.rename(old)
        try:
            temporary.rename(path)
        except OSError:
            if old.exists():
                old.rename(path)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_file(path: Path) -> None:
    """Raises BadInput where no file can be written at `path`: to be asked before long work, not after it."""
    if path.is_dir():
        raise BadInput(f"{path} is a directory; name a file to write")
    _check_inside(path, path.parent)


def check_directory(path: Path) -> None:
    """Raises BadInput where no directory can be made at `path`, or nothing be written into the one that is there."""
    if path.exists() and not path.is_dir():
        raise BadInput(f"{path} is a file; name a directory to write")
    _check_inside(path, path)


def check_replaceable(path: Path, mark: str) -> None:
    """The same for a directory that will be replaced: refused where one holds things but no file `mark`.

    Such a directory is something else of the user's, which replacing would delete.
    """
    check_directory(path)
    if path.is_dir() and any(path.iterdir()) and not (path / mark).is_file():
        raise BadInput(f"{path} holds other things, which would be deleted (it has no {mark}); name another directory")
    _check_inside(path, path.absolute().parent)


def _check_inside(path: Path, place: Path) -> None:
    there = next(p for p in (place.absolute(), *place.absolute().parents) if p.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as problem:
        raise BadInput(f"{path} cannot be written ({there}: {problem.strerror}); name another place") from None
