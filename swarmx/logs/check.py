"""Is a log plausible? Each check is one line; what a valid file may hold and still mislead is looked for here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from swarmx.errors import BadInput
from swarmx.logs.workflows import workflows_of
from swarmx.types import CallRecord

Outcome = Literal["ok", "failed", "skipped"]
Finding = tuple[Outcome, str]

MAX_CUT = 0.10  # share of answers that may end at max_tokens before lengths are those of the cap
EARLY_S, MAX_EARLY = 0.001, 0.01  # a call may arrive this much before its parent's end, in this share of calls
LATENCY_RANGE_S = (0.001, 3600.0)  # of the median; outside, somebody took milliseconds for seconds
TOKEN_RANGE_S = (1e-5, 10.0)  # of the median time per output token


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. detail : what was counted, or why there was nothing to check."""

    name: str
    outcome: Outcome
    detail: str


def check_log(records: Sequence[CallRecord]) -> list[Check]:
    """Run every check on a valid log (`read_log` refuses an invalid one)."""
    return [Check(name, *check(records)) for name, check in CHECKS.items()]


def _graph(records: Sequence[CallRecord]) -> Finding:
    try:
        workflows = workflows_of(records)
    except BadInput as problem:
        return "failed", str(problem)
    calls = sum(len(w.calls) for w in workflows)
    return _judge(calls > 0), f"{calls} of {len(records)} calls can be replayed, in {len(workflows)} workflows"


def _causes_first(records: Sequence[CallRecord]) -> Finding:
    try:
        calls = [c for w in workflows_of(records) for c in w.calls if c.parents]
    except BadInput:
        return "skipped", "the call graph cannot be read"
    if not calls:
        return "skipped", "no call waits for another"
    early = [c for c in calls if c.early_s > EARLY_S]
    example = f", such as {early[0].record.call_id!r}" if early else ""
    detail = f"{len(early)} of {len(calls)} calls arrived before the calls they wait for had ended{example}"
    return _judge(len(early) <= MAX_EARLY * len(calls)), detail


def _parent_is_last(records: Sequence[CallRecord]) -> Finding:
    ends = {(r.workflow_id, r.call_id): r.finished_s for r in records}
    both = [r for r in records if r.waits_for and r.parent_id]
    if not both:
        return "skipped", "no call has both parent_id and waits_for"

    def agrees(r: CallRecord) -> bool:
        times = {p: ends.get((r.workflow_id, p)) for p in r.waits_for}
        known = [t for t in times.values() if t is not None]
        return r.parent_id in times and (not known or times[r.parent_id] in (None, max(known)))

    wrong = [r.call_id for r in both if not agrees(r)]
    detail = f"{len(wrong)} of {len(both)} parents are not the last of waits_for to end{_example(wrong)}"
    return _judge(not wrong), detail


def _one_start(records: Sequence[CallRecord]) -> Finding:
    starts: dict[str, set[float]] = {}
    for r in records:
        if r.workflow_arrival_s is not None:
            starts.setdefault(r.workflow_id or r.call_id, set()).add(r.workflow_arrival_s)
    if not starts:
        return "skipped", "no call has workflow_arrival_s"
    wrong = [name for name, times in starts.items() if len(times) > 1]
    return _judge(not wrong), f"{len(wrong)} of {len(starts)} workflows have several arrivals{_example(wrong)}"


def _ends(records: Sequence[CallRecord]) -> Finding:
    ok = [r for r in records if r.status == "ok"]
    timed = [r for r in ok if r.finished_s is not None]
    if not timed:
        return "skipped", "a trace of arrivals: no call has finished_s"
    return _judge(len(timed) == len(ok)), f"{len(ok) - len(timed)} of {len(ok)} ok calls lack finished_s"


def _answers(records: Sequence[CallRecord]) -> Finding:
    ok = [r for r in records if r.status == "ok"]
    empty = [r.call_id for r in ok if r.output_tokens == 0]
    good = bool(ok) and len(empty) <= 0.01 * len(ok)
    return _judge(good), f"{len(empty)} of {len(ok)} ok calls have no output tokens{_example(empty)}"


def _cut(records: Sequence[CallRecord]) -> Finding:
    capped = [r for r in records if r.status == "ok" and r.max_tokens is not None]
    if not capped:
        return "skipped", "no ok call has max_tokens"
    cut = sum(r.output_tokens >= (r.max_tokens or 0) for r in capped)
    detail = f"{cut} of {len(capped)} answers end at max_tokens ({cut / len(capped):.1%}, at most {MAX_CUT:.0%})"
    return _judge(cut <= MAX_CUT * len(capped)), detail


def _cached(records: Sequence[CallRecord]) -> Finding:
    known = [r for r in records if r.prompt_tokens and r.cached_tokens]
    if not known:
        return "skipped", "no call has cached tokens"
    wrong = [r.call_id for r in known if r.cached_tokens > r.prompt_tokens]
    return _judge(not wrong), f"{len(wrong)} of {len(known)} calls have more cached than prompt tokens{_example(wrong)}"


def _latency(records: Sequence[CallRecord]) -> Finding:
    times = [r.finished_s - r.arrival_s for r in records if r.status == "ok" and r.finished_s is not None]
    if not times:
        return "skipped", "no ok call has finished_s"
    low, high = LATENCY_RANGE_S
    detail = f"the median call takes {median(times):.4g} s, plausible is {low:g} to {high:g}"
    return _judge(low <= median(times) <= high), detail


def _token_time(records: Sequence[CallRecord]) -> Finding:
    times = [
        (r.finished_s - r.first_token_s) / (r.output_tokens - 1)
        for r in records
        if r.status == "ok" and r.finished_s is not None and r.first_token_s is not None and r.output_tokens > 1
    ]
    if not times:
        return "skipped", "no ok call has first_token_s"
    low, high = TOKEN_RANGE_S
    detail = f"the median token takes {median(times):.4g} s after the first, plausible is {low:g} to {high:g}"
    return _judge(low <= median(times) <= high), detail


def _embeddings(records: Sequence[CallRecord]) -> Finding:
    known = [r for r in records if r.embedding is not None]
    if not known:
        return "skipped", "no call has an embedding"
    sizes = {(r.encoder_sha, len(r.embedding or b"")) for r in known}
    good = len({sha for sha, _ in sizes}) == len(sizes) and all(sha for sha, _ in sizes)
    return _judge(good), f"{len(known)} embeddings, {len(sizes)} pairs of encoder and size (one size each)"


def _judge(good: bool) -> Outcome:
    return "ok" if good else "failed"


def _example(names: Sequence[str]) -> str:
    return f", such as {names[0]!r}" if names else ""


CHECKS: dict[str, Callable[[Sequence[CallRecord]], Finding]] = {
    "call graph": _graph,
    "causes before effects": _causes_first,
    "parent is the last waited for": _parent_is_last,
    "one arrival per workflow": _one_start,
    "ends": _ends,
    "answers": _answers,
    "answers cut at the cap": _cut,
    "cached within prompt": _cached,
    "latency in seconds": _latency,
    "time per token": _token_time,
    "embeddings": _embeddings,
}
