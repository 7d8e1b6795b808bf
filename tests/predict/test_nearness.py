"""Encoders that compare a call's tools with its text: what is told, what is learned of it, and what is not."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from swarmx.adapt.example import examples_of, features_of
from swarmx.predict.bundle import copy_encoder, shipped
from swarmx.predict.embed import TextEncoder
from swarmx.predict.features import features
from swarmx.predict.fit import FitConfig
from swarmx.predict.kernel import Kernel, Product
from swarmx.predict.nearness import NEAR, nearness
from swarmx.predict.runtime import Predictor
from swarmx.predict.tools import described, with_tools
from swarmx.predict.train import TrainConfig, train, train_resumable
from swarmx.types import Call, CallRecord

TOPICS = ("rivers", "bread", "bees", "glaciers", "chess", "sailing", "volcanoes", "tea", "opera", "knitting")
CONFIG = FitConfig(epochs=4, landmarks=16, count_landmarks=16)
rows = arrays(np.float32, st.tuples(st.integers(1, 6), st.just(5)), elements=st.floats(-3, 3, width=32))


def tool(topic: str) -> dict[str, str]:
    return {"name": f"look_up.{topic}", "description": f"Facts about {topic}."}


def tool_log(count: int, seed: int = 0) -> list[CallRecord]:
    """A call is short where one of its two tools is about its topic, and long where none is."""
    rng = np.random.default_rng(seed)
    out = []
    for i in range(count):
        topic, *others = rng.choice(TOPICS, 3, replace=False)
        fits = bool(rng.random() < 0.5)
        prompt = with_tools(f"Tell me of {topic}, {i}.", [tool(topic if fits else others[1]), tool(others[0])])
        tokens = int((20 if fits else 200) * rng.lognormal(0, 0.2)) + 1
        assert isinstance(prompt, str)
        out.append(
            CallRecord(f"c{i}", "m", float(i), "ok", prompt=prompt, prompt_group=f"g{i}", output_tokens=tokens,
                       dispatched_s=float(i), first_token_s=i + 0.1, finished_s=i + 1.0)
        )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def comparing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped encoder, told to compare tools too."""
    out = tmp_path_factory.mktemp("encoder")
    copy_encoder(shipped(), out)
    about = json.loads((out / "encoder.json").read_text())
    (out / "encoder.json").write_text(json.dumps(about | {"tools": True}))
    return out


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, comparing: Path) -> Path:
    out = tmp_path_factory.mktemp("model") / "m"
    train(tool_log(200), out, TrainConfig(fit=CONFIG, encoder=comparing, plots=False))
    return out


@given(rows)
def test_the_figures_are_cosines_whatever_the_embeddings(tools: np.ndarray) -> None:
    best, ahead, mean, sd = nearness(tools[0], tools)
    assert best <= 1 + 1e-5 and 0 <= ahead <= 2 + 1e-5 and sd >= 0 and mean <= best + 1e-5
    assert np.linalg.norm(tools[0]) < 1e-3 or best >= 1 - 1e-3  # it is among them itself
    assert ahead == 0 if len(tools) == 1 else ahead <= 2 + 1e-5
    assert not nearness(tools[0], None).any()


def test_a_tool_is_one_sentence_in_any_of_its_forms_and_oddities_are_none() -> None:
    plain, wrapped = json.dumps([tool("tea")]), json.dumps([{"type": "function", "function": tool("tea")}])
    assert described(plain) == described(wrapped) == ("look up tea: Facts about tea.",)
    assert described("") == described("[1, {}]") == described("no json") == described("[" + " " * 300_000 + "]") == ()


def test_an_encoder_that_compares_tells_which_tool_fits_and_reads_each_tool_once(comparing: Path) -> None:
    encoder, bare = TextEncoder.load(comparing), TextEncoder.load(shipped())
    calls = [
        Call("a", "m", 0.0, with_tools("Facts about tea.", [tool("tea"), tool("opera")])),
        Call("b", "m", 0.0, with_tools("Facts about bread.", [tool("tea"), tool("opera")])),
        Call("c", "m", 0.0, "Facts about tea."),
    ]
    found = features(calls)
    read: list[list[str]] = []
    embed = encoder.embed
    encoder.embed = lambda texts: (read.append(list(texts)), embed(texts))[1]  # type: ignore[method-assign]
    told = encoder.of(found)
    assert told.shape == (3, encoder.columns) == (3, encoder.width + NEAR)
    assert read[1] == ["look up tea: Facts about tea.", "look up opera: Facts about opera."]
    assert told[0, -NEAR] > told[1, -NEAR] and told[0, -NEAR + 1] > told[1, -NEAR + 1] and not told[2, -NEAR:].any()
    np.testing.assert_array_equal(told[:, :-NEAR], bare.of(found))
    np.testing.assert_allclose(encoder.of(found.take(np.array([1]))), told[1:2], rtol=1e-5, atol=1e-6)


