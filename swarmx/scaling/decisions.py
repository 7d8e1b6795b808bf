"""What a scaler returns: changes to the replicas of one pool, and a receipt that says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Want:
    """How many replicas a policy asks for, before any bound.

    terms : what each part of the reasoning contributed, name -> one number or several (quantiles on `levels`, windows)
    """

    replicas: int
    why: str = ""
    terms: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScaleReceipt:
    """Why a pool has the replicas that it has.

    wanted : what the policy asked for; None when it could not say, so that the pool was held
    target : what bounds and budget made of it
    demand : busy slots in the window from the time a replica ordered now would be ready, at `levels`
    changes : one sentence for each thing that changed the wish on its way
    edges_s : of the windows from now that terms with several numbers speak of; empty where there are none
    """

    id: str
    pool: str
    decided_s: float
    policy: str
    wanted: int | None
    target: int
    before: int
    why: str = ""
    terms: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict)
    levels: tuple[float, ...] = ()
    demand: tuple[float, ...] = ()
    changes: tuple[str, ...] = ()
    edges_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Scale:
    """Bring a pool to `target` replicas.

    add : device kind -> replicas to order
    drain : bind nothing more to these; they go once their calls have ended
    resume : these were draining and are wanted again
    cancel : these were starting and are not wanted any more
    remove : these have drained and hold no call; whoever carries this out looks once more before removing one
    """

    pool: str
    target: int
    add: Mapping[str, int] = field(default_factory=dict)
    drain: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    receipt: ScaleReceipt | None = None

    @property
    def is_change(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.add or self.drain or self.resume or self.cancel or self.remove)
