"""How a process of ours starts another one of ours."""

from __future__ import annotations

import sys


def command_of(module: str) -> list[str]:
    """Runs the module's `main()`, arguments to follow, with modules from where this process has its own.

    `python -m` would look into the working directory first, where a user's file may have the name of a module.
    """
    program = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; sys.exit(main())"
    return [sys.executable, "-P", "-c", program]
