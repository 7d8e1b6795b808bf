"""Training the small networks of a head side by side, each on its own rows; a killed training goes on where it was.

A member keeps the weights of its own best epoch. After every epoch all that the next one needs is stored: weights, the
moments of the optimiser, both random states; the epochs to come are those of an uninterrupted run. Needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from swarmx.predict.checkpoint import Checkpoint
from swarmx.predict.network import Heads
from swarmx.quantiles import LEVELS

Progress = Callable[[str, float], None]  # what is done, share of it in [0, 1]
CHUNK = 8192  # rows evaluated at once: 8 members, 3 targets, 16 levels, and as much again in between are 50 MB
VISITS = 2_000_000  # rows that all epochs together visit at most: 15 epochs of 66,000 calls, each seen twice
NAME = "networks"


@dataclass(frozen=True, slots=True)
class Rows:
    """What the networks learn from, every call twice: with its type, then without. start : (2 N, T, K);
    ridge, logs : (2 N, T); seen : (2 N, M); types : (2 N,)"""

    start: Tensor
    ridge: Tensor
    seen: Tensor
    types: Tensor
    logs: Tensor


@dataclass(frozen=True, slots=True)
class Schedule:
    """How the members are trained. batch grows with the log, so that small steps do not dominate"""

    epochs: int
    patience: int
    batch: int
    learning_rate: float
    weight_decay: float
    seed: int
    level_weights: tuple[float, ...]

    def of(self, rows: int) -> Schedule:
        """The same for so many rows: fewer epochs of larger batches where they are many."""
        from dataclasses import replace

        epochs = max(min(self.epochs, math.ceil(VISITS / max(rows, 1))), 1)
        return replace(self, epochs=epochs, batch=self.batch * (1 if rows < 50_000 else 4))

    def rate(self, epoch: int) -> float:
        """Learning rate of epoch 1, 2, …: a cosine from the whole to nothing."""
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / self.epochs))


class Training:
    """Members, optimiser and what decides about stopping, after some epochs."""

    def __init__(self, heads: Heads, schedule: Schedule) -> None:
        self.heads, self.schedule = heads, schedule
        self.optimiser = torch.optim.AdamW(
            heads.members.parameters(), schedule.learning_rate, weight_decay=schedule.weight_decay, fused=True
        )
        self.draw = torch.Generator().manual_seed(schedule.seed)
        self.kept = deepcopy(heads.members.state_dict())
        self.best = torch.full((heads.config.members,), math.inf)
        self.epoch, self.since = 0, 0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it as arrays; `restore` takes them."""
        out = {f"now {name}": value.numpy() for name, value in self.heads.members.state_dict().items()}
        out |= {f"kept {name}": value.numpy() for name, value in self.kept.items()}
        for i, state in self.optimiser.state_dict()["state"].items():
            out |= {f"moment {i} {name}": value.numpy() for name, value in state.items()}
        numbers = np.array([self.epoch, self.since])
        states = {"draw": self.draw.get_state().numpy(), "noise": torch.get_rng_state().numpy()}
        return out | states | {"best": self.best.numpy(), "numbers": numbers}

    def restore(self, stored: dict[str, NDArray[Any]]) -> None:
        """Raises KeyError, ValueError or RuntimeError when the arrays are not of such a training."""
        tensors = {name: torch.from_numpy(value) for name, value in stored.items()}
        parts: dict[str, dict[str, Tensor]] = {"now": {}, "kept": {}}
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            kind, _, rest = name.partition(" ")
            if kind in parts:
                parts[kind][rest] = value
            elif kind == "moment":
                moments.setdefault(int(rest.split()[0]), {})[rest.split()[1]] = value
        self.heads.members.load_state_dict(parts["now"])
        self.kept = parts["kept"]
        whole = self.optimiser.state_dict()
        self.optimiser.load_state_dict(whole | {"state": moments})
        self.draw.set_state(tensors["draw"])
        torch.set_rng_state(tensors["noise"])
        self.best = tensors["best"]
        self.epoch, self.since = (int(number) for number in stored["numbers"])


