"""Where an adapter's journal goes: a few files in a directory, the oldest given up for the newest."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from swarmx.journal import SNAPSHOT_BEGINS


class JournalFiles:
    """A sink for `swarmx.journal.journalled`: every snapshot begins a new file `<name>-<number>.jsonl`.

    keep : files that stay, the one being written included
    Every line is handed to the system at once, so a process that is killed loses none.
    Raises OSError when the directory cannot be written.
    """

    def __init__(self, directory: Path, name: str, keep: int = 4) -> None:
        self.directory, self.name, self.keep = directory, name, keep
        directory.mkdir(parents=True, exist_ok=True)
        self._file: TextIO | None = None

    def __call__(self, line: str) -> None:
        if self._file is None or line.startswith(SNAPSHOT_BEGINS):
            self._begin()
        assert self._file is not None
        self._file.write(line + "\n")

    def files(self) -> list[Path]:
        """Those that are there, oldest first."""
        return sorted(self.directory.glob(f"{self.name}-*.jsonl"))

    def close(self) -> None:
        """Write what is buffered; the journal is over."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self) -> None:
        self.close()
        there = self.files()
        number = int(there[-1].stem.rsplit("-", 1)[1]) + 1 if there else 0
        for old in there[: max(len(there) - self.keep + 1, 0)]:
            old.unlink(missing_ok=True)
        self._file = (self.directory / f"{self.name}-{number:08d}.jsonl").open("w", buffering=1, encoding="utf-8")
