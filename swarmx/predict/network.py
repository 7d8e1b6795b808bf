"""The head: ridge prediction -> starting quantiles -> small MLP that moves and stretches them. Needs torch.

    embedding, counts, labels, n-grams --Basis--> dense features --> ridge prediction r of each target
    r --> quantiles seen near that r, mixed level by level with those of the type   (the start)
    r, counts, labels, embedding's first axes --MLP--> shift of the median, stretch of every step between levels

Everything is in log(1 + value). A step of the start is positive and is multiplied by a positive number, so the grid is
monotone by construction. The untrained head is the start itself, classical conditional quantiles; learning can only add
where the spread differs between calls, and where it does not the start answers alone. The whole is one ONNX graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from swarmx.predict.features import BUCKETS, COUNTS
from swarmx.predict.increasing import outwards, stretched
from swarmx.predict.kernel import Kernel, Product
from swarmx.quantiles import LEVELS


@dataclass(frozen=True, slots=True)
class HeadConfig:
    targets: int = 1
    types: int = 0  # known call types; id 0 means none or unknown
    models: int = 0  # known target models, likewise
    embedding: int = 0  # width of the text embedding; 0 trains without text
    near: int = 0  # columns behind it that say how near the call's tools are to its text
    axes: int = 16  # principal axes of the embedding that the MLP sees directly
    landmarks: int = 256  # of the Nystroem approximation of the embedding's RBF kernel
    count_landmarks: int = 192  # of that of the counts: what a count means depends on others
    near_landmarks: int = 128  # of that of the nearness of the tools
    bins: int = 8  # of the ridge prediction; between their middles the start is interpolated
    members: int = 8  # networks averaged; each leaves other folds out
    hidden: int = 64
    dropout: float = 0.1


class Basis(nn.Module):
    """Dense features of the ridge, (N, D): scaled labels, scaled counts, RBF kernel features of counts and embedding;
    where it is known how near the call's tools are, of that too, and the embedding's kernel depends on it.

    The scales weigh the blocks against each other and against the n-grams, whose vectors have length one.
    """

    label_scale, count_scale = 0.8, 0.08
    axis: Tensor
    usual: Tensor

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        self.counted = Kernel(len(COUNTS), config.count_landmarks, width=1.0)
        self.text = (
            Product(config.embedding, config.near, config.landmarks)
            if config.near
            else Kernel(config.embedding, config.landmarks, width=2.0)
        )
        self.near = Kernel(config.near, config.near_landmarks, width=1.0)
        self.register_buffer("axis", torch.zeros(config.embedding, min(config.axes, config.embedding)))
        self.register_buffer("usual", torch.zeros(config.models))  # share of each model in the log

    @property
    def columns(self) -> dict[str, slice]:
        """Columns of each block, in order."""
        sizes = {
            "types": self.config.types, "models": self.config.models, "counts": len(COUNTS),
            "counts kernel": self.counted.marks, "embedding": self.text.marks, "nearness": self.near.marks,
        }  # fmt: skip
        ends = dict(zip(sizes, accumulate(sizes.values()), strict=True))
        return {name: slice(end - sizes[name], end) for name, end in ends.items()}

    @property
    def size(self) -> int:
        return int(self.columns["nearness"].stop)

    @torch.no_grad()
    def fit(self, embedding: Tensor, counts: Tensor, seed: int) -> None:
        """Set means, deviations, landmarks and axes from distinct texts, (U, E + near) and (U, F)."""
        e = self.config.embedding
        self.counted.fit(counts, seed)
        self.text.fit(embedding, seed)
        self.near.fit(embedding[:, e:], seed)
        if e:
            z = self.text.standard(embedding)[:, :e]
            spread, axes = torch.linalg.eigh((z.T @ z).double() / len(z))
            kept = self.axis.shape[1]
            self.axis.copy_((axes[:, -kept:] / spread[-kept:].clamp_min(1e-6).sqrt()).float())

    def forward(self, embedding: Tensor, counts: Tensor, type_id: Tensor, model_id: Tensor) -> tuple[Tensor, Tensor]:
        """Ridge features (N, D) and what the MLP sees of them (N, M)."""
        model = one_hot(model_id, self.config.models) + (model_id == 0)[:, None] * self.usual  # unknown: their mixture
        labels = torch.cat((one_hot(type_id, self.config.types), model), dim=1)
        counted = self.counted.standard(counts)
        wide, seen = [labels * self.label_scale, counted * self.count_scale], [labels, counted]
        if self.counted.marks:
            wide.append(self.counted(counted))
        if self.config.embedding:
            z = self.text.standard(embedding)
            wide.append(self.text(z))
            seen.append(z[:, : self.config.embedding] @ self.axis)
        if self.near.marks:
            near = z[:, self.config.embedding :]
            wide.append(self.near(near))
            seen.append(near)
        return torch.cat(wide, dim=1), torch.cat(seen, dim=1)


class Members(nn.Module):
    """M equal MLPs side by side: (N, inputs), or (M, N, inputs) -> (M, N, outputs), zero before they learn."""

    def __init__(self, members: int, inputs: int, hidden: int, outputs: int, dropout: float) -> None:
        super().__init__()
        sizes = ((inputs, hidden), (hidden, hidden), (hidden, outputs))
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.randn(members, a, b) * (2 / a) ** 0.5) for a, b in sizes[:-1]]
            + [nn.Parameter(torch.zeros(members, hidden, outputs))]
        )
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(members, 1, b)) for _, b in sizes])
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = functional.silu(x @ weight + bias)
            if self.training:  # one mask for all members: they look at other rows, and drawing is a third of the work
                x = x * functional.dropout(torch.ones(x.shape[1:], device=x.device), self.dropout)
        out: Tensor = x @ self.weights[-1] + self.biases[-1]
        return out


class Start(nn.Module):
    """Quantiles before the MLP, (N, T, K): those seen near the ridge prediction, mixed with those of the call's type.

    One set of bins for calls of known type and one for the others, along the first axis of 2.
    """

    centre: Tensor  # (2, T, B) ridge predictions in the middle of the bins
    table: Tensor  # (2, T, B, K) log quantiles minus the ridge prediction
    by_type: Tensor  # (types + 1, T, K) log quantiles of each type, row 0 unused
    trust: Tensor  # (T, K) weight of the bins against the type where the type is known

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        t, b, k = config.targets, config.bins, len(LEVELS)
        self.register_buffer("centre", torch.arange(b).float().expand(2, t, b).clone())
        self.register_buffer("table", torch.zeros(2, t, b, k))
        self.register_buffer("by_type", torch.zeros(config.types + 1, t, k))
        self.register_buffer("trust", torch.ones(t, k))

    def forward(self, ridge: Tensor, type_id: Tensor) -> Tensor:
        typed = (type_id > 0)[:, None, None]
        near = torch.where(typed, self.near(ridge, 0), self.near(ridge, 1))
        kind = self.by_type[type_id]
        return torch.where(typed, outwards(kind + self.trust * (near - kind)), near)

    def near(self, ridge: Tensor, mode: int) -> Tensor:
        """Linear between the bins' middles, flat outside: a mean of increasing grids, so increasing itself."""
        centre, table = self.centre[mode], self.table[mode]
        gap = (centre[:, 1:] - centre[:, :-1]).clamp_min(1e-6)
        share = ((ridge[:, :, None] - centre[:, :-1]) / gap).clamp(0, 1)  # (N, T, B - 1)
        steps = table[:, 1:] - table[:, :-1]  # (T, B - 1, K)
        return ridge[:, :, None] + table[:, 0] + (share[..., None] * steps).sum(2)


