"""What a log can be used for, and what it lacks where it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swarmx.logs.workflows import RecordedWorkflow
from swarmx.types import CallRecord

# A quantile rests on the calls beyond it: with n of them the share beyond is known to about 1/sqrt(n), 22 % here.
BEYOND_QUANTILE = 20
GROUPS = 20  # prompt groups, so that training, calibration and test each get several
PER_DEVICE = 100  # calls of a device kind before the engine model trusts its own fit


@dataclass(frozen=True, slots=True)
class Use:
    """One purpose. why : what makes it possible, or what is lacking."""

    purpose: str
    possible: bool
    why: str


def uses_of(records: Sequence[CallRecord], workflows: Sequence[RecordedWorkflow]) -> tuple[Use, ...]:
    """Every purpose in turn; `workflows` are the log's replayable ones, empty when its graph cannot be read."""
    ok = [r for r in records if r.status == "ok" and r.output_tokens > 0]
    return (
        _from_text(ok),
        _per_type(ok),
        *(_quantile(ok, level) for level in (0.95, 0.99)),
        _downstream(workflows),
        _engine(ok),
        _replay(records, workflows),
    )


def _from_text(ok: Sequence[CallRecord]) -> Use:
    purpose = "predict output tokens from the prompt"
    known = [r for r in ok if r.prompt or r.embedding]
    groups = {r.prompt_group or r.prompt_hash or r.workflow_id or r.call_id for r in known}
    if not known:
        return Use(purpose, False, "no ok call with output tokens has its prompt or embedding")
    if len(groups) < GROUPS:
        return Use(purpose, False, f"{len(groups)} prompt groups; a split by group needs {GROUPS}")
    return Use(purpose, True, f"{len(known)} calls in {len(groups)} prompt groups")


def _per_type(ok: Sequence[CallRecord]) -> Use:
    types = {r.type for r in ok if r.type}
    purpose = "quantiles per type"
    if not types:
        return Use(purpose, False, "no call has a type; only the quantiles of each model remain")
    return Use(purpose, True, f"{len(types)} types, {sum(bool(r.type) for r in ok)} calls")


def _quantile(ok: Sequence[CallRecord], level: float) -> Use:
    needed = round(BEYOND_QUANTILE / (1 - level))
    why = f"{len(ok)} calls of the {needed} that leave {BEYOND_QUANTILE} beyond it"
    return Use(f"P{level * 100:.0f} of output tokens", len(ok) >= needed, why)


def _downstream(workflows: Sequence[RecordedWorkflow]) -> Use:
    purpose = "predict how many calls a call will cause"
    several = sum(len(w.calls) > 1 for w in workflows)
    if several < GROUPS:
        return Use(purpose, False, f"{several} workflows of two calls or more; {GROUPS} are the least")
    return Use(purpose, True, f"{several} workflows of two calls or more")


def _engine(ok: Sequence[CallRecord]) -> Use:
    purpose = "fit engine speed per device"
    devices = {r.device for r in ok if r.device and r.finished_s is not None}
    timed = [r for r in ok if r.device and r.finished_s is not None and r.dispatched_s is not None]
    if not devices:
        return Use(purpose, False, "no ok call has both device and finished_s")
    for device in sorted(devices):
        calls = sum(r.device == device for r in timed)
        if calls < PER_DEVICE:
            return Use(purpose, False, f"{calls} calls of {device!r} have dispatched_s; {PER_DEVICE} are needed")
    split = "prefill apart from decode" if all(r.first_token_s is not None for r in timed) else "no first-token times"
    return Use(purpose, True, f"{len(timed)} calls on {len(devices)} device kinds, {split}")


def _replay(records: Sequence[CallRecord], workflows: Sequence[RecordedWorkflow]) -> Use:
    purpose = "replay under other policies"
    if not workflows:
        return Use(purpose, False, "its call graph cannot be read (see `swarmx log check`)")
    if len(workflows) < 2:
        return Use(purpose, False, "one workflow is no load")
    moments = {w.arrival_s for w in workflows}
    if len(moments) < 2:
        return Use(purpose, False, "all workflows arrive at one moment; choose an arrival process yourself")
    calls = sum(len(w.calls) for w in workflows)
    return Use(purpose, True, f"{calls} of {len(records)} calls in {len(workflows)} workflows")
