"""What to expect of a call when the neural predictor does not answer: per-type quantiles, else the pool's.

Something always answers. The tier that did is named in the prediction's `source`, and from there in receipts and
counters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from datasketches import tdigest_double

from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.types import Prediction

ENOUGH = 20  # observations before a type's own quantiles are trusted
FIRST_GUESS_TOKENS = 128.0  # mean of the exponential that stands in before anything has finished


@dataclass
class ObservedLengths:
    """Output lengths seen so far, of all calls and of each call type, as mergeable quantile sketches.

    A grid is read off a sketch again after its count has grown by an eighth, so one observation costs microseconds.
    t-digests, since they use no random numbers: the same calls give the same grids in every process.

    k : size of a sketch, about so many centroids
    """

    k: int = 200
    max_types: int = 10_000
    _sketches: dict[str | None, tdigest_double] = field(default_factory=dict)
    _grids: dict[str | None, tuple[int, Prediction]] = field(default_factory=dict)

    def observe(self, call_type: str | None, tokens: float) -> None:
        """Add one finished call. New types beyond `max_types` count for the pool alone."""
        keys = (None,) if call_type is None else (None, call_type)
        for key in keys:
            sketch = self._sketches.get(key)
            if sketch is None:
                if len(self._sketches) > self.max_types:
                    continue
                sketch = self._sketches[key] = tdigest_double(self.k)
            sketch.update(float(tokens))

    def expect(self, call_type: str | None) -> Prediction:
        """Prediction from the type's lengths where there are enough, else from all lengths, else a first guess."""
        sketch = self._sketches.get(call_type) if call_type is not None else None
        if sketch is not None and sketch.get_total_weight() >= ENOUGH:
            return self._read(call_type, sketch, "per_type")
        pool = self._sketches.get(None)
        if pool is not None:
            return self._read(None, pool, "pool_mean")
        return _FIRST

    def _read(self, key: str | None, sketch: tdigest_double, source: str) -> Prediction:
        cached, n = self._grids.get(key), sketch.get_total_weight()
        if cached is not None and n < cached[0]:
            return cached[1]
        values = np.maximum.accumulate(np.array([sketch.get_quantile(q) for q in LEVELS.tolist()]))
        prediction = Prediction(
            QuantileGrid(LEVELS, values), source="per_type" if source == "per_type" else "pool_mean"
        )
        self._grids[key] = (n + max(1, n // 8), prediction)
        return prediction

    def __getstate__(self) -> dict[str, Any]:
        """Sketches as bytes: their library does not pickle them."""
        return self.__dict__ | {"_sketches": {key: sketch.serialize() for key, sketch in self._sketches.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        read = tdigest_double.deserialize
        self.__dict__.update(state | {"_sketches": {key: read(raw) for key, raw in state["_sketches"].items()}})


_FIRST = Prediction(QuantileGrid(LEVELS, -FIRST_GUESS_TOKENS * np.log(1 - LEVELS)), source="pool_mean")
