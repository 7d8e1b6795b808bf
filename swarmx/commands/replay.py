"""`swarmx replay`: do the same events still lead to the same decisions?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from swarmx.errors import BadInput

SHOWN = 10


def replay(
    journals: Annotated[list[Path], typer.Argument(help="Journal files, in the order in which they were written.")],
) -> None:
    """Decide a recorded journal again and name every decision that differs; exit 1 when one does.

    A journal holds pickled state: replay only files that your own gateway wrote.
    """
    from swarmx.journal import replay as differences

    found = events = read = 0
    for path in journals:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise BadInput(f"{path}: cannot be read ({problem})") from None
        lines, begun = text[: text.rfind("\n") + 1].splitlines(), text.rpartition("\n")[2]
        if begun:
            print(f"{path}: the last line was cut short as it was written; it is left out", file=sys.stderr)
        read += len(lines)
        events += max(len(lines) - 1, 0)
        for one in differences(lines, str(path)):
            found += 1
            if found <= SHOWN:
                print(f"{path} line {one.line}, {one.event}: decided {one.then}, now {one.now}")
    if not read:
        raise BadInput(f"{', '.join(map(str, journals))}: nothing is in it; a journal begins with a snapshot")
    print(f"{events} events, {found or 'no'} decision{'s' if found != 1 else ''} differ{'s' if found == 1 else ''}")
    raise typer.Exit(1 if found else 0)
