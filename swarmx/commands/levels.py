"""`--log-level` of the verbs that go on running."""

from __future__ import annotations

import logging

from swarmx.errors import BadInput

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def level_of(name: str) -> int:
    """Logging's number of a level. Raises BadInput naming the known ones."""
    if name.lower() not in LEVELS:
        raise BadInput(f"unknown log level {name!r}; choose one of {', '.join(LEVELS)}")
    return LEVELS[name.lower()]
