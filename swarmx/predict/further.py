"""What a training run learns beside the heads: the outlook of workflows, from states of the log's workflows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.downstream import FILE as DOWNSTREAM
from swarmx.predict.downstream_fit import Expected, evaluate_downstream, fit_downstream, has_workflows
from swarmx.predict.runtime import Predictor
from swarmx.predict.split import groups_of
from swarmx.predict.targets import TOKENS, WORK
from swarmx.predict.workflow_state import Observed, observed_states
from swarmx.quantiles import LEVELS
from swarmx.types import CallRecord

OUT_OF_FOLD = "out_of_fold.npz"
MOST_STATES = 30_000  # of all workflows together that are learned from, whole workflows
MEDIAN = int(np.searchsorted(LEVELS, 0.5))
FEWEST_GROUPS = 10  # root templates below which nothing is learned


def fit_further(
    directory: Path, calls: Sequence[CallRecord], testing: NDArray[np.bool_], predictor: Predictor, seed: int = 0
) -> dict[str, Any]:
    """Write `downstream.json` where the log has workflows of several calls; its metrics on the workflows whose roots
    were kept for testing, as one entry `downstream`.

    calls : the usable rows; testing : (N,) of them; predictor : the one just trained, whose predictions are features
    """
    states = observed_states(calls)
    if not has_workflows(states):
        return {}
    train = [state for state in states if not testing[state.root]] or states
    test = [state for state in states if testing[state.root]] or states
    groups = groups_of(calls).tolist()
    if len({groups[state.root] for state in train}) < FEWEST_GROUPS:
        return {}
    train = _thinned(train, seed)
    expected = _expected(directory, calls, predictor)
    learned = fit_downstream(calls, train, expected, groups, seed)
    (directory / DOWNSTREAM).write_text(json.dumps(learned.as_json()) + "\n")
    return {"downstream": evaluate_downstream(learned, calls, train, test, expected)}


def _thinned(states: list[Observed], seed: int) -> list[Observed]:
    """All states, or those of randomly chosen workflows when there are more than `MOST_STATES`."""
    if len(states) <= MOST_STATES:
        return states
    roots = sorted({state.root for state in states})
    share = MOST_STATES / len(states)
    kept = {
        root for root, coin in zip(roots, np.random.default_rng(seed).random(len(roots)), strict=True) if coin < share
    }
    return [state for state in states if state.root in kept]


def _expected(directory: Path, calls: Sequence[CallRecord], predictor: Predictor) -> Expected:
    """Predicted medians of each call by heads that had not seen it; none where there are no heads."""
    if predictor.heads is None:
        return lambda place: None
    medians = np.full((len(calls), len(predictor.targets)), np.nan)
    known: dict[str, int] = {}
    if (directory / OUT_OF_FOLD).is_file():
        with np.load(directory / OUT_OF_FOLD, allow_pickle=False) as stored:
            known = {str(call_id): i for i, call_id in enumerate(stored["call_id"])}
            values = stored["values"][:, :, MEDIAN]
        for n, call in enumerate(calls):
            if call.call_id in known:
                medians[n] = values[known[call.call_id]]
    rest = [n for n, call in enumerate(calls) if call.call_id not in known]
    if rest:
        medians[rest] = predictor.grids([calls[n] for n in rest]).values[:, :, MEDIAN]
    names = predictor.targets
    sums = [[names.index(TOKENS)], [t for t, name in enumerate(names) if name == WORK]]
    sums.append([t for t, name in enumerate(names) if name not in (TOKENS, WORK)])
    logs = np.log1p(np.stack([medians[:, columns].sum(axis=1) for columns in sums], axis=1))
    return lambda place: tuple(logs[place].tolist())
