"""Prompts of the recorded log: many kinds of task, several templates each, and workflows made of them.

Every prompt names its template in `Ask.group`, so that whole templates can be held out. No prompt holds a digit, or
says in words how long its answer should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from swarmx.logs.record import Ask, Caller, Task, Workflow

from .long import LONG
from .short import SHORT as WORDS
from .texts import TEXTS
from .workflows import SHAPES, make_workflow

SHORT = (*WORDS, *TEXTS)

Rng = np.random.Generator
TENANTS = {"shop": 0.35, "press": 0.25, "school": 0.2, "lab": 0.12, "studio": 0.08}
PRIORITIES = {"high": 0.2, "normal": 0.6, "low": 0.2}
LONG_SHARE = 0.45  # of the single calls

__all__ = ["LONG", "SHAPES", "SHORT", "TENANTS", "draw_single", "draw_tasks"]


def draw(rng: Rng, weights: dict[str, float]) -> str:
    return str(rng.choice(list(weights), p=list(weights.values())))


def draw_single(rng: Rng) -> Ask:
    """A call that stands alone."""
    kinds = LONG if rng.random() < LONG_SHARE else SHORT
    ask = kinds[int(rng.integers(len(kinds)))].ask(rng)
    return replace(ask, tenant=draw(rng, TENANTS), priority=draw(rng, PRIORITIES))


def single(ask: Ask) -> Workflow:
    async def workflow(call: Caller) -> None:
        await call(ask)

    return workflow


def draw_tasks(prefix: str, count: int, seed: Sequence[int], single_share: float = 0.3) -> list[Task]:
    """`count` workflows and single calls, named `prefix/shape/number`; the same seed draws the same ones."""
    tasks = []
    for index in range(count):
        own = [*seed, index]
        rng = np.random.default_rng(own)
        if rng.random() < single_share:
            tasks.append(Task(f"{prefix}/single/{index}", single(draw_single(rng))))
        else:
            shape, tenant, priority = draw(rng, SHAPES), draw(rng, TENANTS), draw(rng, PRIORITIES)
            tasks.append(Task(f"{prefix}/{shape}/{index}", make_workflow([*own, 1], shape, tenant, priority)))
    return tasks
