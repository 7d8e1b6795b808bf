"""Which replicas come and go: from a target to ids, so that the loss is least and no call is cut."""

from __future__ import annotations

from collections.abc import Mapping

from swarmx.scaling.decisions import Scale
from swarmx.scaling.samples import PoolSample, ReplicaView


def plan(sample: PoolSample, target: int, kinds: Mapping[str, int] | None = None) -> Scale:
    """Changes that bring the pool to the target.

    kinds : device kind -> replicas wanted of it, adding up to the target; None: of the kind that most are of
    Draining replicas are taken back before any are ordered. Starting ones are cancelled before ready ones drain; of
    those, the one whose loss costs least drains first. Drained and empty ones are removed.
    """
    resume: list[str] = []
    cancel: list[str] = []
    drain: list[str] = []
    add: dict[str, int] = {}
    for device, wanted in _kinds(sample, target, kinds).items():
        views = [v for v in sample.replicas if v.device == device]
        here = [v for v in views if v.stage != "draining"]
        missing = wanted - len(here)
        if missing > 0:
            back = sorted((v for v in views if v.stage == "draining"), key=lambda v: (-v.in_flight, v.id))[:missing]
            resume += [v.id for v in back]
            if missing > len(back):
                add[device] = missing - len(back)
        elif missing < 0:
            going = sorted(here, key=cost_of_loss)[:-missing]
            cancel += [v.id for v in going if v.stage == "starting"]
            drain += [v.id for v in going if v.stage == "ready"]
    empty = (v.id for v in sample.replicas if v.stage == "draining" and v.in_flight == 0)
    remove = tuple(name for name in empty if name not in resume)
    return Scale(sample.pool, target, add, tuple(drain), tuple(resume), tuple(cancel), remove)


def cost_of_loss(view: ReplicaView) -> tuple[int, float, float, int, str]:
    """What to lose first: one that is not ready (the latest to be), then least work, then least capacity per price."""
    if view.stage == "starting":
        return (0, -view.ready_in_s, 0.0, 0, view.id)
    work = view.work_s if view.work_s > 0 else float(view.in_flight)
    return (1, work, view.capacity / max(view.price, 1e-9), view.in_flight, view.id)


def _kinds(sample: PoolSample, target: int, kinds: Mapping[str, int] | None) -> Mapping[str, int]:
    if kinds is not None:
        present = {v.device: 0 for v in sample.replicas}
        return {**present, **kinds}
    counts: dict[str, int] = {}
    for view in sample.replicas:
        counts.setdefault(view.device, 0)
        counts[view.device] += view.stage != "draining"
    if not counts:
        return {"default": target}
    main = max(sorted(counts), key=lambda d: counts[d])
    rest = target - sum(counts.values())
    if rest >= 0:
        return {**counts, main: counts[main] + rest}
    kept = dict(counts)
    here = [v for v in sample.replicas if v.stage != "draining"]
    for view in sorted(here, key=cost_of_loss)[:-rest]:
        kept[view.device] -= 1
    return kept
