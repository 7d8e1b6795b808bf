from statistics import NormalDist

import numpy as np
import pytest
import torch

from swarmx.commands.train import _weights
from swarmx.errors import BadInput
from swarmx.predict.calibrate import ordered
from swarmx.predict.export import folded
from swarmx.predict.features import BUCKETS, COUNTS
from swarmx.predict.fit import weigh
from swarmx.predict.fit_networks import Rows, pinball
from swarmx.predict.increasing import outwards, stretched
from swarmx.predict.mixing import best_shares, level_losses
from swarmx.predict.mixing import mixed as mix
from swarmx.predict.network import HeadConfig, Heads, level_weights
from swarmx.quantiles import LEVELS


@pytest.mark.parametrize("seed", range(5))
def test_grids_increase_whatever_the_weights(seed: int) -> None:
    torch.manual_seed(seed)
    heads = Heads(HeadConfig(targets=2, types=3, models=2, embedding=8, landmarks=4, count_landmarks=4)).eval()
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter.copy_(torch.randn_like(parameter) * 3)
        start = torch.randn(40, 2, len(LEVELS)).sort(-1).values * 5
        seen = torch.randn(40, 3 + 2 + len(COUNTS) + 8) * 4
        grids = heads.grids(start, torch.randn(40, 2) * 5, seen, torch.randint(0, 4, (40,)))
    assert grids.shape == (8, 40, 2, len(LEVELS)) and bool(torch.isfinite(grids).all())
    assert bool((grids.diff(dim=-1) >= 0).all())


def test_the_graph_removes_crossings_as_calibration_does() -> None:
    logs = np.random.default_rng(0).normal(size=(50, 2, len(LEVELS)))
    wanted = ordered(logs.reshape(-1, len(LEVELS))).reshape(logs.shape)
    np.testing.assert_array_equal(outwards(torch.from_numpy(logs)).numpy(), wanted)


def test_each_level_is_mixed_by_its_own_loss() -> None:
    # one part is right below the median and the other above it; levels within NEAR of the median share their votes
    rng, z = np.random.default_rng(1), np.array([NormalDist().inv_cdf(level) for level in LEVELS])
    middle = rng.normal(3, 0.5, 2000)
    logs, right = middle + 0.3 * rng.normal(size=2000), middle[:, None] + 0.3 * z
    noise = 0.6 * rng.normal(size=(2000, 1))
    low, high = np.where(LEVELS < 0.5, right, right + noise), np.where(LEVELS < 0.5, right + noise, right)
    shares = best_shares(low, high, logs)
    assert shares[0] > 0.7 and shares[-1] < 0.3
    grids = mix(low, high, shares)
    assert np.all(np.diff(grids, axis=1) >= 0)
    assert level_losses(grids, logs).sum() < min(level_losses(low, logs).sum(), level_losses(high, logs).sum())


def test_an_untrained_network_returns_the_start() -> None:
    # a step of the start may grow by a thousandth of the target's spread, so that equal levels can come apart
    start = torch.linspace(0, 5, len(LEVELS)).expand(3, 1, -1)
    out = stretched(start, torch.zeros(3, 1, len(LEVELS)), torch.ones(1, 1))
    np.testing.assert_allclose(out.numpy(), start.numpy(), atol=1.1e-3 * len(LEVELS))


def test_the_whole_graph_is_monotone_on_unseen_labels_and_empty_texts() -> None:
    torch.manual_seed(0)
    heads = Heads(HeadConfig(targets=1, types=2, models=1, embedding=0, count_landmarks=4)).eval()
    n = 6
    with torch.no_grad():
        out = heads(
            torch.zeros(n, 0), torch.randn(n, len(COUNTS)) * 100, torch.tensor([0, 1, 2, 0, 1, 2]),
            torch.tensor([0, 1, 0, 1, 0, 1]), torch.randint(0, BUCKETS, (n, 1)), torch.zeros(n, 1),
        )  # fmt: skip
    assert bool(torch.isfinite(out).all()) and bool((out.diff(dim=-1) >= 0).all())