def test_with_every_row_a_landmark_features_multiply_to_the_kernel() -> None:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(9, 7)).astype(np.float32))
    joined = Product(5, 2, 9)
    joined.fit(x, seed=0)
    made = joined(joined.standard(x))
    parts = [Kernel(5, 9, 1.0), Kernel(2, 9, 1.0)]
    for part, columns in zip(parts, (x[:, :5], x[:, 5:]), strict=True):
        part.fit(columns, seed=0)
    text, tools = (part(part.standard(c)) for part, c in zip(parts, (x[:, :5], x[:, 5:]), strict=True))
    torch.testing.assert_close(made @ made.T, text @ text.T * (1 + 2 * tools @ tools.T), rtol=1e-3, atol=1e-3)


def test_a_model_learns_from_how_near_tools_are_and_answers_alike_alone_and_in_a_batch(model: Path) -> None:
    predictor = Predictor.load(model, cache_bytes=0)
    assert predictor.heads is not None and predictor.encoder is not None
    shapes = {item.name: item.shape for item in predictor.heads.get_inputs()}
    assert shapes["embedding"][1] == predictor.encoder.width + NEAR
    asked = tool_log(40, seed=1)
    grids = predictor.grids(asked).of("tokens")
    assert np.isfinite(grids).all() and (np.diff(grids, axis=1) >= 0).all()
    alone = np.concatenate([predictor.grids([call]).of("tokens") for call in asked])
    np.testing.assert_allclose(grids, alone, rtol=1e-3)
    long = np.array([call.output_tokens > 70 for call in asked])
    assert np.median(grids[long, 8]) > 2 * np.median(grids[~long, 8])
    stripped = predictor.grids([replace(call, prompt=str(call.prompt).split("\n")[1]) for call in asked])
    assert set(stripped.sources) == {"neural"} and np.isfinite(stripped.values).all()


def test_stored_examples_say_the_same_as_the_calls(model: Path) -> None:
    predictor = Predictor.load(model)
    assert predictor.encoder is not None
    asked = tool_log(20, seed=2)
    examples = examples_of(asked, predictor.encoder, "sha", 0)
    assert {len(example.embedding) for example in examples} == {2 * predictor.encoder.columns}
    stored = predictor.from_features(*features_of(examples))
    np.testing.assert_allclose(stored, predictor.grids(asked).values, rtol=0.1)  # stored in half precision


@pytest.mark.slow
def test_without_tools_in_its_log_a_model_does_not_read_of_them(
    tmp_path: Path, comparing: Path, make_log: Callable[..., list[CallRecord]]
) -> None:
    log = make_log(120)
    for name, encoder in (("plain", shipped()), ("comparing", comparing)):
        train(log, tmp_path / name, TrainConfig(fit=CONFIG, encoder=encoder, plots=False))
    plain, other = (Predictor.load(tmp_path / name) for name in ("plain", "comparing"))
    asked = [*make_log(20, seed=3), *tool_log(5)]
    np.testing.assert_array_equal(plain.grids(asked).values, other.grids(asked).values)


@pytest.mark.slow
def test_a_training_killed_after_reading_the_tools_goes_on_to_the_same_model(
    tmp_path: Path, comparing: Path, model: Path
) -> None:
    config = TrainConfig(fit=CONFIG, encoder=comparing, plots=False)

    def kill(what: str, done: float) -> None:
        if what == "network":
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train_resumable(tool_log(200), tmp_path / "m", config, kill)
    assert len(list((tmp_path / ".m.progress").glob("embedding *.npz"))) == 2  # of prompts, and of tools
    train_resumable(tool_log(200), tmp_path / "m", config)
    assert (tmp_path / "m" / "heads.onnx").read_bytes() == (model / "heads.onnx").read_bytes()
