"""Turn a template and fillers into a call: with examples as earlier turns of the chat, or as a bare request."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from swarmx.logs.record import Ask
from swarmx.types import Messages

from .words import FILLERS

Rng = np.random.Generator
MAX_TOKENS = 320


def fill(rng: Rng, template: str, given: Mapping[str, str] | None = None) -> str:
    """The template with `{slot}` replaced by what is given, else by a word drawn from the slot's list."""
    slots = [name for _, name, _, _ in string.Formatter().parse(template) if name]
    words = {slot: (given or {}).get(slot) or str(rng.choice(FILLERS[slot])) for slot in slots}
    return template.format(**words)


def drawn(*templates: str) -> Callable[[Rng], str]:
    """A function that fills one of the templates."""

    def draw(rng: Rng) -> str:
        return fill(rng, str(rng.choice(templates)))

    return draw


@dataclass(frozen=True, slots=True)
class Shown:
    """A kind of task that is shown by examples: the model imitates their form, and roughly their length.

    templates : (instruction, request) pairs; the request holds `{x}`
    examples : (x, answer) pairs, of which some are shown
    draw : makes a new x
    """

    name: str
    templates: Sequence[tuple[str, str]]
    examples: Sequence[tuple[str, str]]
    draw: Callable[[Rng], str]
    least: int = 2
    most: int = 2

    def groups(self) -> list[str]:
        return [f"{self.name}/{index}" for index in range(len(self.templates))]

    def ask(self, rng: Rng, x: str | None = None) -> Ask:
        """A call about `x`, or about a new one. The same state of `rng` gives the same template and examples."""
        index = int(rng.integers(len(self.templates)))
        system, request = self.templates[index]
        count = min(int(rng.integers(self.least, self.most + 1)), len(self.examples))
        turns: list[Mapping[str, str]] = [{"role": "system", "content": system}]
        for chosen in rng.choice(len(self.examples), count, replace=False):
            shown, answer = self.examples[int(chosen)]
            turns.append({"role": "user", "content": request.format(x=shown)})
            turns.append({"role": "assistant", "content": answer})
        turns.append({"role": "user", "content": request.format(x=self.draw(rng) if x is None else x)})
        return Ask(tuple(turns), self.name, f"{self.name}/{index}", max_tokens=MAX_TOKENS)


@dataclass(frozen=True, slots=True)
class Bare:
    """A kind of task that is asked for without examples; the model decides how long it goes on."""

    name: str
    templates: Sequence[str]

    def groups(self) -> list[str]:
        return [f"{self.name}/{index}" for index in range(len(self.templates))]

    def ask(self, rng: Rng, given: Mapping[str, str] | None = None) -> Ask:
        index = int(rng.integers(len(self.templates)))
        text = fill(rng, self.templates[index], given)
        return Ask(text, self.name, f"{self.name}/{index}", max_tokens=MAX_TOKENS)


def correction(ask: Ask, answer: str, complaint: str) -> Ask:
    """The same call again, with the answer that could not be read and what was wrong with it; the group is the same."""
    messages: Messages = ({"role": "user", "content": ask.prompt},) if isinstance(ask.prompt, str) else ask.prompt
    turns = (*messages, {"role": "assistant", "content": answer}, {"role": "user", "content": complaint})
    return Ask(turns, f"{ask.type}_again", ask.group, ask.tenant, ask.priority, ask.max_tokens)
