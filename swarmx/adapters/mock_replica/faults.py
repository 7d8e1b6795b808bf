"""Faults of an emulated engine, switched on and off while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from swarmx.errors import BadInput

Kind = Literal["none", "hang", "error", "cut", "stall", "slow", "oom", "refuse", "sick"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong from now on.

    kind : "hang" takes calls and never answers; "error" answers 500; "cut" drops the connection after `after_tokens`;
        "stall" sends as many and then nothing until the client goes; "slow" runs at `factor` of its speed; "oom" loses
        everything inside now and answers 500 for `seconds`; "refuse" answers 503 with Retry-After; "sick" fails health
        checks alone
    times : how many calls it hits (hang, error, cut, stall, refuse); None for all until it is switched off
    """

    kind: Kind = "none"
    after_tokens: int = 0
    factor: float = 0.1
    seconds: float = 1.0
    times: int | None = None


def parse_fault(body: Any) -> Fault:
    """A fault from JSON. Raises BadInput."""
    if not isinstance(body, dict) or body.get("kind") not in get_args(Kind):
        raise BadInput(f"a fault needs a kind, one of {', '.join(get_args(Kind))}; got {body!r:.100}")
    unknown = set(body) - set(Fault.__dataclass_fields__)
    if unknown:
        raise BadInput(f"unknown field {sorted(unknown)[0]!r}; known are {', '.join(Fault.__dataclass_fields__)}")
    return Fault(**body)
