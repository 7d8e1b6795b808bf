"""What the trials of `_predictor_moonshot.py` learn from: prompts of several logs, every model's mean log length.

One row is one prompt with its tools. Scored are the live single calls of gpt-oss-120b on the folds of
`benchmarks/predictor.py`, or the non-live ones, on which nothing was chosen. All other rows and models are for learning
alone, and a row that shares its text or its tools with a held-out prompt is left out of that fold, whoever answered it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _predictor_data import _home, bfcl, vllm_single  # type: ignore[import-not-found]
from numpy.typing import NDArray

from swarmx.predict.split import folds, groups_of
from swarmx.predict.text import text_of
from swarmx.predict.tools import without_tools
from swarmx.types import CallRecord

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
FOLDS = 5
DOMAINS = ("live", "non_live", "leaderboard")


@dataclass(frozen=True, slots=True)
class Prompts:
    """One row per prompt, those scored first.

    calls : one call of each, for its features; tools, texts : JSON of the tools, the text without them
    domain : (N,) place in DOMAINS; group : (N,); fold : (N,) of the scored rows, -1 of all others
    lengths : (N, M) mean log(1 + output tokens) of each model over its runs, nan where it did not run; first the target
    runs : (N,) of the target; observed : (N, most runs) its output tokens, nan where there are fewer
    """

    calls: list[CallRecord]
    tools: list[str]
    texts: list[str]
    domain: Rows
    group: NDArray[np.str_]
    fold: Rows
    models: list[str]
    lengths: Array
    runs: Rows
    observed: Array

    @property
    def scored(self) -> Rows:
        return np.flatnonzero(self.fold >= 0)

    @property
    def types(self) -> list[str]:
        return [call.type or "" for call in self.calls]

    def usable(self, out: NDArray[np.bool_]) -> Rows:
        """Rows that share neither text nor tools nor group with the rows held out, (n,); out : (N,)"""
        held = np.flatnonzero(out)
        seen = {self.texts[i] for i in held} | {self.tools[i] for i in held if len(self.tools[i]) > 2}
        groups = {self.group[i] for i in held}
        return np.array(
            [
                i
                for i in range(len(self.calls))
                if not (self.texts[i] in seen or self.tools[i] in seen or self.group[i] in groups)
            ]
        )


def read_prompts(source: str = "bfcl_multi_turn_vllm", live: bool = True, target: str = "gpt-oss-120b") -> Prompts:
    """All prompts of the live, the non-live and the leaderboard's log; scored are the live ones, or the non-live ones.

    Raises BadInput when a log is not there.
    """
    name, _, folder = source.partition(":")
    home: Path = _home(name, folder)
    _home("bfcl", str(home))
    scored = vllm_single(home, live=live, model=target)
    others = [
        *vllm_single(home, live=live, model="gpt-oss-20b"),
        *vllm_single(home, live=not live, model=target),
        *vllm_single(home, live=not live, model="gpt-oss-20b"),
        *bfcl(home, None),
    ]
    groups = groups_of(scored)
    fold_of_call = folds(groups, FOLDS, 0, [call.type for call in scored])
    group_of = {call.prompt: str(group) for call, group in zip(scored, groups, strict=True)}
    fold_of = {call.prompt: int(fold) for call, fold in zip(scored, fold_of_call, strict=True)}
    return _rows(scored, others, group_of, fold_of, target)


def _rows(
    scored: Sequence[CallRecord], others: Sequence[CallRecord], group_of: dict[str | None, str],
    fold_of: dict[str | None, int], target: str,
) -> Prompts:  # fmt: skip
    """One row per distinct prompt (text and tools), in the order in which they occur."""
    spent: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    first: dict[str, CallRecord] = {}
    for call in (*scored, *others):
        whole = text_of(call.prompt)
        first.setdefault(whole, call)
        spent[whole][call.model].append(call.output_tokens or 0)
    models = [target, *sorted({call.model for call in others} - {target})]
    most = max(len(runs[target]) for runs in spent.values())
    lengths = np.full((len(first), len(models)), np.nan)
    observed = np.full((len(first), most), np.nan)
    for i, whole in enumerate(first):
        for m, model in enumerate(models):
            if spent[whole].get(model):
                lengths[i, m] = np.log1p(spent[whole][model]).mean()
        observed[i, : len(spent[whole][target])] = spent[whole][target]
    calls, split = list(first.values()), [without_tools(whole) for whole in first]
    return Prompts(
        calls=calls, tools=[tools for tools, _ in split], texts=[text for _, text in split],
        domain=np.array([_domain(call) for call in calls]),
        group=np.array([group_of.get(call.prompt, f"other {call.prompt_group}") for call in calls]),
        fold=np.array([fold_of.get(call.prompt, -1) for call in calls]), models=models, lengths=lengths,
        runs=np.isfinite(observed).sum(axis=1), observed=observed,
    )  # fmt: skip


def _domain(call: CallRecord) -> int:
    if not call.model.startswith("gpt-oss"):
        return DOMAINS.index("leaderboard")
    return DOMAINS.index("live" if (call.type or "").startswith("live") else "non_live")
