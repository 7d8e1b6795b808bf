"""The text encoder as a torch module, in reading order: token table -> (mean of it) joined with (a small transformer).

The mean of the table alone carries most of what a prompt says about its answer's length; joining the two makes sure
that the transformer can only add.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from swarmx.predict.encoder import Floats, quantised

if TYPE_CHECKING:
    from transformers import PretrainedConfig


class TokenTable(nn.Module):
    """Frozen token vectors, int8 with a scale per row: ids (N, L) -> (N, L, W)."""

    rows: Tensor
    row_scale: Tensor

    def __init__(self, table: Floats) -> None:
        super().__init__()
        rows, scale = quantised(table)
        self.register_buffer("rows", torch.from_numpy(rows))
        self.register_buffer("row_scale", torch.from_numpy(scale))

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])

    def forward(self, ids: Tensor) -> Tensor:
        return self.rows[ids].to(torch.float32) * self.row_scale[ids]


class TextNetwork(nn.Module):
    """ids (N, L), mask (N, L) of 0 and 1 -> embedding (N, E); a text without tokens becomes zeros.

    backbone : a Hugging Face decoder without head, of the table's width, or None for the table's mean alone
    """

    def __init__(self, table: TokenTable, backbone: nn.Module | None = None) -> None:
        super().__init__()
        self.table, self.backbone = table, backbone

    @property
    def width(self) -> int:
        return self.table.width * (1 if self.backbone is None else 2)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        tokens = self.table(ids)
        mean = pooled(tokens, mask)
        if self.backbone is None:
            return mean
        return torch.cat((mean, pooled(self.hidden(tokens, mask), mask)), dim=1)

    def hidden(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Last hidden states, (N, L, W). Mask and positions are given: the exporter cannot trace their making."""
        n, length = mask.shape
        causal = torch.ones(length, length, dtype=torch.bool, device=mask.device).tril()
        allowed = causal[None, None] & (mask[:, None, None, :] > 0)
        bias = torch.where(allowed, 0.0, -1e9).to(tokens.dtype)
        positions = torch.arange(length, device=mask.device).expand(n, length)
        backbone: Any = self.backbone
        kinds = getattr(backbone.config, "layer_types", None)
        given = {kind: bias for kind in set(kinds)} if kinds else bias
        out = backbone(inputs_embeds=tokens, attention_mask=given, position_ids=positions, use_cache=False)
        states: Tensor = out.last_hidden_state
        return states


def pooled(states: Tensor, mask: Tensor) -> Tensor:
    """Mean over the tokens that are there, (N, L, W) -> (N, W)."""
    return (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True).clamp_min(1)


def small_decoder(config: PretrainedConfig, seed: int) -> nn.Module:
    """A Hugging Face decoder without head from a config that `shrink` made; fresh weights. Needs transformers.

    Its own token table is left out (one row): tokens come from the `TokenTable`.
    """
    from copy import deepcopy

    from transformers import AutoModel

    torch.manual_seed(seed)
    bare = deepcopy(config)
    bare.update({"vocab_size": 1, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None})
    decoder: nn.Module = AutoModel.from_config(bare, attn_implementation="eager")
    return decoder