class Heads(nn.Module):
    """Log quantiles of all targets, (N, T, K), from a call's features; before calibration."""

    idf: Tensor
    dense: Tensor
    theta: Tensor
    intercept: Tensor
    scale: Tensor
    trust: Tensor

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config, self.basis, self.start = config, Basis(config), Start(config)
        t = config.targets
        self.register_buffer("idf", torch.ones(BUCKETS))
        # two ridges: one knows the call's type, the other does without; (…, 2 T), the first T know it
        self.register_buffer("dense", torch.zeros(self.basis.size, 2 * t))
        self.register_buffer("theta", torch.zeros(BUCKETS, 2 * t))
        self.register_buffer("intercept", torch.zeros(2 * t))
        self.register_buffer("scale", torch.ones(t))  # sd of each target's log
        self.register_buffer("trust", torch.ones(t, len(LEVELS)))  # weight of the MLP's grid against the start
        axes = min(config.axes, config.embedding)
        inputs = config.types + config.models + len(COUNTS) + axes + config.near + t + 1
        self.members = Members(config.members, inputs, config.hidden, t * len(LEVELS), config.dropout)

    def ridge(self, wide: Tensor, type_id: Tensor, gram_ids: Tensor, gram_weights: Tensor) -> Tensor:
        """Ridge prediction of each target's log, (N, T), from the ridge that fits what the call tells."""
        weights = gram_weights * self.idf[gram_ids]
        weights = weights / weights.norm(dim=1, keepdim=True).clamp_min(1e-6)
        both = wide @ self.dense + (weights[:, :, None] * self.theta[gram_ids]).sum(1) + self.intercept
        t = self.config.targets
        return torch.where((type_id > 0)[:, None], both[:, :t], both[:, t:])

    def grids(self, start: Tensor, ridge: Tensor, seen: Tensor, type_id: Tensor) -> Tensor:
        """Log quantiles of every member, (M, N, T, K), from the start (N, T, K) and the ridge predictions (N, T).

        The arguments may have a first axis of M, where each member looks at rows of its own.
        """
        typed = (type_id > 0)[..., None].to(seen.dtype)
        x = torch.cat((seen, ridge / self.scale, typed), dim=-1)
        raw = self.members(x).reshape(self.config.members, -1, self.config.targets, len(LEVELS))
        return stretched(start, raw, self.scale[:, None])

    def forward(
        self,
        embedding: Tensor,
        counts: Tensor,
        type_id: Tensor,
        model_id: Tensor,
        gram_ids: Tensor,
        gram_weights: Tensor,
    ) -> Tensor:
        wide, seen = self.basis(embedding, counts, type_id, model_id)
        ridge = self.ridge(wide, type_id, gram_ids, gram_weights)
        start = self.start(ridge, type_id)
        return outwards(torch.lerp(start, self.grids(start, ridge, seen, type_id).mean(0), self.trust))


def one_hot(ids: Tensor, size: int) -> Tensor:
    """(N,) ids 0..size -> (N, size); id 0 becomes the zero row."""
    return (ids[:, None] == torch.arange(1, size + 1, device=ids.device)).to(torch.float32)


def level_weights(levels: Sequence[float] | NDArray[np.float64] = LEVELS) -> NDArray[np.float64]:
    """1 / sqrt(level (1 - level)), so that rare tail errors count as much as errors at the median; mean 1."""
    levels = np.asarray(levels, dtype=float)
    weights = 1 / np.sqrt(levels * (1 - levels))
    mean_one: NDArray[np.float64] = weights / weights.mean()
    return mean_one
