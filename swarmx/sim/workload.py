"""What arrives: workflows of calls, each call with what it truly costs, which no policy sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.types import Priority

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SimCall:
    """One call of a workflow and its truth.

    parents : places in the workflow's `calls` of those that must end first; all smaller than its own place
    delay_s : from the end of the last parent (for a root: from the workflow's arrival) to the call's arrival
    prefix_blocks : hashes of the prompt's leading blocks; output_blocks : of the blocks that its answer completes
    cached_tokens : prompt tokens that need no prefill wherever it runs: what a log saw cached, where blocks are unknown
    group : calls that share it share a prompt template; record_index : row of the log it comes from, -1 if none
    priority : its own label, None for its workflow's
    reuse, pause_s : what is known when it ends, for engines that evict by it: the chance that the workflow's next call
        uses what it leaves in the cache, and the 95th percentile of the time until then
    stuck : it shows no progress while it runs, for all of its output_tokens
    median_tokens, sigma : the best that a predictor can know, for synthetic calls: output is lognormal with this
        median and log standard deviation; nan where it is not known
    """

    key: str
    output_tokens: float
    parents: tuple[int, ...] = ()
    delay_s: float = 0.0
    type: str | None = None
    model: str = "model"
    prompt: str = ""
    prompt_tokens: int = 0
    max_tokens: int | None = None
    group: str = ""
    prefix_blocks: tuple[int, ...] = ()
    output_blocks: tuple[int, ...] = ()
    cached_tokens: int = 0
    record_index: int = -1
    median_tokens: float = float("nan")
    sigma: float = float("nan")
    priority: Priority | None = None
    reuse: float = 1.0
    pause_s: float = 0.0
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class SimWorkflow:
    """One run of an agent. kind : what sort of run, for reports; never shown to a policy."""

    id: str
    arrival_s: float
    calls: tuple[SimCall, ...]
    tenant: str = "default"
    priority: Priority = "normal"
    kind: str = ""


@dataclass(frozen=True)
class Workload:
    """Workflows in order of arrival. Raises BadInput when empty, out of order, not finite, or with a wrong graph."""

    workflows: tuple[SimWorkflow, ...]

    def __post_init__(self) -> None:
        if not self.workflows:
            raise BadInput("the workload is empty; it needs at least one workflow with one call")
        last = 0.0
        for workflow in self.workflows:
            if not last <= workflow.arrival_s < float("inf"):
                raise BadInput(
                    f"workflow {workflow.id!r} arrives at {workflow.arrival_s}; arrivals must be finite, not negative "
                    "and in order"
                )
            last = workflow.arrival_s
            _check(workflow)

    @cached_property
    def call_count(self) -> int:
        return sum(len(w.calls) for w in self.workflows)

    def calls(self) -> Sequence[SimCall]:
        """All calls, in the order of a result's rows."""
        return [c for w in self.workflows for c in w.calls]


def _check(workflow: SimWorkflow) -> None:
    if not workflow.calls:
        raise BadInput(f"workflow {workflow.id!r} has no calls")
    for place, call in enumerate(workflow.calls):
        if not (0 < call.output_tokens < float("inf") and 0 <= call.delay_s < float("inf") and call.prompt_tokens >= 0):
            raise BadInput(
                f"workflow {workflow.id!r} call {call.key!r}: output_tokens must be positive, delay_s and "
                f"prompt_tokens not negative, all finite; got {call.output_tokens}, {call.delay_s}, "
                f"{call.prompt_tokens}"
            )
        if call.parents and not (min(call.parents) >= 0 and max(call.parents) < place):
            raise BadInput(
                f"workflow {workflow.id!r} call {call.key!r} at place {place} names parents {call.parents}; "
                "parents stand before their children"
            )


Gaps = Callable[[int, np.random.Generator], Array]  # n gaps of mean 1


def poisson(n: int, rng: np.random.Generator) -> Array:
    """Exponential gaps of mean 1."""
    return rng.exponential(1.0, n)


@dataclass(frozen=True, slots=True)
class GammaGaps:
    """Independent gamma gaps of mean 1; cv = 1 is Poisson, cv > 1 arrives in clumps."""

    cv: float = 3.0

    def __call__(self, n: int, rng: np.random.Generator) -> Array:
        shape = 1 / self.cv**2
        return rng.gamma(shape, 1 / shape, n)


@dataclass(frozen=True, slots=True)
class OnOffGaps:
    """Poisson at `ratio` times the off-rate during on-phases; both phases are exponential.

    period : mean length of an on- plus an off-phase, in mean gaps; on_share : share of time that is on
    """

    ratio: float = 5.0
    period: float = 400.0
    on_share: float = 0.25

    def __call__(self, n: int, rng: np.random.Generator) -> Array:
        off_rate = 1 / (self.on_share * self.ratio + 1 - self.on_share)
        times: list[Array] = []
        now, count, on = 0.0, 0, bool(rng.random() < self.on_share)
        while count < n:
            length = rng.exponential(self.period * (self.on_share if on else 1 - self.on_share))
            arrivals = rng.poisson(length * off_rate * (self.ratio if on else 1.0))
            times.append(now + np.sort(rng.uniform(0, length, arrivals)))
            now, count, on = now + length, count + arrivals, not on
        return np.diff(np.concatenate(times)[:n], prepend=0.0)


@dataclass(frozen=True, slots=True)
class RecordedGaps:
    """The gaps of a recorded arrival sequence, from a random place on and around, scaled to mean 1."""

    arrivals_s: tuple[float, ...]

    def __call__(self, n: int, rng: np.random.Generator) -> Array:
        gaps = np.diff(np.asarray(self.arrivals_s, dtype=np.float64))
        if gaps.size < 1 or not np.all(np.isfinite(gaps)) or gaps.min() < 0 or gaps.sum() <= 0:
            raise BadInput("recorded arrivals need at least two finite times in order, not all equal")
        picked: Array = gaps[(np.arange(n) + rng.integers(gaps.size)) % gaps.size]
        return picked / float(gaps.mean())


def arriving(workflows: Sequence[SimWorkflow], per_s: float, gaps: Gaps, rng: np.random.Generator) -> Workload:
    """The workflows in the given order, arriving on average `per_s` a second: the gaps' own mean is scaled away.

    So the offered load of a finite run is exactly the wanted one, whatever the seed.
    """
    if not 0 < per_s < float("inf"):
        raise ValueError(f"workflows per second must be positive and finite, got {per_s}")
    between = gaps(len(workflows), rng)
    times = np.cumsum(between) * (len(workflows) / (per_s * max(float(between.sum()), 1e-300)))
    return Workload(tuple(replace(w, arrival_s=float(t)) for w, t in zip(workflows, times, strict=True)))
