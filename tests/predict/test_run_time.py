"""Caches, ends of long texts, time budgets: what keeps a prediction cheap without changing it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarmx.errors import BadInput
from swarmx.predict.budget import Budgeted
from swarmx.predict.bundle import shipped
from swarmx.predict.cache import ByteCache, digest
from swarmx.predict.embed import TextEncoder
from swarmx.predict.runtime import Predictor
from swarmx.predict.text import clip
from swarmx.types import Call, Prediction

TEXT = "the quick plan of seven bees, 12.5 litres; don't ask (why?) naïve 東京 x-ray\n- item: true"
WORDS = TEXT.split(" ")


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor.load(shipped())


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    return TextEncoder.load(shipped())


def call(prompt: str, **fields: object) -> Call:
    return Call("c", "smollm2-135m-instruct", 0.0, prompt, **fields)  # type: ignore[arg-type]


def prose(words: int, seed: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words).tolist())


@pytest.mark.parametrize("words", [1, 100, 150, 300, 800, 3000])
def test_ends_alone_give_the_ids_of_the_whole_text(encoder: TextEncoder, words: int) -> None:
    for seed in range(5):
        text = prose(words, seed)
        whole = encoder.tokenizer.encode(clip(text), add_special_tokens=False).ids
        kept = encoder.head + encoder.tail
        wanted = whole if len(whole) <= kept else whole[: encoder.head] + whole[-encoder.tail :]
        assert encoder.ids(text) == wanted


def test_texts_with_equal_ends_share_an_embedding_and_each_keeps_its_own() -> None:
    encoder = TextEncoder.load(shipped())
    ends = prose(400, 1), prose(400, 2)
    texts = [f"{ends[0]} {prose(300, seed)} {ends[1]}" for seed in range(3, 6)]
    apart = np.concatenate([TextEncoder.load(shipped(), cache_bytes=0).embed([text]) for text in [*texts, "Hi."]])
    for _ in range(2):
        np.testing.assert_allclose(encoder.embed([*texts, "Hi.", texts[0]])[:4], apart, rtol=1e-5, atol=1e-6)
    runs: list[int] = []
    graph = encoder._run
    encoder._run = lambda batch: (runs.append(len(batch)), graph(batch))[1]  # type: ignore[method-assign]
    encoder.embed([f"{ends[0]} {prose(300, 7)} {ends[1]}"])
    assert runs == [] and np.array_equal(encoder.embed(texts)[0], encoder.embed(texts)[2])
    encoder.embed(["Ho."])
    assert runs == [1]


def test_a_text_without_spaces_still_has_both_ends(encoder: TextEncoder) -> None:
    assert len(encoder.ids("ab1" * 5000)) == encoder.head + encoder.tail
    assert encoder.ids("") == [] and len(encoder.ids("a")) == 1


def test_a_growing_prompt_is_predicted_as_if_it_had_never_been_seen(predictor: Predictor) -> None:
    prompt, fresh = prose(900, 1), Predictor.load(shipped(), cache_bytes=0)
    for turn in range(4):
        prompt += f"\nassistant: {prose(40, turn)}\nuser: {prose(10, 100 + turn)}"
        for _ in range(2):
            found = predictor.grids([call(prompt)]).values
            np.testing.assert_allclose(found, fresh.grids([call(prompt)]).values, rtol=1e-5)


def test_what_was_read_is_not_read_again(predictor: Predictor) -> None:
    before = len(predictor.memory.readings)
    for _ in range(3):
        predictor.predict(
            [call("Say it once."), call("Say it once.", parent_id="p"), call("Say it once.", type="chat")]
        )
    assert len(predictor.memory.readings) == before + 1


def test_a_call_that_comes_again_is_answered_from_memory_under_its_own_cap() -> None:
    class Broken:
        def run(self, *_: object) -> None:
            raise RuntimeError("must not be asked")

    predictor = Predictor.load(shipped())
    [first] = predictor.predict([call("Tell it again.")])
    predictor.heads = Broken()  # type: ignore[assignment]
    again, capped, other = predictor.predict(
        [call("Tell it again."), call("Tell it again.", max_tokens=3), call("Tell it again.", type="chat")]
    )
    np.testing.assert_array_equal(again.tokens.values, first.tokens.values)
    assert again.source == capped.source == "neural" and capped.tokens.values[-1] == 3
    assert other.source != "neural"


def test_the_same_text_of_another_call_keeps_what_belongs_to_the_call(predictor: Predictor) -> None:
    root, child = predictor.grids([call("Go on with it."), call("Go on with it.", parent_id="p")]).values
    assert not np.array_equal(root, child)


def test_readings_stay_within_their_bytes() -> None:
    predictor = Predictor.load(shipped(), cache_bytes=30_000)
    predictor.predict([call(prose(60, seed)) for seed in range(60)])
    assert 0 < predictor.memory.readings.used_bytes <= 30_000 and 0 < predictor.answers.used_bytes <= 7_500
    assert predictor.encoder is not None and predictor.encoder.cache.used_bytes <= 30_000


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 400)), max_size=60))
def test_a_cache_holds_the_latest_within_its_bound(items: list[tuple[int, int]]) -> None:
    cache: ByteCache[int] = ByteCache(1500)
    for key, size in items:
        name = digest((str(key),))
        if cache.get(name) is None:
            cache.put(name, key, size)
            assert cache.get(name) == key  # 400 + 200 bytes always fit
        assert cache.used_bytes <= 1500
    assert cache.used_bytes >= 200 * len(cache)


def test_digests_tell_where_one_text_ends() -> None:
    assert digest(("ab", "c")) != digest(("a", "bc")) and digest(("\ud800",)) != digest(("",))


def test_threads_may_share_a_predictor(predictor: Predictor) -> None:
    calls = [call(prose(30, seed)) for seed in range(40)]
    alone = predictor.grids(calls).values
    wrong: list[int] = []

    def work(seed: int) -> None:
        for i in np.random.default_rng(seed).permutation(40).tolist():
            if not np.allclose(predictor.grids([calls[i]]).values[0], alone[i], rtol=1e-4):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


class Slow:
    """A predictor whose calls cost what its clock says."""

    def __init__(self, predictor: Predictor, cost_s: float) -> None:
        self.predictor, self.cost_s, self.now = predictor, cost_s, 0.0

    def predict(self, calls: Sequence[Call]) -> list[Prediction]:
        self.now += self.cost_s * len(calls)
        return self.predictor.predict(calls)

    def fallback_for(self, calls: Sequence[Call]) -> list[Prediction]:
        return self.predictor.fallback_for(calls)


def test_calls_beyond_the_budget_are_answered_by_their_type(predictor: Predictor) -> None:
    slow = Slow(predictor, 0.004)
    timed = Budgeted(slow, 0.010, clock=lambda: slow.now)
    calls = [call("Write it.", type="task_tip", max_tokens=50) for _ in range(8)]
    for _ in range(20):
        found = timed.predict(calls)
    sources = [p.source for p in found]
    assert sources == ["neural"] * 2 + ["per_type"] * 6 or sources == ["neural"] + ["per_type"] * 7
    assert found[-1].tokens.values[-1] <= 50 and timed.late > 100


def test_within_the_budget_everything_is_answered_by_the_network(predictor: Predictor) -> None:
    quick = Slow(predictor, 0.0001)
    timed = Budgeted(quick, 0.050, clock=lambda: quick.now)
    for _ in range(5):
        found = timed.predict([call("Write it.") for _ in range(30)])
        assert len(found) == 30 and {p.source for p in found} == {"neural"}
    assert timed.late == 0 and timed.predict([]) == []


def test_a_stall_is_forgotten(predictor: Predictor) -> None:
    slow = Slow(predictor, 5.0)
    timed = Budgeted(slow, 0.010, clock=lambda: slow.now)
    timed.predict([call("x")])
    slow.cost_s = 0.0005
    for _ in range(60):
        found = timed.predict([call("x") for _ in range(4)])
    assert {p.source for p in found} == {"neural"}


def test_a_model_directory_is_loaded_with_its_budget() -> None:
    timed = Budgeted.load(shipped(), 5.0)
    asked = [call("Write it.", type="task_tip", max_tokens=50), call("Say it.")]
    assert [p.source for p in timed.predict(asked)] == ["neural", "neural"]
    assert [p.source for p in timed.fallback_for(asked)] == ["per_type", "pool_mean"]
    with pytest.raises(BadInput, match="does not exist"):
        Budgeted.load("nowhere", 5.0)


def test_a_budget_is_positive(predictor: Predictor) -> None:
    with pytest.raises(ValueError, match="positive"):
        Budgeted(predictor, 0.0)


odd = st.one_of(st.none(), st.floats(), st.integers(-(2**70), 2**70), st.text(max_size=3))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prompt=st.text(st.characters(codec=None), max_size=400), tokens=odd, cap=odd, parent=odd, model=odd, kind=odd,
    times=st.integers(1, 3000),
)  # fmt: skip
def test_any_call_gets_finite_increasing_quantiles(
    predictor: Predictor, prompt: str, tokens: object, cap: object, parent: object, model: object, kind: object,
    times: int,
) -> None:  # fmt: skip
    odd_call = replace(
        call(prompt * times), prompt_tokens=tokens, max_tokens=cap, parent_id=parent, model=model, type=kind
    )  # type: ignore[arg-type]
    for found in (*predictor.predict([odd_call]), *predictor.fallback_for([odd_call])):
        for grid in (found.tokens, *found.downstream.values(), found.remaining_tokens):
            assert grid is not None and np.all(np.isfinite(grid.values))
            assert np.all(np.diff(grid.values) >= 0) and grid.values[0] >= 0


@pytest.mark.parametrize(
    "prompt", ["", "a", "\0", "\0" * 1_000_000, "é\u0301" * 500_000, "word " * 200_000, " " * 10**6]
)
def test_empty_single_and_huge_prompts_are_read_by_the_network(predictor: Predictor, prompt: str) -> None:
    [found] = predictor.predict([call(prompt)])
    assert found.source == "neural" and np.all(np.isfinite(found.tokens.values))


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads in /proc")
def test_one_thread_means_one_and_four_mean_three_more_for_each_graph() -> None:
    code = (
        "import os, numpy, onnxruntime, tokenizers; from swarmx.predict.runtime import Predictor;"
        "from swarmx.predict.bundle import shipped; from swarmx.types import Call; counts = [];"
        "count = lambda: counts.append(len(os.listdir('/proc/self/task')));"
        "from swarmx.predict.features import features; features([Call('w', 'm', 0.0, 'read')]);"  # numba loads a BLAS
        "count(); p = Predictor.load(shipped(), threads=1);"
        "p.predict([Call(str(i), 'm', 0.0, f'word {i} ' * 400) for i in range(40)]); count();"
        "p = Predictor.load(shipped(), threads=4); count(); print(*counts)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, one, four = map(int, done.stdout.split())
    assert one == before and four == before + 6
