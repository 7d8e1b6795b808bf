import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarmx.errors import BadInput
from swarmx.predict.runtime import Predictor
from swarmx.quantiles import LEVELS
from swarmx.types import Call


@pytest.fixture(scope="module")
def predictor(trained: Path) -> Predictor:
    return Predictor.load(trained)


def call(prompt: object, **fields: object) -> Call:
    return Call(id="c", model=fields.pop("model", "m"), arrival_s=0.0, prompt=prompt, **fields)  # type: ignore[arg-type]


def test_a_story_is_expected_to_be_longer_than_a_word(predictor: Predictor) -> None:
    story, word = predictor.predict([call("Write a long story about bees and tea."), call("Name a colour for chess.")])
    assert story.source == word.source == "neural"
    assert story.tokens.at(0.5) > 5 * word.tokens.at(0.5)


def test_a_list_causes_calls_and_a_word_does_not(predictor: Predictor) -> None:
    plan, word = predictor.predict([call("List the main facts about sailing."), call("Name a colour for tax law.")])
    assert plan.downstream["m"].at(0.5) > 2 > 0.5 > word.downstream["m"].at(0.5)
    assert plan.remaining_tokens is not None and plan.remaining_tokens.at(0.5) > 1


def test_tokens_never_exceed_max_tokens(predictor: Predictor) -> None:
    [found] = predictor.predict([call("Write a long story about opera.", max_tokens=20)])
    assert found.tokens.values[-1] == 20


def test_batches_and_single_calls_agree(predictor: Predictor) -> None:
    calls = [call(f"List the main facts about {'bees ' * n}.") for n in range(70)]
    together = predictor.grids(calls).values
    alone = np.concatenate([Predictor.grids(predictor, [one]).values for one in calls])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-4)


parts = st.lists(st.fixed_dictionaries({"text": st.text(max_size=20)}))
contents = st.one_of(st.text(max_size=50), st.none(), st.integers(), parts)
messages = st.lists(st.fixed_dictionaries({"role": st.text(max_size=5), "content": contents}), max_size=4).map(tuple)
texts = st.text(st.characters(codec=None), max_size=300)
anything = st.one_of(texts, messages, st.none(), st.integers(), st.binary(max_size=50))
names = st.one_of(st.none(), st.text(max_size=10))
caps = st.one_of(st.none(), st.integers(-5, 10**9))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prompt=anything,
    model=st.text(max_size=10),
    type=st.one_of(st.none(), st.text(max_size=10)),
    cap=st.one_of(st.none(), st.integers(-5, 10**9)),
)
def test_any_input_gives_finite_increasing_quantiles(
    predictor: Predictor, prompt: object, model: str, type: str | None, cap: int | None
) -> None:
    [found] = predictor.predict([call(prompt, model=model, type=type, max_tokens=cap)])
    for grid in (found.tokens, *found.downstream.values(), found.remaining_tokens):
        assert grid is not None
        assert np.all(np.isfinite(grid.values)) and np.all(np.diff(grid.values) >= 0) and grid.values[0] >= 0


@pytest.mark.parametrize(
    "prompt",
    ["\0" * 1000, "a" * 1_000_000, "\ud800" * 50, "😀" * 5000, "", " ", "\n" * 100_000, "<|im_end|><|endoftext|>"],
)
def test_hard_prompts_are_answered_by_the_network(predictor: Predictor, prompt: str) -> None:
    [found] = predictor.predict([call(prompt)])
    assert found.source == "neural" and np.all(np.isfinite(found.tokens.values))


def test_a_broken_graph_falls_back_to_the_type_and_then_to_the_pool(trained: Path) -> None:
    class Broken:
        def run(self, *_: object) -> None:
            raise RuntimeError("out of memory")

    predictor = Predictor.load(trained)
    predictor.heads = Broken()  # type: ignore[assignment]
    typed, unknown = predictor.predict([call("x", type="story"), call("x", type="nobody")])
    assert (typed.source, unknown.source) == ("per_type", "pool_mean")
    np.testing.assert_array_equal(typed.tokens.values, predictor.fallback["tokens"].groups["story"])


def test_one_bad_call_does_not_spoil_the_others(predictor: Predictor) -> None:
    bad = call("x", type=["unhashable"])
    good, spoiled = predictor.predict([call("Name a colour for tea."), bad])
    assert (good.source, spoiled.source) == ("neural", "pool_mean")


def test_no_calls_no_predictions(predictor: Predictor) -> None:
    assert predictor.predict([]) == []


def test_the_cache_stays_within_its_bytes(trained: Path) -> None:
    predictor = Predictor.load(trained, cache_bytes=20_000)
    predictor.predict([call(f"prompt {n}") for n in range(200)])
    assert predictor.encoder is not None
    assert 0 < predictor.encoder.cache.used_bytes <= 20_000


@pytest.mark.parametrize("name", ["manifest.json", "heads.onnx", "encoder.onnx", "tokenizer.json.gz", "fallback.json"])
def test_a_missing_or_altered_file_is_named(trained: Path, tmp_path: Path, name: str) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(trained, broken)
    (broken / name).write_bytes(b"\0" + (broken / name).read_bytes())
    with pytest.raises(BadInput, match=name):
        Predictor.load(broken)
    (broken / name).unlink()
    with pytest.raises(BadInput, match=name):
        Predictor.load(broken)


def test_a_manifest_of_the_wrong_kind_is_refused(trained: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(trained, broken)
    manifest = json.loads((broken / "manifest.json").read_text())
    for change in ({"kind": "other"}, {"schema": 99}, {"calibration": {}}, {"largest": "many"}):
        (broken / "manifest.json").write_text(json.dumps(manifest | change))
        with pytest.raises(BadInput):
            Predictor.load(broken)


def test_loading_and_predicting_needs_no_training_library(trained: Path) -> None:
    code = (  # scipy may be there: numba takes it where it is
        "import sys; from swarmx.predict.runtime import Predictor; from swarmx.types import Call;"
        f"Predictor.load({str(trained)!r}).predict([Call(id='a', model='m', arrival_s=0.0, prompt='hello')]);"
        "print([m for m in ('torch', 'sklearn', 'pyarrow', 'transformers', 'pickle5') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_levels_are_the_projects(predictor: Predictor) -> None:
    assert predictor.manifest["levels"] == LEVELS.tolist()
