"""What handles, replicas and the queue owner of a deployment tell each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from swarmx.adapters.ray_serve.states import Ended
from swarmx.types import Call, Prediction, ReplicaState

NAMESPACE = "serve"  # Serve's own, so that handles and replicas of any job find the actor


def owner_name(app: str, deployment: str) -> str:
    """Of the actor that holds a deployment's queue."""
    return f"swarmx-owner:{app}:{deployment}"


@dataclass(frozen=True, slots=True)
class Ask:
    """A call waits for a replica. refused_by : a replica that was granted to it and did not take it"""

    call: Call
    prediction: Prediction | None
    key: str
    refused_by: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A call that was bound without the owner, or before it began anew: it runs there."""

    call: Call
    prediction: Prediction | None
    key: str
    replica: str


@dataclass(frozen=True, slots=True)
class Done:
    """A call is over for the handle, in any way; or it asks no more."""

    call_id: str


@dataclass(frozen=True, slots=True)
class Foretold:
    """The prediction of a call that asked without one, or with that of its type."""

    call_id: str
    prediction: Prediction


Message = Ask | Held | Done | Foretold


@dataclass(frozen=True, slots=True)
class Told:
    """Messages of one handle.

    states : the replicas that it sees, where that has changed
    live : all calls that it has, after it was away or was forgotten; others of it are over
    """

    handle: str
    messages: tuple[Message, ...] = ()
    states: tuple[ReplicaState, ...] | None = None
    live: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """For one handle. forgotten : the owner knew nothing of the handle, which shall tell everything

    grants : (call id, replica id); replica "" : the owner will not bind this call, the handle shall
    """

    forgotten: bool
    grants: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """From a replica: its numbers, keys of calls whose first token came, and calls that ended."""

    replica: str
    stats: dict[str, object] = field(default_factory=dict)
    first_tokens: tuple[str, ...] = ()
    ended: tuple[Ended, ...] = ()
