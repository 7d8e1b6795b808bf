from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from swarmx.predict.baselines import GroupQuantiles, fit_groups, keys_of
from swarmx.predict.calibrate import Calibration, calibrate, ordered
from swarmx.predict.features import COUNTS, features
from swarmx.predict.reading import Piece, grams
from swarmx.predict.split import folds, groups_of, held_out
from swarmx.predict.targets import CALLS, WORK, descendants, targets
from swarmx.predict.text import clip, text_of
from swarmx.quantiles import LEVELS
from swarmx.types import CallRecord

MakeLog = Callable[..., list[CallRecord]]

finite = st.floats(-20, 20, allow_nan=False)


@given(arrays(np.float64, (5, len(LEVELS)), elements=finite))
def test_ordering_keeps_the_median_and_only_widens(logs: np.ndarray) -> None:
    out = ordered(logs)
    k = int(np.searchsorted(LEVELS, 0.5))
    assert np.all(np.diff(out, axis=1) >= 0)
    np.testing.assert_array_equal(out[:, k], logs[:, k])
    assert np.all(out[:, k:] >= logs[:, k:]) and np.all(out[:, :k] <= logs[:, :k])


def test_calibration_makes_new_rows_covered() -> None:
    # truth normal with sd 1; the grids say 0.5. 4,000 rows a side: the sd of a share near 0.9 is 0.005
    rng = np.random.default_rng(0)
    from statistics import NormalDist

    z = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
    middle = rng.normal(3, 1, 8000)
    logs, truth = middle[:, None] + 0.5 * z, middle + rng.normal(size=8000)
    fitted = calibrate(logs[:4000], truth[:4000], np.ones(4000))
    below = (truth[4000:, None] <= fitted.apply(logs[4000:])).mean(axis=0)
    np.testing.assert_allclose(below, LEVELS, atol=0.025)


def test_thin_data_widen_and_never_sharpen() -> None:
    rng = np.random.default_rng(1)
    logs = np.linspace(0, 10, len(LEVELS))[None] + np.zeros((15, 1))  # far too wide for the truth
    fitted = calibrate(logs, rng.normal(5, 0.01, 15), np.ones(15))
    rare = np.minimum(LEVELS, 1 - LEVELS) * 15 < 1
    before, after = logs[0][rare], fitted.apply(logs)[0][rare]
    upper = LEVELS[rare] > 0.5
    assert np.all(after[upper] >= before[upper]) and np.all(after[~upper] <= before[~upper])


def test_every_call_is_covered_where_some_prompts_repeat_more_than_others() -> None:
    # 200 prompts come 20 times and lie 1 above the grid, 2,000 come once and lie 1 below it; sd of a share 0.035
    rng = np.random.default_rng(2)
    times = np.repeat([20, 1], [200, 2000])
    middle = np.repeat(np.where(times == 20, 1.0, -1.0), times)
    truth = 3 + middle + rng.normal(size=len(middle))
    logs = np.tile(3 + np.linspace(-2, 2, len(LEVELS)), (len(truth), 1))
    novelty = 1 / np.repeat(times, times)
    fitted = calibrate(logs, truth, np.ones(len(truth)), bins=1, novelty=novelty)
    below = (truth[:, None] <= fitted.apply(logs)).mean(axis=0)
    np.testing.assert_allclose(below, LEVELS, atol=0.002)


def test_repeated_runs_of_few_prompts_correct_no_tail_by_their_largest_gap() -> None:
    # 40 prompts, 50 runs each: at .99 less than one prompt lies above, and one that is far off decides nothing
    rng = np.random.default_rng(3)
    truth = rng.normal(3, 0.1, 2000)
    truth[:5] = 9.0
    logs = np.tile(np.linspace(2.7, 3.3, len(LEVELS)), (2000, 1))
    fitted = calibrate(logs, truth, np.ones(2000), novelty=np.full(2000, 1 / 50))
    assert fitted.apply(logs)[0, -1] < 3.5


def test_calibration_survives_json() -> None:
    found = Calibration(np.array([1.0, 2.0]), np.zeros((3, len(LEVELS))))
    again = Calibration.of_json(found.as_json())
    np.testing.assert_array_equal(again.shifts, found.shifts)
    with pytest.raises(ValueError, match="finite shifts"):
        Calibration.of_json({"edges": [1.0], "shifts": [[0.0]]})


def test_groups_that_share_a_text_are_one() -> None:
    def row(i: int, group: str, prompt: str) -> CallRecord:
        return CallRecord(str(i), "m", 0.0, "ok", prompt=prompt, prompt_group=group)

    groups = groups_of([row(0, "a", "x"), row(1, "b", "x"), row(2, "b", "y"), row(3, "c", "z")])
    assert groups.tolist() == ["a", "a", "a", "c"]


