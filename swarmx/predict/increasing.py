"""Grids that increase from one level to the next, as torch operations that one ONNX graph can hold."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from swarmx.quantiles import LEVELS

MEDIAN = int(np.searchsorted(LEVELS, 0.5))


def stretched(start: Tensor, raw: Tensor, scale: Tensor) -> Tensor:
    """Increasing grids (…, K) from a start (…, K) and free numbers (…, K): the first shifts the median by its multiple
    of `scale`, the others stretch the steps between levels; softplus(0) would halve a step, so it is normed to keep it.
    """
    factor = functional.softplus(raw[..., 1:]) / functional.softplus(torch.zeros(()))
    steps = (start[..., 1:] - start[..., :-1] + 1e-3 * scale) * factor
    middle = start[..., MEDIAN : MEDIAN + 1] + scale * raw[..., :1]
    below = steps[..., :MEDIAN].flip(-1).cumsum(-1).flip(-1)
    above = steps[..., MEDIAN:].cumsum(-1)
    return torch.cat((middle - below, middle, middle + above), dim=-1)


def outwards(logs: Tensor) -> Tensor:
    """`calibrate.ordered` of grids (…, K): crossings removed outwards from the median, which sharpens no level."""
    below, above = logs[..., : MEDIAN + 1], logs[..., MEDIAN:]
    low = (below[..., None, :] + _barred(MEDIAN + 1)).amin(-1)  # of the level itself and those up to the median
    high = (above[..., None, :] - _barred(len(LEVELS) - MEDIAN).flip(0, 1)).amax(-1)
    return torch.cat((low, high[..., 1:]), dim=-1)


def _barred(size: int) -> Tensor:
    """(size, size): nothing from the diagonal on, more than any log before it."""
    return torch.full((size, size), 1e6).tril(-1)