def test_networks_are_heard_where_they_help_and_the_start_answers_alone_where_not() -> None:
    heads, rng, n = Heads(HeadConfig(targets=2, embedding=0, count_landmarks=4)).eval(), np.random.default_rng(0), 500
    middle = rng.normal(3, 1, (n, 2))
    grid = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
    logs, right = middle + 0.3 * rng.normal(size=(n, 2)), middle[..., None] + 0.3 * grid
    wrong = right + rng.normal(size=(n, 2, 1))
    start = np.stack((wrong[:, 0], right[:, 0]), axis=1)  # bad for the first target, good for the second
    own, nothing = np.stack((right[:, 0], wrong[:, 0]), axis=1), torch.zeros(n, 0)
    logs[:, 1] = logs[:, 0]
    given = Rows(torch.from_numpy(start), nothing, nothing, nothing, torch.from_numpy(logs))
    mixed, gain = weigh(heads, given, own.copy(), np.ones(1))
    # the parabola through six losses is not exact: the best level's weight is met to a fifth
    assert float(heads.trust[0].min()) > 0.8 and float(heads.trust[1].max()) < 0.2
    assert gain[0] < 0.5 and gain[1] < 1.01
    assert np.abs(mixed - right[:, [0, 0]]).mean() < 0.2 * np.abs(wrong - right).mean()


def test_the_weighted_loss_is_least_at_the_quantiles_for_any_weights() -> None:
    # 20,000 draws: the 0.9 quantile of a standard normal is known to 0.012
    rng = np.random.default_rng(0)
    drawn = torch.from_numpy(rng.normal(size=20_000))
    levels, weights = torch.tensor([0.5, 0.9]), torch.tensor([1.0, 7.0])
    losses = [float(pinball(torch.tensor([0.0, q]), drawn, levels, weights).mean()) for q in (1.15, 1.28, 1.41)]
    assert losses[1] < min(losses[0], losses[2])
    assert level_weights().mean() == pytest.approx(1) and level_weights()[-1] > level_weights()[6]


def test_level_weights_of_the_command_multiply_the_usual_ones() -> None:
    usual = tuple(level_weights())
    place = int(np.flatnonzero(np.isclose(LEVELS, 0.95))[0])
    found = _weights(["0.95=3"], usual)
    assert found[place] == pytest.approx(3 * usual[place]) and found[0] == usual[0]
    for wrong in ("0.95", "0.97=2", "0.95=x", "0.95=-1", "0.95=nan"):
        with pytest.raises(BadInput, match="is no LEVEL=WEIGHT"):
            _weights([wrong], usual)


@pytest.mark.parametrize("near", [0, 3])
def test_the_folded_graph_says_what_the_network_says(near: int) -> None:
    rng, n = np.random.default_rng(near), 200
    config = HeadConfig(targets=2, types=3, models=2, embedding=8, near=near, landmarks=40, count_landmarks=30,
                        near_landmarks=20)  # fmt: skip
    heads = Heads(config).eval()
    drawn = lambda *shape: torch.from_numpy(rng.normal(size=shape).astype(np.float32))  # noqa: E731
    embedding, counts = drawn(n, 8 + near), drawn(n, len(COUNTS))
    with torch.no_grad():
        heads.basis.fit(embedding, counts, seed=0)
        heads.dense.copy_(drawn(*heads.dense.shape))
        heads.theta.copy_(drawn(*heads.theta.shape))
        types, models = (torch.from_numpy(rng.integers(0, 3, n)) for _ in range(2))
        given = embedding, counts, types, models, torch.from_numpy(rng.integers(0, BUCKETS, (n, 5))), drawn(n, 5)
        wanted, found = heads(*given), folded(heads)(*given)
    assert float(wanted.std()) > 1
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)