def test_held_out_groups_are_whole_and_a_fifth() -> None:
    names = [f"g{i}" for i in range(2000) for _ in range(2)]
    out = held_out(names)
    assert np.array_equal(out[::2], out[1::2])
    assert out.mean() == 0.2


def test_every_type_has_its_share_held_out() -> None:
    names = [f"{kind}{i}" for kind in "abcd" for i in range(10)]
    out = held_out(names, [name[0] for name in names])
    assert {kind: int(out[[name[0] == kind for name in names]].sum()) for kind in "abcd"} == dict.fromkeys("abcd", 2)


def test_folds_keep_groups_whole_and_balance_them() -> None:
    names = np.repeat([f"g{i}" for i in range(40)], np.arange(1, 41))
    fold = folds(names, 5, seed=3)
    assert all(len(set(fold[names == name])) == 1 for name in set(names))
    assert np.ptp(np.bincount(fold)) <= 2
    with pytest.raises(ValueError, match="at least 5"):
        folds(names[:6], 5, seed=0)


def test_descendants_count_the_tree_below_and_stop_in_a_cycle() -> None:
    def row(call: str, parent: str | None, model: str = "m") -> CallRecord:
        return CallRecord(call, model, 0.0, "ok", workflow_id="w", parent_id=parent)

    found = descendants([row("a", None), row("b", "a"), row("c", "b", "n"), row("d", "e"), row("e", "d")])
    assert found[0] == {"m": 1, "n": 1} and found[1] == {"n": 1} and found[2] == {}
    assert found[3] == {"m": 1} and found[4] == {"m": 1}


def test_remaining_work_is_what_arrives_later(make_log: MakeLog) -> None:
    log = make_log(40)
    wanted = targets(log, range(len(log)))
    root = next(i for i, r in enumerate(log) if r.type == "list")
    flow = [r for r in log if r.workflow_id == log[root].workflow_id]
    assert wanted.column(WORK)[root] == sum(r.output_tokens for r in flow if r.arrival_s > 0)
    assert wanted.column(CALLS + "m")[root] == len(flow) - 1


def test_a_log_of_lone_calls_has_only_tokens_to_learn(make_log: MakeLog) -> None:
    log = [r for r in make_log(60) if r.type == "story"]
    assert targets(log, range(len(log))).names == ("tokens",)


def test_small_groups_get_the_pools_quantiles() -> None:
    observed = np.arange(100.0)
    fitted = fit_groups(["a"] * 95 + ["b"] * 5, observed)
    assert set(fitted.groups) == {"a"}
    np.testing.assert_array_equal(fitted.values(["b", None])[0], fitted.pool)
    again = GroupQuantiles.of_json(fitted.as_json())
    np.testing.assert_array_equal(again.values(["a"]), fitted.values(["a"]))


def test_an_unknown_baseline_is_named() -> None:
    with pytest.raises(ValueError, match="choose unconditional, per_type"):
        keys_of([], "per_moon")


@given(st.text(max_size=500))
def test_features_of_any_text_are_finite(text: str) -> None:
    found = features([CallRecord("a", "m", 0.0, "ok", prompt=text)])
    assert found.counts.shape == (1, len(COUNTS)) and np.all(np.isfinite(found.counts))
    assert np.all(np.isfinite(found.gram_weights)) and found.gram_ids.min() >= 0


def test_grams_do_not_depend_on_the_process() -> None:
    # CRC-32 of "tea", not Python's salted hash: a model read elsewhere must see the same buckets
    assert grams([Piece("tea")])[0].tolist() == [6066]
    for low, high in zip(grams([Piece("tea tea")]), grams([Piece("Tea TEA")]), strict=True):
        np.testing.assert_array_equal(low, high)


def test_messages_become_text_and_long_texts_keep_both_ends() -> None:
    messages = ({"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url"}]},)
    assert text_of(messages) == "user: hi"
    assert text_of(None) == "" and text_of(7) == ""  # type: ignore[arg-type]
    long = "a" * 5000 + "b" * 5000
    assert clip(long).startswith("a" * 4096) and clip(long).endswith("b" * 4096) and clip("short") == "short"


def test_a_continued_conversation_stays_with_its_beginning() -> None:
    def row(call: str, group: str, prompt: str, parent: str | None = None) -> CallRecord:
        return CallRecord(call, "m", 0.0, "ok", workflow_id="w", parent_id=parent, prompt=prompt, prompt_group=group)

    records = [
        row("1", "plan", "List it."),
        row("2", "plan_again", "List it. No: again.", "1"),
        row("3", "c", "x", "1"),
    ]
    assert groups_of(records).tolist() == ["plan", "plan", "c"]
