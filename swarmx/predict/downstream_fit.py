"""Learning what workflows will still ask for, from a log's workflows; numpy alone.

Every target: a ridge on the state's features, its strength by cross-validation over root templates; quantiles seen near
the prediction, mixed with those of the state's kind by a weight that every kind chooses for itself (after the last step
of a plan nothing ever follows, and no smooth predictor says that as surely as the kind's own quantiles do); calibration
on the cross-fitted result. The texts' predictions are used by those targets alone that they help.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.predict.baselines import fit_groups
from swarmx.predict.calibrate import calibrate
from swarmx.predict.downstream import CALLS, TOTAL, WORK, Branch, Branches, DownstreamPredictor, Quantiles, Variant
from swarmx.predict.metrics import report
from swarmx.predict.start import fit_bins, fit_types
from swarmx.predict.state_features import StateRow, matrix, row_of, state_vocabulary, without_text
from swarmx.predict.workflow_state import Observed, Step
from swarmx.quantiles import LEVELS
from swarmx.types import CallRecord

Array = NDArray[np.float64]
Expected = Callable[[int], tuple[float, ...] | None]  # place of a record -> logs as `EXPECTED`, as predicted unseen
FOLDS = 5
FEWEST = 30  # workflows of several calls below which nothing is learned
STRENGTHS = (30.0, 10.0, 3.0, 1.0)
SHARES = np.linspace(0, 1, 6)  # tried weights of the bins against the kind
SHRINK = 20.0  # states that the weight of all kinds counts as, when a kind chooses its own
BINS = 12
GAIN = 0.98  # loss with the texts over that without, below which they are read
LOGISTIC_RIDGE, LOGISTIC_STEPS, LOGISTIC_ENOUGH = 0.1, 60, 0.01  # the last: largest change of a weight in a step
BRANCH_ROWS = 10  # times that a kind of call must have followed to be foreseen


def state_rows(records: Sequence[CallRecord], states: Sequence[Observed], expected: Expected) -> list[StateRow]:
    """What the predictor reads of recorded states."""
    over = [Step(r.call_id, r.model, r.type, r.prompt_tokens, float(r.output_tokens)) for r in records]
    live = [Step(r.call_id, r.model, r.type, r.prompt_tokens) for r in records]
    return [
        row_of(
            [*(over[i] for i in s.finished), *(live[i] for i in s.live)], live[s.event] if s.is_root else over[s.event],
            s.is_root, expected(s.event), expected(s.root),
        )
        for s in states
    ]  # fmt: skip


def outcomes(records: Sequence[CallRecord], states: Sequence[Observed]) -> dict[str, Array]:
    """Observed targets of each state, (N,): calls and output tokens to come per model, output tokens in all."""
    models = sorted({record.model for record in records})
    out = {kind + model: np.zeros(len(states)) for model in models for kind in (CALLS, WORK)}
    out[TOTAL] = np.zeros(len(states))
    for n, state in enumerate(states):
        for i in state.coming:
            out[CALLS + records[i].model][n] += 1
            out[WORK + records[i].model][n] += records[i].output_tokens
            out[TOTAL][n] += records[i].output_tokens
    return out


def has_workflows(states: Sequence[Observed]) -> bool:
    """Enough workflows of several calls to learn from."""
    return sum(state.is_root and bool(state.coming) for state in states) >= FEWEST


def fit_downstream(
    records: Sequence[CallRecord], states: Sequence[Observed], expected: Expected, groups: Sequence[str], seed: int = 0
) -> DownstreamPredictor:
    """Learn from these states.

    groups : of each record, linked ones the same; states of workflows whose roots share one stay in the same fold
    Raises ValueError when there are fewer root groups than folds.
    """
    from swarmx.predict.split import folds

    rows = state_rows(records, states, expected)
    vocabulary = state_vocabulary(rows)
    features, kinds = matrix(rows, vocabulary)
    fold = folds([groups[s.root] for s in states], FOLDS, seed)
    plain = without_text(features, vocabulary)
    number, found = len(vocabulary.kinds), followers(records, states)
    wanted = outcomes(records, states)
    fits = {name: _fit(plain, kinds, number, observed, fold) for name, observed in wanted.items()}
    branches, loss = _fit_branches(found, plain, kinds, number, fold)
    better: dict[str, Quantiles] = {}
    text_branches = replace(branches, learned=False)
    if any(row.expected is not None for row in rows):
        for name, observed in wanted.items():
            fit, own = _fit(features, kinds, number, observed, fold)
            if own < GAIN * fits[name][1]:
                better[name] = fit
        tried, own = _fit_branches(found, features, kinds, number, fold)
        text_branches = tried if own < GAIN * loss else text_branches
    targets = {name: fit for name, (fit, _) in fits.items()}
    return DownstreamPredictor(vocabulary, Variant(targets, branches), Variant(better, text_branches))


def _fit(
    x: Array, kinds: NDArray[np.int64], number: int, observed: Array, fold: NDArray[np.int64]
) -> tuple[Quantiles, float]:
    """One target, and its cross-fitted loss before calibration."""
    logs = np.log1p(observed)
    weights, middle, ridge = _ridge(x, logs, fold)
    near, own = np.empty((len(logs), len(LEVELS))), np.empty((len(logs), len(LEVELS)))
    for k in np.unique(fold):
        inside, out = fold != k, fold == k
        near[out] = fit_bins(ridge[inside], logs[inside], BINS).at(ridge[out])
        own[out] = fit_types(kinds[inside], logs[inside], number)[kinds[out]]
    trust = _trust(near, own, logs, kinds, number)
    mixed = trust[kinds][:, None] * near + (1 - trust[kinds][:, None]) * own
    found = Quantiles(
        weights, middle, fit_bins(ridge, logs, BINS), fit_types(kinds, logs, number), trust,
        calibrate(mixed, logs, np.ones(len(logs))), float(observed.max(initial=0.0)),
    )  # fmt: skip
    return found, float(_losses(mixed, logs).mean())


def _ridge(x: Array, y: Array, fold: NDArray[np.int64]) -> tuple[Array, float, Array]:
    """Weights (D,), intercept, and out-of-fold predictions (N,); the strength with the least out-of-fold error."""
    names = np.unique(fold)
    parts = [(x[fold == k].T @ x[fold == k], x[fold == k].sum(axis=0), fold == k) for k in names]
    gram, best, error = sum((part for part, _, _ in parts), np.zeros((x.shape[1], x.shape[1]))), STRENGTHS[0], np.inf
    kept = np.zeros(len(y))
    for strength in STRENGTHS:
        out = np.empty(len(y))
        for part, _, rows in parts:
            middle = float(y[~rows].mean())
            out[rows] = x[rows] @ _solve(gram - part, x[~rows].T @ (y[~rows] - middle), strength) + middle
        if (now := float(((out - y) ** 2).mean())) < error:
            best, error, kept = strength, now, out
    middle = float(y.mean())
    return _solve(gram, x.T @ (y - middle), best), middle, kept


def _solve(gram: Array, moment: Array, strength: float) -> Array:
    return np.asarray(np.linalg.solve(gram + strength * np.eye(len(gram)), moment))


def _trust(near: Array, own: Array, logs: Array, kinds: NDArray[np.int64], number: int) -> Array:
    """Weight of the bins for each kind, (number + 1,): the one with the least loss, drawn towards that of all kinds."""
    losses = np.stack([_losses(share * near + (1 - share) * own, logs) for share in SHARES], axis=1)  # (N, S)
    sums = np.zeros((number + 1, len(SHARES)))
    np.add.at(sums, kinds, losses)
    return np.asarray(SHARES[np.argmin(sums + SHRINK * losses.mean(axis=0), axis=1)])


def _losses(grids: Array, logs: Array) -> Array:
    """Pinball loss of each row over the levels, each divided by sqrt(level (1 - level)), (N,)."""
    gap = logs[:, None] - grids
    loss = np.maximum(LEVELS * gap, (LEVELS - 1) * gap) / np.sqrt(LEVELS * (1 - LEVELS))
    return np.asarray(loss.mean(axis=1))


def followers(records: Sequence[CallRecord], states: Sequence[Observed]) -> list[set[Branch]]:
    """The kinds of calls that each state's event released directly."""
    return [{Branch(records[i].type, records[i].model) for i in state.released} for state in states]


