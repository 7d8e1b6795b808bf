"""What is read of a workflow's state: who has just ended and how long it was, who is over, who is live, and what had
been expected of the event's call and of the root from their texts.

A state's kind is the label of the call that the event is about, and whether the workflow has just begun. The columns of
a kind are its own, so that "twice as long a plan" may mean more tasks after a plan and nothing after a summary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log1p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.packed import packed, unpacked
from swarmx.predict.workflow_state import Step
from swarmx.types import Prediction

Array = NDArray[np.float64]
MOST_LABELS = 64  # the most frequent ones; the rest are nobody's
LABEL_ROWS = 10
NUMBERS = ("output_tokens", "finished", "live", "tokens_so_far", "prompt_tokens")  # each log(1 + number)
EXPECTED = ("tokens", "work", "calls")  # log(1 + predicted median), of the event's call and of the root
NO_TEXT = (np.nan,) * len(EXPECTED)


def label_of(step: Step) -> str:
    """The call's type, its model where it has none."""
    return step.type if isinstance(step.type, str) and step.type else f"model:{step.model}"


@dataclass(frozen=True, slots=True)
class StateVocabulary:
    """labels : known ones; models : known ones; middle, scale : (C,) of the columns that are numbers"""

    labels: tuple[str, ...]
    models: tuple[str, ...]
    middle: Array
    scale: Array

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of states; a kind's id is its place + 1, 0 for an unknown label."""
        return (*(f"{label} ended" for label in self.labels), *(f"{label} began" for label in self.labels))

    def kind_id(self, label: str, is_root: bool) -> int:
        place = self.labels.index(label) if label in self.labels else -1
        return 0 if place < 0 else 1 + place + (len(self.labels) if is_root else 0)

    @property
    def size(self) -> int:
        kinds, labels = 2 * len(self.labels), len(self.labels)
        return kinds + 2 * labels + len(self.models) + len(self.middle) + labels * len(NUMBERS)

    def as_json(self) -> dict[str, Any]:
        scaling = {"middle": packed(self.middle), "scale": packed(self.scale)}
        return {"labels": list(self.labels), "models": list(self.models), **scaling}

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> StateVocabulary:
        """Raises KeyError, TypeError or ValueError when the data are not what `as_json` wrote."""
        numbers = len(NUMBERS) + 2 * (len(EXPECTED) + 1)
        labels, models = tuple(map(str, data["labels"])), tuple(map(str, data["models"]))
        return cls(labels, models, unpacked(data["middle"], numbers), unpacked(data["scale"], numbers))


@dataclass(frozen=True, slots=True)
class StateRow:
    """One state in plain numbers, before scaling.

    finished, live : label -> calls; models : model -> calls over; numbers : as `NUMBERS`; expected, expected_root : as
    `EXPECTED`, None when nothing had been predicted
    """

    label: str
    is_root: bool
    finished: Mapping[str, int]
    live: Mapping[str, int]
    models: Mapping[str, int]
    numbers: tuple[float, ...]
    expected: tuple[float, ...] | None
    expected_root: tuple[float, ...] | None


def row_of(
    steps: Iterable[Step], event: Step, is_root: bool, expected: tuple[float, ...] | None,
    expected_root: tuple[float, ...] | None,
) -> StateRow:  # fmt: skip
    """Read a state. Numbers that are not finite, or negative, count as 0; no prompt tokens count as unknown."""
    finished: Counter[str] = Counter()
    live: Counter[str] = Counter()
    models: Counter[str] = Counter()
    tokens = 0.0
    for step in steps:
        if step.output_tokens is None:
            live[label_of(step)] += 1
        else:
            finished[label_of(step)] += 1
            models[step.model] += 1
            tokens += _number(step.output_tokens)
    numbers = (
        _number(event.output_tokens), finished.total(), live.total(), tokens, _number(event.prompt_tokens) or np.nan
    )  # fmt: skip
    logs = tuple(log1p(number) for number in numbers)
    return StateRow(label_of(event), is_root, finished, live, models, logs, expected, expected_root)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < float("inf") else 0.0


