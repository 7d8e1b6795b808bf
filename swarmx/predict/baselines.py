"""Predictors without text: the quantiles of everything, of a type, of a type on a device. Also the fallback tier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.quantiles import LEVELS
from swarmx.types import CallRecord

Array = NDArray[np.float64]
ENOUGH = 20  # rows before a group has quantiles of its own


@dataclass(frozen=True, slots=True)
class GroupQuantiles:
    """Empirical quantiles per group, the pool's for unknown or small groups.

    pool : (K,); groups : name -> (K,)
    """

    pool: Array
    groups: dict[Hashable, Array]

    def values(self, keys: Sequence[Hashable]) -> Array:
        """Quantiles of each key, (N, K)."""
        return np.array([self.groups.get(key, self.pool) for key in keys]).reshape(len(keys), len(LEVELS))

    def as_json(self) -> dict[str, Any]:
        return {"pool": self.pool.tolist(), "groups": {str(k): v.tolist() for k, v in self.groups.items()}}

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> GroupQuantiles:
        """Raises KeyError, TypeError or ValueError when the data are not what `as_json` wrote."""
        return cls(_grid(data["pool"]), {str(name): _grid(grid) for name, grid in data["groups"].items()})


def _grid(values: Any) -> Array:
    grid = np.array(values, dtype=float)
    if grid.shape != LEVELS.shape or not np.all(np.isfinite(grid)) or np.any(np.diff(grid) < 0):
        raise ValueError(f"a grid needs {len(LEVELS)} finite values that do not decrease, got {values}")
    return grid


def fit_groups(keys: Sequence[Hashable], observed: Array, enough: int = ENOUGH) -> GroupQuantiles:
    """Quantiles of `observed` (N,) pooled and for each key with at least `enough` rows; None is nobody's key.

    Raises ValueError when there are no rows.
    """
    if len(observed) == 0:
        raise ValueError("quantiles need at least one row")
    rows: dict[Hashable, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        if key is not None:
            rows[key].append(i)
    groups = {key: np.quantile(observed[at], LEVELS) for key, at in rows.items() if len(at) >= enough}
    return GroupQuantiles(np.quantile(observed, LEVELS), groups)


def keys_of(records: Sequence[CallRecord], kind: str) -> list[Hashable]:
    """Group of each record: kind `unconditional`, `per_type` or `per_type_device`."""
    if kind == "unconditional":
        return [None] * len(records)
    if kind == "per_type":
        return [record.type for record in records]
    if kind == "per_type_device":
        return [None if record.type is None else (record.type, record.device) for record in records]
    raise ValueError(f"unknown baseline {kind!r}; choose unconditional, per_type, per_type_device")
