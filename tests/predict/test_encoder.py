"""The small encoder: any family shrinks, exports and runs as it was trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from swarmx.predict.encoder import quantised, reduced_table, shrink

FAMILIES = {
    "Llama": {"num_key_value_heads": 3, "num_attention_heads": 9, "hidden_size": 576, "intermediate_size": 1536},
    "Qwen3": {"num_key_value_heads": 8, "num_attention_heads": 16, "hidden_size": 1024, "intermediate_size": 3072},
    "Gemma2": {"num_key_value_heads": 4, "num_attention_heads": 8, "hidden_size": 2304, "intermediate_size": 9216},
    "Mistral": {"num_key_value_heads": 8, "num_attention_heads": 32, "hidden_size": 4096, "intermediate_size": 14336},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # transformers imports warn on their own account
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_shrinks_exports_and_runs_the_same(family: str, tmp_path: Path) -> None:
    import torch
    import transformers

    from swarmx.predict.embed import session
    from swarmx.predict.export import export_encoder
    from swarmx.predict.neural import TextNetwork, TokenTable, small_decoder

    config = getattr(transformers, f"{family}Config")(vocab_size=500, **FAMILIES[family])
    small = shrink(config, hidden=32)
    assert type(small) is type(config) and small.hidden_size == 32 and small.num_hidden_layers == 2
    assert small.hidden_act == config.hidden_act if hasattr(config, "hidden_act") else True
    table = np.random.default_rng(0).normal(size=(500, 32)).astype(np.float32)
    network = TextNetwork(TokenTable(table), small_decoder(small, seed=0)).eval()
    export_encoder(network, tmp_path / "encoder.onnx")
    ids, mask = torch.randint(1, 500, (3, 21)), torch.ones(3, 21)
    mask[1, 5:] = 0
    with torch.no_grad():
        wanted = network(ids, mask).numpy()
    found = session(tmp_path / "encoder.onnx").run(None, {"ids": ids.numpy(), "mask": mask.numpy()})[0]
    assert found.shape == (3, 64)
    np.testing.assert_allclose(found, wanted, atol=2e-4)
    alone = session(tmp_path / "encoder.onnx").run(None, {"ids": ids.numpy()[1:2, :5], "mask": mask.numpy()[1:2, :5]})[
        0
    ]
    np.testing.assert_allclose(alone[0], found[1], atol=2e-4)  # padding changes nothing


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_parameters_outside_the_table_come_near_what_was_asked() -> None:
    import transformers

    from swarmx.predict.neural import small_decoder

    small = shrink(transformers.LlamaConfig(vocab_size=500, **FAMILIES["Llama"]), params=500_000)
    n = sum(p.numel() for p in small_decoder(small, 0).parameters())
    assert 350_000 < n < 600_000


def test_a_config_without_heads_is_refused() -> None:
    from types import SimpleNamespace

    with pytest.raises(ValueError, match="num_attention_heads"):
        shrink(SimpleNamespace(vocab_size=1, hidden_size=8, intermediate_size=8, num_hidden_layers=1))  # type: ignore[arg-type]


def test_the_reduced_table_keeps_what_differs_most() -> None:
    # two informative directions in 20: their axes must come first and keep the distances of rows
    rng = np.random.default_rng(0)
    table = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 20)) * 5 + rng.normal(size=(300, 20)) * 0.01
    small = reduced_table(table, 2)
    gaps = lambda x: np.linalg.norm(x[:100] - x[100:200], axis=1)  # noqa: E731
    assert np.corrcoef(gaps(small), gaps(table))[0, 1] > 0.999


def test_int8_rows_are_within_half_a_step() -> None:
    table = np.random.default_rng(1).normal(size=(50, 16)).astype(np.float32)
    rows, scale = quantised(table)
    assert rows.dtype == np.int8 and np.all(np.abs(rows * scale - table) <= scale * 0.501)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_training_lowers_the_stopping_loss() -> None:
    import transformers

    from swarmx.predict.neural import TextNetwork, TokenTable, small_decoder
    from swarmx.predict.semantic import SemanticConfig, fit_encoder

    # the property is whether token 7 comes before token 9: no mean of tokens can tell
    rng = np.random.default_rng(0)
    ids, wanted = [], []
    for _ in range(400):
        text = rng.integers(10, 60, 12)
        a, b = sorted(rng.choice(12, 2, replace=False))
        first = bool(rng.random() < 0.5)
        text[a], text[b] = (7, 9) if first else (9, 7)
        ids.append(text.tolist())
        wanted.append([1.0 if first else -1.0])
    table = rng.normal(size=(60, 32)).astype(np.float32)
    config = shrink(transformers.LlamaConfig(vocab_size=60, **FAMILIES["Llama"]), hidden=32)
    network = TextNetwork(TokenTable(table), small_decoder(config, 0))
    history = fit_encoder(
        network,
        ids,
        np.array(wanted, np.float32),
        np.arange(400) % 4 == 0,
        SemanticConfig(epochs=12, patience=12, learning_rate=3e-3, tokens_per_batch=512),
    )
    assert min(history) < 0.5 * history[0]