def _fit_branches(
    found: Sequence[set[Branch]], x: Array, kinds: NDArray[np.int64], number: int, fold: NDArray[np.int64]
) -> tuple[Branches, float]:
    """Logistic regressions where they beat the shares seen after each kind; and the cross-fitted log loss."""
    counts = Counter(branch for branches in found for branch in branches)
    names = tuple(sorted((b for b, n in counts.items() if n >= BRANCH_ROWS), key=lambda b: (b.type or "", b.model)))
    truth = np.array([[*(name in branches for name in names), not branches] for branches in found], dtype=np.float64)
    tables, learned = np.empty(truth.shape), np.empty(truth.shape)
    for k in np.unique(fold):
        inside, out = fold != k, fold == k
        tables[out] = _shares(truth[inside], kinds[inside], number)[kinds[out]]
        weights = _logistic(x[inside], truth[inside])
        learned[out] = 1 / (1 + np.exp(-np.clip(x[out] @ weights[:-1] + weights[-1], -30, 30)))
    losses = log_loss(learned, truth), log_loss(tables, truth)
    table = _shares(truth, kinds, number)
    return Branches(names, _logistic(x, truth), table, losses[0] < losses[1]), min(losses)


def _shares(truth: Array, kinds: NDArray[np.int64], number: int) -> Array:
    """How often each branch followed each kind, (number + 1, B + 1), half an average state added; row 0 of all."""
    sums, rows = np.zeros((number + 1, truth.shape[1])), np.zeros(number + 1)
    np.add.at(sums, kinds, truth)
    np.add.at(rows, kinds, 1.0)
    average = truth.mean(axis=0)
    shares = (sums + 0.5 * average) / (rows + 0.5)[:, None]
    shares[0] = average
    return np.asarray(shares)


