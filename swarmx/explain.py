"""Receipts: what was decided about a call, on what grounds, and what else there was to choose."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from swarmx.routing.completion import Completion
from swarmx.state import ClusterState
from swarmx.types import Candidate, Receipt, Reject
from swarmx.waiting import Waiting

TOP = 5  # candidates that a receipt names


def candidates_of(
    waiting: Waiting, cluster: ClusterState, usable: NDArray[np.bool_], weights: tuple[float, float], now: float
) -> tuple[Candidate, ...]:
    """The cheapest usable replicas by own finish + harm + extra weight of the wait; empty while constants are unknown.

    weights : of the harm, and of the seconds before the first token

    The cluster must have been refreshed to `now`.
    """
    if not cluster.is_fitted:
        return ()
    placement = Completion(weights[0], 1.0, weights[1])
    terms = placement.terms(waiting, cluster, now)
    cost = placement.total(terms)
    cost[~usable] = np.inf
    own, harm, releases = terms[0].tolist(), terms[1].tolist(), terms[2].tolist()
    found = []
    for i in np.argsort(cost, kind="stable")[:TOP].tolist():
        if cost[i] < np.inf:
            found.append(Candidate(cluster.states[i].id, own[i], harm[i], float(cost[i]), releases[i]))
    return tuple(found)


def receipt_of(
    waiting: Waiting,
    number: int,
    policy: str,
    action: str,
    candidates: tuple[Candidate, ...],
    now: float,
    replica: str | None = None,
) -> Receipt:
    """Put a decision about a waiting call into words and numbers."""
    first = candidates[0] if candidates else None
    if action == "start":
        reason = f"cheapest replica for {policy}"
        if first is None:
            reason = f"{policy}'s choice by counts: no seconds can be compared before the engines' constants are known"
        elif first.replica != replica:
            reason += f"; {first.replica} had the least own finish + harm"
    elif first is None:
        reason = "no replica can take it now, and none has learned its speed yet"
    elif first.releases > 0:
        reason = (
            f"{first.replica} would end it soonest and is busy: about {first.releases:.1f} calls must end there first"
        )
    else:
        reason = "calls before it in the queue take the free places"
    return Receipt(
        id=f"{waiting.call.id}/{number}",
        call_id=waiting.call.id,
        decided_s=now,
        policy=policy,
        action="start" if action == "start" else "hold",
        tier=waiting.prediction.source,
        replica=replica,
        reason=reason,
        candidates=candidates,
        predicted_tokens=tuple(waiting.lengths.grid.tolist()),
        model_version=waiting.prediction.model_version,
    )


def rejection_of(waiting: Waiting, policy: str, reason: str, retry_after_s: float | None, now: float) -> Reject:
    """A refusal with its receipt."""
    receipt = Receipt(
        f"{waiting.call.id}/{waiting.attempts}", waiting.call.id, now, policy, "reject", waiting.prediction.source,
        None, reason, (), tuple(waiting.lengths.grid.tolist()), waiting.prediction.model_version,
    )  # fmt: skip
    return Reject(waiting.call.id, reason, retry_after_s, receipt)
