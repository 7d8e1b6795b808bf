"""Agent execution graphs from past logs: what follows a call of each type, how surely, and what reuses its cache."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log

from swarmx.types import CallRecord

CONFIDENCE = 0.7  # of the next step, below which a pattern is not used (SAGA)
Z_95 = 1.645
# P50 and P95 of a tool's seconds where nothing has been seen (SAGA, arXiv 2605.00528)
TOOL_PRIORS_S = {"code": (0.18, 2.4), "file": (0.045, 0.32), "web": (0.85, 4.5), "db": (0.12, 0.89)}
MOST_TTL_S = 300.0


@dataclass(frozen=True, slots=True)
class Pattern:
    """What follows a call of one type. next : type -> probability; end : that the workflow ends; seen : such calls

    fresh_tokens : mean prompt tokens by which the next prompt is longer than this call's prompt and answer
    """

    next: Mapping[str, float]
    end: float
    seen: int
    fresh_tokens: Mapping[str, float] = field(default_factory=dict)

    @property
    def confidence(self) -> float:
        """Probability of the likeliest continuation, the end being one."""
        return max((*self.next.values(), self.end))


@dataclass(frozen=True)
class InferredGraph:
    """Patterns by call type."""

    patterns: Mapping[str, Pattern]

    def next_type(self, call_type: str, confidence: float = CONFIDENCE) -> str | None:
        """The type that will follow; None when the pattern is not that sure, or the workflow ends."""
        pattern = self.patterns.get(call_type)
        if pattern is None or not pattern.next or pattern.confidence < confidence or pattern.end == pattern.confidence:
            return None
        return max(sorted(pattern.next), key=lambda t: pattern.next[t])

    def reuse(self, call_type: str, cached_tokens: float) -> float:
        """Probability-weighted share of the next prompts that this session's cache would serve, in [0, 1].

        sum over next types u of P(u) * cached / (cached + new tokens of u).
        """
        pattern = self.patterns.get(call_type)
        if pattern is None or cached_tokens <= 0:
            return 0.0
        return sum(p * cached_tokens / (cached_tokens + pattern.fresh_tokens[t]) for t, p in pattern.next.items())


def infer(records: Sequence[CallRecord], least: int = 5) -> InferredGraph:
    """Patterns of types seen at least `least` times in calls that ended well; parents are `parent_id`.

    A call with several children counts each of them with equal weight, so that a fan-out is one continuation.
    """
    good = {r.call_id: r for r in records if r.status == "ok" and r.type is not None}
    children: dict[str, list[CallRecord]] = defaultdict(list)
    for record in good.values():
        if record.parent_id in good:
            children[str(record.parent_id)].append(record)
    seen: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    following: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    fresh: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in good.values():
        name = str(record.type)
        seen[name] += 1
        found = children.get(record.call_id, [])
        if not found:
            ends[name] += 1
        for child in found:
            following[name][str(child.type)] += 1 / len(found)
            held = record.prompt_tokens + record.output_tokens
            fresh[name, str(child.type)].append(max(child.prompt_tokens - held, 0.0))
    patterns = {}
    for name, count in seen.items():
        if count >= least:
            chances = {t: n / count for t, n in sorted(following[name].items())}
            tokens = {t: sum(fresh[name, t]) / len(fresh[name, t]) for t in chances}
            patterns[name] = Pattern(chances, ends[name] / count, count, tokens)
    return InferredGraph(patterns)


def cache_ttl_s(tool: str, memory_used: float, seen_s: Sequence[float] = (), least: int = 20) -> float:
    """How long a session's cache is worth keeping while one of its tools runs.

    min(P95 of the tool's seconds * (1 - m / 2), 300 s), m rising from 0 to 1 as memory use goes from 0.7 to 0.9. The
    P95 is that of a lognormal through what was seen, or the prior of the kind of tool while less than `least` was.
    Raises ValueError for an unknown tool without enough observations.
    """
    pressure = min(max((memory_used - 0.7) / 0.2, 0.0), 1.0)
    return min(_p95_s(tool, seen_s, least) * (1 - pressure / 2), MOST_TTL_S)


def _p95_s(tool: str, seen_s: Sequence[float], least: int) -> float:
    if len(seen_s) >= least:
        logs = [log(max(s, 1e-6)) for s in seen_s]
        mean = sum(logs) / len(logs)
        spread = (sum((x - mean) ** 2 for x in logs) / (len(logs) - 1)) ** 0.5
        return exp(mean + Z_95 * spread)
    if tool not in TOOL_PRIORS_S:
        known = ", ".join(TOOL_PRIORS_S)
        raise ValueError(f"no prior for tool {tool!r}; known are {known}, or give {least} observations")
    return TOOL_PRIORS_S[tool][1]
