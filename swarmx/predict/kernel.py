"""RBF kernels as features: each is near to so many landmarks, turned so that products of features are the kernel.

Williams and Seeger (2000), Using the Nystroem Method to Speed Up Kernel Machines. Needs torch.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

CONSTANT = 1e6  # stands for the deviation of a column that never varied
FLOOR = 1e-4  # of the landmarks' eigenvalues: directions below it are rounding


class Landmarks(nn.Module):
    """exp(-|a - b|^2 / (2 width^2 D)) of rows a and landmarks b, on D standardised columns."""

    mean: Tensor
    sd: Tensor
    landmark: Tensor
    rate: Tensor

    def __init__(self, columns: int, marks: int, width: float) -> None:
        super().__init__()
        self.width, self.marks = width, marks if columns else 0
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("sd", torch.ones(columns))
        self.register_buffer("landmark", torch.zeros(self.marks, columns))
        self.register_buffer("rate", torch.zeros(()))

    @torch.no_grad()
    def fit(self, x: Tensor, seed: int) -> None:
        """Set everything from distinct rows (U, D); columns that never vary count for nothing."""
        if not x.shape[1]:
            return
        self.mean.copy_(x.mean(0))
        self.sd.copy_(deviation(x))
        self.rate.fill_(-0.5 / (self.width**2 * max(int((self.sd < CONSTANT).sum()), 1)))
        if self.marks:
            self.landmark.copy_(self.standard(x[picked(len(x), self.marks, seed)]))

    def standard(self, x: Tensor) -> Tensor:
        return ((x - self.mean) / self.sd).clamp(-8, 8)

    def near(self, z: Tensor) -> Tensor:
        """Kernel of standardised rows with the landmarks, (N, L)."""
        gap = (z * z).sum(1, keepdim=True) + (self.landmark * self.landmark).sum(1) - 2 * z @ self.landmark.T
        return torch.exp(gap.clamp_min(0) * self.rate)


class Kernel(Landmarks):
    """Features of one RBF kernel, (N, L)."""

    whiten: Tensor

    def __init__(self, columns: int, marks: int, width: float) -> None:
        super().__init__(columns, marks, width)
        self.register_buffer("whiten", torch.zeros(self.marks, self.marks))

    @torch.no_grad()
    def fit(self, x: Tensor, seed: int) -> None:
        """As `Landmarks.fit`."""
        super().fit(x, seed)
        if self.marks:
            self.whiten.copy_(whitening(self.near(self.landmark)))

    def forward(self, z: Tensor) -> Tensor:
        return self.near(z) @ self.whiten


class Product(nn.Module):
    """Features, (N, L), of text(a, b) (1 + 2 tools(a, b)): two texts are alike, and more so when tools fit both alike.

    What a text says of its answer's length depends on whether a tool fits. The text's kernel is narrower than where it
    stands alone. Its rows are the text's columns and behind them those of the tools. Widths and weights were chosen on
    real function calls (docs/predictor.md).
    """

    more = 2.0
    whiten: Tensor

    def __init__(self, text: int, tools: int, marks: int) -> None:
        super().__init__()
        self.marks, self.cut = marks, text
        self.text, self.tools = Landmarks(text, marks, width=1.0), Landmarks(tools, marks, width=1.0)
        self.register_buffer("whiten", torch.zeros(marks, marks))

    @torch.no_grad()
    def fit(self, x: Tensor, seed: int) -> None:
        """From distinct rows (U, text + tools); the landmarks of both are of the same rows."""
        self.text.fit(x[:, : self.cut], seed)
        self.tools.fit(x[:, self.cut :], seed)
        self.whiten.copy_(whitening(self.near(torch.cat((self.text.landmark, self.tools.landmark), dim=1))))

    def standard(self, x: Tensor) -> Tensor:
        return torch.cat((self.text.standard(x[:, : self.cut]), self.tools.standard(x[:, self.cut :])), dim=1)

    def near(self, z: Tensor) -> Tensor:
        """Kernel of standardised rows with the landmarks, (N, L)."""
        return self.text.near(z[:, : self.cut]) * (1 + self.more * self.tools.near(z[:, self.cut :]))

    def forward(self, z: Tensor) -> Tensor:
        return self.near(z) @ self.whiten


def picked(rows: int, marks: int, seed: int) -> Tensor:
    """Places of the landmarks among the rows, (marks,); some come again where there are too few."""
    return torch.from_numpy(np.random.default_rng(seed).choice(rows, marks, replace=rows < marks))


def whitening(kernel: Tensor) -> Tensor:
    """The matrix that makes features of nearness to landmarks, (L, L), from their kernel with each other."""
    values, vectors = torch.linalg.eigh(kernel.double())
    turned: Tensor = (vectors / values.clamp_min(FLOOR).sqrt()).float()
    return turned


def deviation(x: Tensor) -> Tensor:
    """Standard deviation of each column; huge where it never varied, so that what was never seen is ignored."""
    found = x.std(0, correction=0)
    return torch.where(found < 1e-4, torch.full_like(found, CONSTANT), found)
