"""The shapes of the recorded workflows, each an async function that only learns from the answers what comes next."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from swarmx.logs.record import Answer, Ask, Caller, Workflow

from . import passages
from .chains import CHAINS, Chain
from .people import EXTRACT, REPORT, ROLE, VERIFY
from .shots import Shown, correction
from .steps import FAN_OUTS, FanOut

Rng = np.random.Generator
BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s*(.+?)\s*$")
MOST_ITEMS = 6
TRIES = 3
NOTE_CHARS = 160
COMPLAINTS = (
    "I could not read that. Please write a list, with a dash before each item.",
    "That is not a list. Put each item on its own line and begin it with a dash.",
    "Sorry, I need a list with dashes, and nothing twice.",
)


def items(text: str) -> list[str]:
    """The list that the answer holds: lines that begin with a dash or a number, without repetitions, at most six."""
    found = (match.group(1) for line in text.splitlines() if (match := BULLET.match(line)))
    unique = {item.lower(): item for item in found if len(item) <= 120}
    return list(unique.values())[:MOST_ITEMS]


def tool_s(rng: Rng) -> float:
    """Seconds that a tool takes between two calls: lognormal, median 0.4."""
    return float(rng.lognormal(np.log(0.4), 0.7))


class Draft:
    """One run of a workflow: its caller, its dice, and who asks."""

    def __init__(self, call: Caller, rng: Rng, tenant: str, priority: str) -> None:
        self.call = call
        self.rng = rng
        self.tenant = tenant
        self.priority = priority

    async def ask(self, ask: Ask, after: Sequence[Answer] = ()) -> Answer:
        return await self.call(replace(ask, tenant=self.tenant, priority=self.priority), after=after)

    def alike(self, kind: Shown, xs: Sequence[str]) -> list[Ask]:
        """The same call for each x, as an agent's code makes it: one template, the same examples."""
        seed = int(self.rng.integers(2**63))
        return [kind.ask(np.random.default_rng(seed), x) for x in xs]

    async def listed(self, ask: Ask) -> tuple[Answer, list[str]]:
        """Ask for a list, and again while fewer than two items can be read, at most three times in all."""
        answer = await self.ask(ask)
        for attempt in range(TRIES - 1):
            if len(items(answer.text)) >= 2:
                break
            answer = await self.ask(correction(ask, answer.text, COMPLAINTS[attempt]), [answer])
        return answer, items(answer.text)

    async def merged(self, merge: Shown, names: Sequence[str], answers: Sequence[Answer]) -> None:
        notes = "\n".join(
            f"- {name}: {' '.join(a.text.split())[:NOTE_CHARS]}" for name, a in zip(names, answers, strict=True)
        )
        await self.ask(merge.ask(self.rng, notes), answers)


async def fan_out(run: Draft, shape: FanOut) -> None:
    """Plan, a call per item of the plan (with a tool or an editor after some), merge."""
    x = shape.plan.draw(run.rng)
    plan, names = await run.listed(shape.plan.ask(run.rng, x))
    if len(names) < 2:
        return
    uses_tool = run.rng.random() < 0.3
    edits = shape.polish is not None and run.rng.random() < 0.4

    async def branch(name: str, ask: Ask, pause_s: float) -> Answer:
        await asyncio.sleep(pause_s)
        answer = await run.ask(ask, [plan])
        if edits and shape.polish is not None and answer.text.strip():
            answer = await run.ask(shape.polish.ask(run.rng, answer.text), [answer])
        return answer

    asks = run.alike(shape.item, [shape.joint.format(item=name, x=x) for name in names])
    pauses = [tool_s(run.rng) if uses_tool else 0.0 for _ in names]
    answers = await asyncio.gather(*(branch(*one) for one in zip(names, asks, pauses, strict=True)))
    await run.merged(shape.merge, names, answers)


async def extract_verify(run: Draft) -> None:
    """Extract names from a text, verify each, look into those confirmed, report."""
    text = passages.people(run.rng)
    found, names = await run.listed(EXTRACT.ask(run.rng, text))
    if len(names) < 2:
        return
    checks = await asyncio.gather(
        *(run.ask(ask, [found]) for ask in run.alike(VERIFY, [f"{name} - {text}" for name in names]))
    )
    kept = [name for name, check in zip(names, checks, strict=True) if "yes" in check.text.lower()]
    if not kept:
        await run.merged(REPORT, names, checks)
        return
    roles = await asyncio.gather(
        *(run.ask(ask, checks) for ask in run.alike(ROLE, [f"{name} - {text}" for name in kept]))
    )
    await run.merged(REPORT, kept, roles)


async def chain(run: Draft, steps: Chain) -> None:
    """Each step works on the answer of the one before; some wait for a tool."""
    text, last = steps[0].draw(run.rng), []
    for index, step in enumerate(steps):
        if index and run.rng.random() < 0.3:
            await asyncio.sleep(tool_s(run.rng))
        answer = await run.ask(step.ask(run.rng, text), last)
        if not answer.text.strip():
            return
        text, last = answer.text.strip()[:800], [answer]


SHAPES: dict[str, float] = {"tasks": 0.21, "sights": 0.17, "quiz": 0.17, "article": 0.1, "extract": 0.15, "chain": 0.2}


def make_workflow(seed: Sequence[int], shape: str, tenant: str, priority: str) -> Workflow:
    """A workflow of that shape; the same seed makes the same prompts as long as the answers are the same."""

    async def workflow(call: Caller) -> None:
        run = Draft(call, np.random.default_rng(seed), tenant, priority)
        if shape == "extract":
            await extract_verify(run)
        elif shape == "chain":
            await chain(run, CHAINS[int(run.rng.integers(len(CHAINS)))])
        else:
            await fan_out(run, FAN_OUTS[shape])

    return workflow
