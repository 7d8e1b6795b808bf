"""What the guard does, for metrics pages: whose word on lengths counts, and how good the predictor's is."""

from __future__ import annotations

from swarmx.scheduler import Scheduler
from swarmx.types import Source

EXPECTED = "Lengths expected of calls, by who said so: a late prediction makes a second one of its call"
FIGURES = {
    "predictor_heard": "1 since predictions have proven better than the lengths observed per type, else 0",
    "predictor_turns": "Verdicts that were other than the one before",
    "predictor_loss_ratio": "Running loss of predictions over that of the observed lengths",
}


def expectations(scheduler: Scheduler) -> dict[Source, float]:
    """Tier -> lengths that it was the one to say; only grows."""
    return {tier: float(count) for tier, count in scheduler.intake.tiers.items()}


def guard_figures(scheduler: Scheduler) -> dict[str, float]:
    """Values for `FIGURES`; without the ratio while nothing has been compared."""
    trust = scheduler.intake.trust
    out = {"predictor_heard": float(trust.holds), "predictor_turns": float(trust.switches)}
    if trust.observed_loss > 0:
        out["predictor_loss_ratio"] = trust.predictor_loss / trust.observed_loss
    return out
