"""Made-up workloads whose predictable part is known exactly: single calls, agent runs, giants, growing prompts.

Output lengths are lognormal. Of their log variance, a share `rho2` is what a perfect predictor of the prompt could know
(`SimCall.median_tokens`, `SimCall.sigma`); differences between types and a latent that a workflow's calls share are
part of it. Fan-out grows with the same latent. Nothing of this is in a prompt: these calls have no text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import exp, log, sqrt

import numpy as np

from swarmx.sim.workload import SimCall, SimWorkflow

# mean length of each type relative to the mean of all, before scaling
TYPE_MEANS = {
    "plan": 0.6, "code": 1.5, "repair": 1.0, "merge": 0.8,
    "search": 0.4, "summary": 0.8, "write": 1.8, "chat": 1.0, "turn": 1.0, "branch": 0.8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizes:
    """Lengths: lognormal with these means and coefficients of variation.

    rho2 : share of the log variance of output lengths that can be known from the prompt
    tool_s : mean delay of a tool call between two model calls; exponential
    """

    mean_tokens: float = 500.0
    cv: float = 2.0
    rho2: float = 0.6
    prompt_tokens: float = 500.0
    prompt_cv: float = 1.0
    tool_s: float = 2.0
    model: str = "model"

    def __post_init__(self) -> None:
        if not (self.mean_tokens > 0 and self.cv > 0 and 0 <= self.rho2 <= 1 and self.tool_s >= 0):
            raise ValueError(f"sizes need mean_tokens > 0, cv > 0, rho2 in [0, 1] and tool_s >= 0, got {self}")


class _Draw:
    """Draws calls of one workflow; `latent` is what they share."""

    def __init__(self, sizes: Sizes, types: Sequence[str], rng: np.random.Generator) -> None:
        self.sizes, self.rng = sizes, rng
        total = log(1 + sizes.cv**2)
        between = float(np.var([log(TYPE_MEANS[t]) for t in types])) if len(set(types)) > 1 else 0.0
        self.sigma = sqrt((1 - sizes.rho2) * total)
        self.spread = sqrt(max(sizes.rho2 * total - between, 0.0))
        self.scale = sizes.mean_tokens / float(np.mean([TYPE_MEANS[t] for t in types]))
        self.latent = float(rng.standard_normal())

    def fan_out(self, mean: float, most: int) -> int:
        """At least 1; its mean grows with the latent."""
        return int(min(1 + self.rng.poisson(max(mean - 1, 0.0) * exp(0.4 * self.latent - 0.08)), most))

    def delay(self) -> float:
        return float(self.rng.exponential(self.sizes.tool_s)) if self.sizes.tool_s else 0.0

    def prompt(self) -> int:
        spread2 = log(1 + self.sizes.prompt_cv**2)
        mean = self.sizes.prompt_tokens
        return max(int(mean * exp(self.rng.normal(-spread2 / 2, sqrt(spread2)))), 1) if mean else 0

    def call(self, key: str, type_: str, parents: tuple[int, ...] = (), delay_s: float = 0.0) -> SimCall:
        own = 0.7 * self.latent + sqrt(1 - 0.7**2) * float(self.rng.standard_normal())
        mean = self.scale * TYPE_MEANS[type_] * exp(self.spread * own - self.spread**2 / 2)
        median = mean * exp(-(self.sigma**2) / 2)
        tokens = max(median * exp(self.sigma * float(self.rng.standard_normal())), 1.0)
        return SimCall(
            key, tokens, parents, delay_s, type_, self.sizes.model, "", self.prompt(), group=type_,
            median_tokens=median, sigma=self.sigma,
        )  # fmt: skip


def single(n: int, sizes: Sizes, rng: np.random.Generator) -> list[SimWorkflow]:
    """n independent calls, each its own workflow."""
    draws = (_Draw(sizes, ["chat"], rng) for _ in range(n))
    return [SimWorkflow(f"s{i}", 0.0, (d.call("call", "chat"),), kind="single") for i, d in enumerate(draws)]


CODE_TYPES = ("plan", *("code",) * 4, *("repair",) * 3, "merge")
RESEARCH_TYPES = ("plan", *("search",) * 3, *("summary",) * 5, "write")


def codegen(name: str, sizes: Sizes, rng: np.random.Generator, mean_width: float = 4.0, most: int = 8) -> SimWorkflow:
    """plan -> k coders in parallel -> for each, while its tests fail, a repair after a tool delay -> merge."""
    draw = _Draw(sizes, CODE_TYPES + RESEARCH_TYPES, rng)
    calls = [draw.call("plan", "plan")]
    ends = []
    for k in range(draw.fan_out(mean_width, most)):
        calls.append(draw.call(f"code{k}", "code", (0,)))
        for attempt in range(4):
            if rng.random() > 0.4:
                break
            calls.append(draw.call(f"repair{k}.{attempt}", "repair", (len(calls) - 1,), draw.delay()))
        ends.append(len(calls) - 1)
    calls.append(draw.call("merge", "merge", tuple(ends), draw.delay()))
    return SimWorkflow(name, 0.0, tuple(calls), kind="codegen")


def research(name: str, sizes: Sizes, rng: np.random.Generator, mean_width: float = 3.0, most: int = 6) -> SimWorkflow:
    """plan -> k searches in parallel -> m summaries of each after a tool delay -> write."""
    draw = _Draw(sizes, CODE_TYPES + RESEARCH_TYPES, rng)
    calls = [draw.call("plan", "plan")]
    ends = []
    for k in range(draw.fan_out(mean_width, most)):
        search = len(calls)
        calls.append(draw.call(f"search{k}", "search", (0,)))
        tool = draw.delay()
        for m in range(draw.fan_out(2.0, 4)):
            ends.append(len(calls))
            calls.append(draw.call(f"summary{k}.{m}", "summary", (search,), tool))
    calls.append(draw.call("write", "write", tuple(ends)))
    return SimWorkflow(name, 0.0, tuple(calls), kind="research")


def mix(n: int, sizes: Sizes, rng: np.random.Generator) -> list[SimWorkflow]:
    """n workflows, half `codegen`, half `research`, in random order."""
    return [(codegen if rng.random() < 0.5 else research)(f"w{i}", sizes, rng) for i in range(n)]


def giants(
    n: int, sizes: Sizes, rng: np.random.Generator, share: float = 0.015, width: float = 100.0
) -> list[SimWorkflow]:
    """`mix`, a share of whose workflows is `codegen` with about twice `width` calls."""
    out = []
    for i in range(n):
        if rng.random() < share:
            out.append(codegen(f"g{i}", sizes, rng, mean_width=width, most=int(2 * width)))
        else:
            out.append((codegen if rng.random() < 0.5 else research)(f"w{i}", sizes, rng))
    return out


@dataclass(frozen=True, slots=True)
class Sessions:
    """Agent sessions whose prompt grows by what was said: prompt of a turn = system prompt + all earlier turns + input.

    fork_share : share of turns that ask three ways at once; the session goes on from the first answer
    block_tokens : size of the blocks that prompts are hashed in; must be that of the replicas
    """

    turns: tuple[int, int] = (3, 15)
    systems: int = 8
    system_tokens: int = 1500
    input_tokens: float = 200.0
    fork_share: float = 0.1
    block_tokens: int = 64


def agents(n: int, sizes: Sizes, rng: np.random.Generator, shape: Sessions = Sessions()) -> list[SimWorkflow]:
    """n sessions. `sizes.prompt_tokens` is not used: prompts follow from the sessions' shape."""
    numbers = count(1)
    fresh: Callable[[int], list[int]] = lambda k: [next(numbers) for _ in range(k)]  # noqa: E731
    systems = [fresh(shape.system_tokens // shape.block_tokens) for _ in range(shape.systems)]
    return [_session(f"a{i}", sizes, rng, shape, systems[int(rng.integers(shape.systems))], fresh) for i in range(n)]


def _session(
    name: str,
    sizes: Sizes,
    rng: np.random.Generator,
    shape: Sessions,
    system: list[int],
    fresh: Callable[[int], list[int]],
) -> SimWorkflow:
    draw = _Draw(sizes, ["turn"], rng)
    calls: list[SimCall] = []
    blocks, tokens = list(system), shape.system_tokens
    last: tuple[int, ...] = ()
    for turn in range(int(rng.integers(shape.turns[0], shape.turns[1] + 1))):
        tokens += max(int(rng.exponential(shape.input_tokens)), 1)
        blocks += fresh(tokens // shape.block_tokens - len(blocks))
        delay = draw.delay() if turn else 0.0
        heads = []
        for branch in range(3 if turn and rng.random() < shape.fork_share else 1):
            base = draw.call(f"turn{turn}.{branch}", "turn", last, delay)
            after = fresh((tokens + int(base.output_tokens)) // shape.block_tokens - len(blocks))
            heads.append((base, after))
        first = len(calls)
        for base, after in heads:
            calls.append(_with_prompt(base, tokens, tuple(blocks), tuple(after)))
        last = tuple(range(first, len(calls)))
        tokens += int(heads[0][0].output_tokens)
        blocks += heads[0][1]
    return SimWorkflow(name, 0.0, tuple(calls), kind="agents")


def _with_prompt(call: SimCall, tokens: int, blocks: tuple[int, ...], after: tuple[int, ...]) -> SimCall:
    return replace(call, prompt_tokens=tokens, prefix_blocks=blocks, output_blocks=after)
