import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from swarmx.errors import BadInput
from swarmx.predict.embed import TextEncoder
from swarmx.predict.fit import FitConfig
from swarmx.predict.runtime import Predictor
from swarmx.predict.target_encoder import build_encoder, read_config, stored_table, tokens_of
from swarmx.predict.train import TrainConfig, train
from swarmx.types import CallRecord

MakeLog = Callable[..., list[CallRecord]]

QWEN3 = {
    "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
}  # fmt: skip


def written(folder: Path, **changes: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(QWEN3 | changes))
    return path


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # transformers imports warn on their own account
def test_an_encoder_of_the_targets_kind_is_taught_and_used(tmp_path: Path, make_log: MakeLog) -> None:
    log = make_log(150)
    steps: list[str] = []
    build_encoder(written(tmp_path), log, tmp_path / "e", lambda what, done: steps.append(what), epochs=1)
    about = json.loads((tmp_path / "e" / "encoder.json").read_text())
    assert about["name"] == "qwen3-2x96" and about["width"] == 192 and "encoder" in steps
    found = TextEncoder.load(tmp_path / "e").embed(["Write a long story about tea.", ""])
    assert found.shape == (2, 192) and np.all(np.isfinite(found)) and np.ptp(found[0]) > 0
    config = TrainConfig(fit=FitConfig(epochs=1, landmarks=16, count_landmarks=16), encoder=tmp_path / "e", plots=False)
    notes = train(log, tmp_path / "m", config)["notes"]
    assert any("learned from the answers in the training log" in note for note in notes)
    assert Predictor.load(tmp_path / "m").encoder is not None


@pytest.mark.filterwarnings("default")
def test_a_config_of_no_language_model_is_refused_by_name(tmp_path: Path, make_log: MakeLog) -> None:
    with pytest.raises(BadInput, match="model_type 'no-such-kind' makes no config"):
        read_config(written(tmp_path, model_type="no-such-kind"))
    with pytest.raises(BadInput, match="does not exist"):
        read_config(tmp_path / "nothing.json")
    with pytest.raises(BadInput, match="'resnet' is no causal language model"):
        build_encoder(written(tmp_path, model_type="resnet"), make_log(60), tmp_path / "e", lambda what, done: None)


@pytest.mark.filterwarnings("default")
def test_tokenizer_and_embeddings_beside_the_config_are_taken(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    Tokenizer(WordLevel({f"w{i}": i for i in range(300)}, unk_token="w0")).save(str(tmp_path / "tokenizer.json"))
    _, drawn, notes = tokens_of(tmp_path, seed=0)
    assert drawn.shape == (300, 96) and "drawn at random" in notes[0]
    rows = torch.randn(300, 128, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    save_file({"model.embed_tokens.weight": rows}, str(tmp_path / "model.safetensors"))
    stored = stored_table(tmp_path)
    assert stored is not None and stored.shape == (300, 128)
    tokenizer, table, notes = tokens_of(tmp_path, seed=0)
    assert tokenizer.get_vocab_size() == 300 and table.shape == (300, 96) and notes == []
    # 96 of 128 axes of a random table: distances shrink alike, so their order stays
    gaps = [np.linalg.norm(x[:150] - x[150:], axis=1) for x in (stored, table)]
    assert np.corrcoef(*gaps)[0, 1] > 0.7
