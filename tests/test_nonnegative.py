"""Non-negative least squares against the definition: no other set of coordinates does better."""

from itertools import combinations

import numpy as np
import pytest

from swarmx.nonnegative import solve_non_negative


def best_by_all_sets(gram: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """The least loss over every set of active coordinates."""
    best, least = np.zeros(len(moment)), 0.0
    for size in range(1, len(moment) + 1):
        for chosen in combinations(range(len(moment)), size):
            index = list(chosen)
            part = np.linalg.solve(gram[np.ix_(index, index)], moment[index])
            loss = -float(part @ moment[index])
            if np.all(part >= 0) and loss < least - 1e-12:
                best, least = np.zeros(len(moment)), loss
                best[index] = part
    return best


@pytest.mark.parametrize("seed", range(200))
def test_the_solution_is_the_best_of_all_sets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(30, 4)) * np.abs(rng.normal(size=4))
    if seed % 3 == 0:
        rows[:, 1] = rows[:, 0] * rng.normal()  # two columns that cannot be told apart
    wanted = rows @ rng.normal(size=4) + 0.3 * rng.normal(size=30)
    gram, moment = rows.T @ rows, rows.T @ wanted
    scale = np.sqrt(np.diag(gram))
    gram, moment = gram / np.outer(scale, scale) + np.diag([0.0, 1e-3, 1e-3, 1e-4]), moment / scale
    found = solve_non_negative(gram, moment)
    assert (found >= 0).all()
    assert np.allclose(found, best_by_all_sets(gram, moment), atol=1e-6)


def test_what_cannot_be_solved_is_zero() -> None:
    assert not solve_non_negative(np.zeros((3, 3)), np.ones(3)).any()
    assert not solve_non_negative(np.eye(2), -np.ones(2)).any()
