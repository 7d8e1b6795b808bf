"""A small encoder of the same kind as a target model: `shrink` its config, start its token table from the target's own.

Needs torch and transformers; training and export only.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from transformers import PretrainedConfig

Floats = NDArray[np.float32]


def shrink(
    config: PretrainedConfig, params: int = 500_000, layers: int = 2, hidden: int | None = None
) -> PretrainedConfig:
    """A small variant of a Hugging Face causal-LM config: same family, tokenizer, attention, norm and activation kinds.

    params : wanted number of parameters outside the token table; `hidden` (a multiple of 8) overrides it
    The ratio of query to key-value heads and of feed-forward to hidden width are kept as near as the small size allows.
    Raises ValueError when the config is not that of a decoder with attention heads.
    """
    needed = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
    missing = [name for name in needed if not isinstance(getattr(config, name, None), int)]
    if missing:
        raise ValueError(f"shrink needs a causal-LM config with {', '.join(needed)}; {', '.join(missing)} missing")
    ratio = config.intermediate_size / config.hidden_size
    shared = config.num_attention_heads // (getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
    if hidden is None:
        # attention holds about 2 + 2 / shared squares of the hidden width, a gated feed-forward 3 ratio
        hidden = int((params / layers / (2 + 2 / shared + 3 * ratio)) ** 0.5) // 8 * 8
    hidden = max(hidden // 8 * 8, 16)
    heads = next(n for n in (4, 2, 1) if hidden % n == 0 and (hidden // n) % 2 == 0)
    small = deepcopy(config)
    small.update(
        {
            "hidden_size": hidden,
            "intermediate_size": max(int(hidden * ratio) // 8 * 8, 16),
            "num_attention_heads": heads,
            "num_key_value_heads": max(heads // min(shared, heads), 1),
            "num_hidden_layers": layers,
            "use_cache": False,
        }
    )
    if getattr(config, "head_dim", None):
        small.head_dim = hidden // heads
    if getattr(config, "query_pre_attn_scalar", None):
        small.query_pre_attn_scalar = hidden // heads
    if getattr(config, "layer_types", None):
        small.layer_types = (
            (list(config.layer_types) * layers)[-layers:]
            if layers > len(config.layer_types)
            else list(config.layer_types)[-layers:]
        )
    return small


def reduced_table(table: NDArray[np.floating], width: int) -> Floats:
    """The target model's token table (V, D) on its first principal axes, (V, width), with unit variance overall."""
    table = np.asarray(table, dtype=np.float32)
    centred = table - table.mean(axis=0)
    _, axes = np.linalg.eigh((centred.T @ centred).astype(np.float64) / len(table))
    small = centred @ axes[:, ::-1][:, :width].astype(np.float32)
    scaled: Floats = small / np.float32(small.std() or 1.0)
    return scaled


def quantised(table: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Rows as int8 with a scale each: (V, W) -> (V, W) int8 and (V, 1)."""
    scale = np.maximum(np.abs(table).max(axis=1, keepdims=True), 1e-8) / 127
    return np.round(table / scale).astype(np.int8), scale.astype(np.float32)