def _logistic(x: Array, truth: Array) -> Array:
    """Weights (D + 1, B + 1) of ridge logistic regressions, all columns at once; the intercepts are not drawn to 0.

    Newton steps with the one Hessian that bounds all of them, X'X / 4 + ridge, accelerated with restarts.
    Boehning and Lindsay (1988), Monotonicity of Quadratic-Approximation Algorithms; O'Donoghue and Candes (2015).
    """
    x = np.hstack((x, np.ones((len(x), 1))))
    ridge = np.full(x.shape[1], LOGISTIC_RIDGE)
    ridge[-1] = 1e-3
    inverse = np.linalg.inv(x.T @ x / 4 + np.diag(ridge))
    share = np.clip(truth.mean(axis=0), 1e-4, 1 - 1e-4)
    weights = np.zeros((x.shape[1], truth.shape[1]))
    weights[-1] = np.log(share / (1 - share))
    ahead, momentum = weights, 1.0
    for _ in range(LOGISTIC_STEPS):
        slope = x.T @ (1 / (1 + np.exp(-np.clip(x @ ahead, -30, 30))) - truth) + ridge[:, None] * ahead
        new = ahead - inverse @ slope
        if float(((new - weights) * (ahead - new)).sum()) > 0:  # it has begun to swing back
            momentum = 1.0
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = new + (momentum - 1) / following * (new - weights)
        moved = float(np.abs(new - weights).max())
        weights, momentum = new, following
        if moved < LOGISTIC_ENOUGH:
            break
    return weights


def log_loss(shares: Array, truth: Array) -> float:
    """Mean over states of the summed log loss of independent yes-or-no questions, in nats."""
    p = np.clip(shares, 1e-4, 1 - 1e-4)
    return float(-(truth * np.log(p) + (1 - truth) * np.log(1 - p)).sum(axis=1).mean())


def evaluate_downstream(
    predictor: DownstreamPredictor, records: Sequence[CallRecord], train: Sequence[Observed], test: Sequence[Observed],
    expected: Expected,
) -> dict[str, Any]:  # fmt: skip
    """Metrics on held-out workflows, at their beginnings and after each call, beside quantiles per kind of state."""
    rows, seen = state_rows(records, test, expected), state_rows(records, train, expected)
    values, shares, _ = predictor.arrays(rows)
    kinds, learned_kinds = [(r.label, r.is_root) for r in rows], [(r.label, r.is_root) for r in seen]
    began = np.array([state.is_root for state in test])
    wanted, known = outcomes(records, test), outcomes(records, train)
    out: dict[str, Any] = {"states": len(test), "targets": {}}
    for t, name in enumerate(predictor.targets):
        if name not in wanted or (name == TOTAL and len(predictor.models) == 1):  # with one model it is that model's
            continue
        base: Mapping[str, Array] = {
            "per_kind": fit_groups(learned_kinds, known[name]).values(kinds),
            "unconditional": fit_groups([None] * len(seen), known[name]).values([None] * len(rows)),
        }
        parts = {"at the beginning": began, "after a call": ~began}
        out["targets"][name] = {
            part: report(values[at, t], wanted[name][at], {b: grid[at] for b, grid in base.items()})
            for part, at in parts.items() if at.any()
        }  # fmt: skip
    branches = predictor.plain.branches
    truth = np.array([[*(b in f for b in branches.names), not f] for f in followers(records, test)], dtype=np.float64)
    table = branches.table[[predictor.vocabulary.kind_id(*kind) for kind in kinds]]
    out["branches"] = {"log_loss": log_loss(shares, truth), "per_kind": log_loss(table, truth)}
    return out
