"""Training the small transformer of the text encoder: from a prompt's tokens to properties of it or of its answer.

The properties are any numbers per text: log lengths of answers from a log (supervised), or the target model's own
pooled hidden states (distillation, which needs no answers and so cannot leak a held-out group's). Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from swarmx.predict.neural import TextNetwork

SampleLoss = Callable[[Tensor, Tensor], Tensor]  # predicted (N, P), wanted (N, P) -> (N,)
Progress = Callable[[str, float], None]


def huber(predicted: Tensor, wanted: Tensor) -> Tensor:
    """Mean Huber loss of a sample's standardised properties, (N,): one odd answer does not own the gradient."""
    return functional.huber_loss(predicted, wanted, reduction="none").mean(1)


def cosine(predicted: Tensor, wanted: Tensor) -> Tensor:
    """1 - cosine similarity, (N,): direction alone, for hidden states whose length means little."""
    return 1 - functional.cosine_similarity(predicted, wanted, dim=1)


@dataclass(frozen=True, slots=True)
class SemanticConfig:
    loss: SampleLoss = huber
    epochs: int = 10
    patience: int = 2
    tokens_per_batch: int = 4096
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    seed: int = 0


def fit_encoder(
    network: TextNetwork, ids: Sequence[Sequence[int]], properties: NDArray[np.float32], stop: NDArray[np.bool_],
    config: SemanticConfig, progress: Progress = lambda what, done: None,
) -> list[float]:  # fmt: skip
    """Train the network's transformer in place, keeping its best epoch; the token table stays.

    ids : tokens of each of N texts; properties : (N, P), standardised; stop : (N,) rows for early stopping
    Returns the stopping loss before training and after every epoch.
    Raises ValueError when the network has no transformer or there is nothing to stop on.
    """
    if network.backbone is None:
        raise ValueError("the network has no transformer to train; build it with a backbone")
    if not stop.any() or stop.all():
        raise ValueError("early stopping needs some rows and training the others; got all on one side")
    torch.manual_seed(config.seed)
    head = nn.Linear(network.width, properties.shape[1])
    wanted = torch.from_numpy(properties)
    parameters = [*network.backbone.parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW(parameters, config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.epochs)
    inside, outside = np.flatnonzero(~stop), np.flatnonzero(stop)
    rng = np.random.default_rng(config.seed)

    def stopping_loss() -> float:
        network.eval()
        with torch.no_grad():
            parts = [config.loss(head(network(*padded(ids, at))), wanted[at]) for at in batches(ids, outside, config)]
        return float(torch.cat(parts).mean())

    history = [stopping_loss()]
    kept = deepcopy(network.backbone.state_dict())
    for epoch in range(config.epochs):
        network.train()
        for at in batches(ids, rng.permutation(inside), config, rng):
            optimiser.zero_grad(set_to_none=True)
            config.loss(head(network(*padded(ids, at))), wanted[at]).mean().backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
        schedule.step()
        history.append(stopping_loss())
        progress("encoder", (epoch + 1) / config.epochs)
        if history[-1] <= min(history):
            kept = deepcopy(network.backbone.state_dict())
        elif len(history) - 1 - int(np.argmin(history)) >= config.patience:
            break
    network.backbone.load_state_dict(kept)
    network.eval()
    return history


def batches(
    ids: Sequence[Sequence[int]],
    rows: NDArray[np.int64],
    config: SemanticConfig,
    rng: np.random.Generator | None = None,
) -> Iterator[Tensor]:
    """Rows of like length, each batch within the token budget; in random order when an rng is given."""
    ordered = sorted(rows.tolist(), key=lambda i: len(ids[i]))
    parts: list[list[int]] = [[]]
    for i in ordered:
        if parts[-1] and (len(parts[-1]) + 1) * max(len(ids[i]), 1) > config.tokens_per_batch:
            parts.append([])
        parts[-1].append(i)
    order = range(len(parts)) if rng is None else rng.permutation(len(parts)).tolist()
    for k in order:
        yield torch.tensor(parts[k])


def padded(ids: Sequence[Sequence[int]], at: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids and mask of some texts, both (N, L); L is at least 1."""
    chosen = [ids[i] for i in at.tolist()]
    length = max(1, *map(len, chosen))
    tokens, mask = torch.zeros(len(chosen), length, dtype=torch.int64), torch.zeros(len(chosen), length)
    for row, text in enumerate(chosen):
        tokens[row, : len(text)] = torch.tensor(text, dtype=torch.int64)
        mask[row, : len(text)] = 1
    return tokens, mask
