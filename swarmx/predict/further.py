"""What a training run learns beside the heads: the outlook of workflows, and seconds on the devices of the log."""

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
from swarmx.predict.seconds import FILE as SECONDS
from swarmx.predict.seconds_fit import FEWEST, evaluate_seconds, fit_seconds
from swarmx.predict.situations import timed
from swarmx.predict.split import groups_of
from swarmx.predict.targets import TOKENS, WORK
from swarmx.predict.workflow_state import Observed, observed_states
from swarmx.quantiles import LEVELS
from swarmx.types import CallRecord

Array = NDArray[np.float64]
OUT_OF_FOLD = "out_of_fold.npz"
MOST_STATES = 15_000  # of whole workflows that are learned from, and as many that are measured on
MEDIAN = int(np.searchsorted(LEVELS, 0.5))
FEWEST_GROUPS = 10  # root templates below which nothing is learned


def fit_further(
    directory: Path, calls: Sequence[CallRecord], testing: NDArray[np.bool_], predictor: Predictor, seed: int = 0
) -> dict[str, Any]:
    """Write `downstream.json` where the log has workflows of several calls, and `seconds.json` where it has devices and
    times; their metrics on what was kept for testing, as entries `downstream` and `seconds`.

    calls : the usable rows; testing : (N,) of them; predictor : the one just trained, whose predictions are features
    """
    values = _unseen(directory, calls, predictor)
    found = _downstream(directory, calls, testing, predictor, values, seed)
    return found | _seconds(directory, calls, testing, values[:, predictor.targets.index(TOKENS)])


def _unseen(directory: Path, calls: Sequence[CallRecord], predictor: Predictor) -> Array:
    """Grids of every call, (N, T, K), by heads that had not seen its template. Where the model has no heads they are
    quantiles per type, in which a training call counts itself."""
    values = np.empty((len(calls), len(predictor.targets), len(LEVELS)))
    known: dict[str, int] = {}
    if (directory / OUT_OF_FOLD).is_file():
        with np.load(directory / OUT_OF_FOLD, allow_pickle=False) as stored:
            known = {str(call_id): i for i, call_id in enumerate(stored["call_id"])}
            grids = stored["values"]
        rows = [n for n, call in enumerate(calls) if call.call_id in known]
        values[rows] = grids[[known[calls[n].call_id] for n in rows]]
    rest = [n for n, call in enumerate(calls) if call.call_id not in known]
    if rest:
        values[rest] = predictor.grids([calls[n] for n in rest]).values
    return np.maximum.accumulate(values, axis=-1)  # float32 on disk


def _downstream(
    directory: Path, calls: Sequence[CallRecord], testing: NDArray[np.bool_], predictor: Predictor, values: Array,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    states = observed_states(calls)
    train = [state for state in states if not testing[state.root]] or states
    test = [state for state in states if testing[state.root]] or states
    groups = groups_of(calls).tolist()
    if not has_workflows(train) or len({groups[state.root] for state in train}) < FEWEST_GROUPS:
        return {}
    train, test = _thinned(train, seed), _thinned(test, seed)
    expected = _expected(predictor, values[:, :, MEDIAN])
    learned = fit_downstream(calls, train, expected, groups, seed)
    (directory / DOWNSTREAM).write_text(json.dumps(learned.as_json()) + "\n")
    return {"downstream": evaluate_downstream(learned, calls, train, test, expected)}


def _thinned(states: list[Observed], seed: int) -> list[Observed]:
    """All states, or those of randomly chosen workflows when there are more than `MOST_STATES`."""
    if len(states) <= MOST_STATES:
        return states
    roots = sorted({state.root for state in states})
    coins = np.random.default_rng(seed).random(len(roots)) < MOST_STATES / len(states)
    kept = {root for root, coin in zip(roots, coins.tolist(), strict=True) if coin}
    return [state for state in states if state.root in kept]


def _expected(predictor: Predictor, medians: Array) -> Expected:
    """What had been expected of each call from its text; nothing where the model has learned from no text."""
    if predictor.heads is None:
        return lambda place: None
    names = predictor.targets
    parts = [[names.index(TOKENS)], [t for t, name in enumerate(names) if name == WORK]]
    parts.append([t for t, name in enumerate(names) if name not in (TOKENS, WORK)])
    logs = np.log1p(np.stack([medians[:, columns].sum(axis=1) for columns in parts], axis=1))
    return lambda place: tuple(logs[place].tolist())


def _seconds(directory: Path, calls: Sequence[CallRecord], testing: NDArray[np.bool_], tokens: Array) -> dict[str, Any]:
    places = timed(calls)
    train, test = places[~testing[places]], places[testing[places]]
    if len(train) < FEWEST:
        return {}
    try:
        learned = fit_seconds([calls[i] for i in train], tokens[train])
    except ValueError:  # times that identify no engine teach nothing about seconds
        return {}
    (directory / SECONDS).write_text(json.dumps(learned.as_json()) + "\n")
    test = test if len(test) else train
    return {"seconds": evaluate_seconds(learned, [calls[i] for i in train], [calls[i] for i in test], tokens[test])}
