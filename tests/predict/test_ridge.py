"""The ridges of a head: scaled features, and which scales and strengths are chosen."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from swarmx.predict.ridge import Design, fit_ridge, solve

N, DENSE, SPARSE = 300, 6, 40


def design(rng: np.random.Generator) -> Design:
    sparse = rng.normal(size=(N, SPARSE)) * (rng.random((N, SPARSE)) < 0.1)
    return Design(rng.normal(size=(N, DENSE)).astype(np.float32), csr_array(sparse.astype(np.float32)))


def test_scaled_features_solve_the_normal_equations_of_scaled_columns() -> None:
    rng = np.random.default_rng(0)
    x, y = design(rng), rng.normal(size=(N, 2))
    scale, strength = rng.choice([0.0, 1.0, 4.0], size=(DENSE + SPARSE, 2)), np.array([3.0, 30.0])
    found = solve(x, y, strength, scale, steps=500)
    whole = np.hstack((x.dense, x.sparse.toarray())).astype(np.float64)
    for t in range(2):
        own = whole * scale[:, t]
        exact = scale[:, t] * np.linalg.solve(own.T @ own + strength[t] * np.eye(own.shape[1]), own.T @ y[:, t])
        np.testing.assert_allclose(found[:, t], exact, atol=5e-3 * np.abs(exact).max())
        assert not found[scale[:, t] == 0, t].any()


def test_features_that_only_tell_groups_apart_are_left_out() -> None:
    # six columns carry the truth; the sparse ones are a mark of each of 30 groups, whose offsets mean nothing elsewhere
    rng = np.random.default_rng(1)
    group = np.arange(N) % 30
    marks = csr_array((3.0 * (group[:, None] == np.arange(SPARSE))).astype(np.float32))
    x = Design(rng.normal(size=(N, DENSE)).astype(np.float32), marks)
    y = x.dense @ rng.normal(size=(DENSE, 1)) + rng.normal(size=(30, 1))[group]
    plain = np.ones((DENSE + SPARSE, 1))
    weak, without = plain.copy(), plain.copy()
    weak[:DENSE], without[DENSE:] = 0.01, 0.0
    found = fit_ridge(x, y.astype(np.float64), group % 5, [weak, without], (10.0, 1.0))
    assert found.scales.tolist() == [1]
    assert not found.weights[DENSE:].any() and found.r2[0] > 0.5


def test_one_strength_takes_the_first_scales_without_a_search() -> None:
    rng = np.random.default_rng(2)
    x, y = design(rng), rng.normal(size=(N, 1))
    first, second = np.ones((DENSE + SPARSE, 1)), np.zeros((DENSE + SPARSE, 1))
    found = fit_ridge(x, y, np.arange(N) % 4, [first, second], (3.0,))
    assert found.scales.tolist() == [0] and found.strengths.tolist() == [3.0]