def expected_logs(prediction: Prediction | None) -> tuple[float, ...] | None:
    """log(1 + median) of a call's tokens, of its workflow's work after it, and of the calls it causes."""
    if prediction is None:
        return None
    rest = prediction.remaining_tokens
    work = 0.0 if rest is None else float(rest.at(0.5))
    calls = sum(float(grid.at(0.5)) for grid in prediction.downstream.values())
    return tuple(log1p(max(number, 0.0)) for number in (float(prediction.tokens.at(0.5)), work, calls))


def state_vocabulary(rows: Sequence[StateRow]) -> StateVocabulary:
    """Labels seen in at least `LABEL_ROWS` states, at most `MOST_LABELS`, all models, scales of the numbers."""
    counts = Counter(row.label for row in rows)
    frequent = [label for label, n in counts.most_common(MOST_LABELS) if n >= LABEL_ROWS]
    models = {model for row in rows for model in row.models}
    numbers = np.array([_numbers(row) for row in rows])
    there = np.isfinite(numbers)
    known = np.where(there, numbers, 0.0)
    middle = known.sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    spread = np.sqrt((np.where(there, known - middle, 0.0) ** 2).sum(axis=0) / np.maximum(there.sum(axis=0), 1))
    scale = np.where(spread < 1e-6, 1e6, spread)  # what never varied is ignored
    return StateVocabulary(tuple(sorted(frequent)), tuple(sorted(models)), middle, scale)


def _numbers(row: StateRow) -> tuple[float, ...]:
    """`NUMBERS`; `EXPECTED` and whether it is there, for the event's call and the root; nan where it is not."""
    text = (*(row.expected or NO_TEXT), float(row.expected is not None))
    return (*row.numbers, *text, *(row.expected_root or NO_TEXT), float(row.expected_root is not None))


def matrix(rows: Sequence[StateRow], vocabulary: StateVocabulary) -> tuple[Array, NDArray[np.int64]]:
    """Features (N, D) and kind ids (N,). The scales weigh the blocks against each other in a ridge."""
    v = vocabulary
    labels, models = {name: i for i, name in enumerate(v.labels)}, {name: i for i, name in enumerate(v.models)}
    n, width = len(rows), len(v.labels)
    out, kinds = np.zeros((n, v.size)), np.zeros(n, np.int64)
    numbers = np.array([_numbers(row) for row in rows]).reshape(n, len(v.middle))
    numbers = np.clip(np.nan_to_num((numbers - v.middle) / v.scale), -2.5, 2.5)  # what is missing counts as average
    text = 4 * width + len(v.models)
    for i, row in enumerate(rows):
        place = labels.get(row.label)
        if place is not None:
            kinds[i] = 1 + place + (width if row.is_root else 0)
            out[i, kinds[i] - 1] = 1.0
            start = text + len(v.middle) + place * len(NUMBERS)
            out[i, start : start + len(NUMBERS)] = 0.4 * numbers[i, : len(NUMBERS)]
        for offset, counts, places in (
            (2 * width, row.finished, labels), (3 * width, row.live, labels), (4 * width, row.models, models)
        ):  # fmt: skip
            for name, count in counts.items():
                if name in places:
                    out[i, offset + places[name]] = 0.7 * log1p(count)
    out[:, text : text + len(v.middle)] = 0.5 * numbers
    return out, kinds


def without_text(features: Array, vocabulary: StateVocabulary) -> Array:
    """The same features with what was expected from the texts set to its mean, for logs where it does not help."""
    features = features.copy()
    start = 4 * len(vocabulary.labels) + len(vocabulary.models)
    features[:, start + len(NUMBERS) : start + len(vocabulary.middle)] = 0.0
    return features