def train_networks(
    heads: Heads, rows: Rows, trains: Tensor, stops: Tensor, schedule: Schedule, progress: Progress,
    checkpoint: Checkpoint | None = None,
) -> int:  # fmt: skip
    """Train the members in place. Returns the epochs run.

    trains, stops : (M, 2 N) weights of the rows that each member learns from and stops early on
    """
    schedule = schedule.of(len(rows.ridge))
    state = Training(heads, schedule)
    levels, weights = torch.tensor(LEVELS, dtype=torch.float32), torch.tensor(schedule.level_weights)
    learns = [torch.nonzero(mask)[:, 0] for mask in trains]  # the rows of each member
    watched = _watched(stops)
    members = torch.arange(len(trains))[:, None]

    def losses(at: Tensor, heed: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of the weighted loss over each member's rows `at` (M, B), and of the weights, both (M,)."""
        grids = heads.grids(rows.start[at], rows.ridge[at], rows.seen[at], rows.types[at])
        loss = (pinball(grids, rows.logs[at], levels, weights) / heads.scale).mean(-1)  # (M, B)
        own = heed[members, at]
        return (loss * own).sum(1), own.sum(1)

    def stopping_losses() -> Tensor:
        heads.eval()
        with torch.no_grad():
            parts = [losses(at, stops) for at in watched]
        return torch.stack([loss for loss, _ in parts]).sum(0) / stops.sum(1).clamp_min(1)

    earlier = checkpoint.load(NAME) if checkpoint else None
    if earlier is None:
        state.best = stopping_losses()
    else:
        state.restore(earlier)
    while state.epoch < schedule.epochs and state.since < schedule.patience:
        state.epoch += 1
        for group in state.optimiser.param_groups:
            group["lr"] = schedule.rate(state.epoch)
        heads.train()
        for at in _batches(learns, schedule.batch, state.draw):
            state.optimiser.zero_grad(set_to_none=True)
            loss, size = losses(at, trains)
            (loss / size.clamp_min(1e-6)).sum().backward()  # type: ignore[no-untyped-call]
            state.optimiser.step()
        _keep_better(state, stopping_losses())
        if checkpoint:
            checkpoint.store(NAME, state.arrays())
        progress("network", state.epoch / schedule.epochs)
    heads.members.load_state_dict(state.kept)
    heads.eval()
    return state.epoch


def _batches(own: list[Tensor], size: int, draw: torch.Generator) -> Iterator[Tensor]:
    """Rows that each member learns from next, (M, <= size): its own in random order, as many as the poorest has."""
    fewest = min(map(len, own))
    order = torch.stack([at[torch.randperm(len(at), generator=draw)[:fewest]] for at in own])
    return iter(order.split(size, dim=1))  # type: ignore[no-untyped-call]


def _watched(stops: Tensor) -> Sequence[Tensor]:
    """The rows that each member stops on, (M, <= CHUNK / M) at a time; filled up with rows of no weight."""
    most = max(int((stops > 0).sum(1).max()), 1)
    order: Tensor = (stops > 0).to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
    parts: Sequence[Tensor] = order.split(max(CHUNK // len(stops), 1), dim=1)  # type: ignore[no-untyped-call]
    return parts


def _keep_better(state: Training, now: Tensor) -> None:
    """Keep the weights of the members whose stopping loss fell."""
    better = now < state.best - 1e-5
    for name, value in state.heads.members.state_dict().items():
        state.kept[name][better] = value[better]
    state.best = torch.where(better, now, state.best)
    state.since = 0 if bool(better.any()) else state.since + 1


def pinball(log_values: Tensor, observed: Tensor, levels: Tensor, weights: Tensor) -> Tensor:
    """Weighted pinball loss summed over levels, (…), of log values (…, K) against observed logs (…).

    Koenker and Bassett (1978), Regression Quantiles.
    """
    gap = observed[..., None] - log_values
    loss: Tensor = ((levels * gap + functional.relu(-gap)) * weights).sum(-1)
    return loss
