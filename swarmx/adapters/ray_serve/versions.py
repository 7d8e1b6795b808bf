"""Which Ray this works with: its routing API is alpha and changes between minor releases, so the range is narrow."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from swarmx.errors import BadInput

FIRST, BEFORE = (2, 60), (2, 61)  # first <= version < before: what the tests run against


def check_ray(found: str | None = None) -> str:
    """The version of Ray. found : instead of the installed one

    Raises BadInput in one sentence when Ray is missing or its version is outside the supported range.
    """
    if found is None:
        try:
            found = version("ray")
        except PackageNotFoundError:
            raise BadInput("this needs Ray; install it with: pip install 'swarmx-scheduler[ray]'") from None
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is None or not FIRST <= (int(numbers[1]), int(numbers[2])) < BEFORE:
        raise BadInput(
            f"Ray {found} is not supported; swarmx works with {supported()}: pip install 'ray[serve]{supported()}'"
        )
    return found


def supported() -> str:
    """The range as pip writes it."""
    return f">={FIRST[0]}.{FIRST[1]},<{BEFORE[0]}.{BEFORE[1]}"
