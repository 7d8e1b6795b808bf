"""What to expect of a call when the neural predictor does not answer: per-type quantiles, else the pool's.

Something always answers. The tier that did is named in the prediction's `source`, and from there in receipts and
counters.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from datasketches import kll_floats_sketch

from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.types import Prediction

ENOUGH = 20  # observations before a type's own quantiles are trusted
FIRST_GUESS_TOKENS = 128.0  # mean of the exponential that stands in before anything has finished


@dataclass
class ObservedLengths:
    """Output lengths seen so far, of all calls and of each call type, as mergeable quantile sketches.

    A grid is read off a sketch again after its count has grown by an eighth, so one observation costs microseconds.
    """

    k: int = 200
    max_types: int = 10_000
    _sketches: dict[str | None, kll_floats_sketch] = field(default_factory=dict)
    _grids: dict[str | None, tuple[int, Prediction]] = field(default_factory=dict)

    def observe(self, call_type: str | None, tokens: float) -> None:
        """Add one finished call. New types beyond `max_types` count for the pool alone."""
        keys = (None,) if call_type is None else (None, call_type)
        for key in keys:
            sketch = self._sketches.get(key)
            if sketch is None:
                if len(self._sketches) > self.max_types:
                    continue
                sketch = self._sketches[key] = kll_floats_sketch(self.k)
            sketch.update(float(tokens))

    def expect(self, call_type: str | None) -> Prediction:
        """Prediction from the type's lengths where there are enough, else from all lengths, else a first guess."""
        sketch = self._sketches.get(call_type) if call_type is not None else None
        if sketch is not None and sketch.n >= ENOUGH:
            return self._read(call_type, sketch, "per_type")
        pool = self._sketches.get(None)
        if pool is not None:
            return self._read(None, pool, "pool_mean")
        return _FIRST

    def _read(self, key: str | None, sketch: kll_floats_sketch, source: str) -> Prediction:
        cached = self._grids.get(key)
        if cached is not None and sketch.n < cached[0]:
            return cached[1]
        values = np.maximum.accumulate(np.array(sketch.get_quantiles(LEVELS.tolist()), dtype=np.float64))
        prediction = Prediction(
            QuantileGrid(LEVELS, values), source="per_type" if source == "per_type" else "pool_mean"
        )
        self._grids[key] = (sketch.n + max(1, sketch.n // 8), prediction)
        return prediction


_FIRST = Prediction(QuantileGrid(LEVELS, -FIRST_GUESS_TOKENS * np.log(1 - LEVELS)), source="pool_mean")
