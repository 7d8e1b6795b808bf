"""Online calibration in two layers: what all types have in common first, then what a type has of its own.

A shift of everything shows within dozens of calls of the pool, while each of its many groups has seen one or two; a
shift of one group leaves the pool nearly alone. The group's layer observes what the pool's has already corrected.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from swarmx.drift import Group
from swarmx.predict.online import OnlineCalibration
from swarmx.quantiles import QuantileGrid


@dataclass
class LayeredCalibration:
    """pool : by model; own : by type and model"""

    pool: OnlineCalibration = field(default_factory=OnlineCalibration)
    own: OnlineCalibration = field(default_factory=OnlineCalibration)

    def corrected(self, grid: QuantileGrid, group: Group) -> QuantileGrid:
        """The grid (K,) as both layers correct it."""
        return self.own.corrected(self.pool.corrected(grid, group[1]), group[:2])

    def observe(self, group: Group, grid: QuantileGrid, observed: float) -> None:
        """A call of the group ended; grid : as the predictor said it."""
        between = self.pool.corrected(grid, group[1])
        self.pool.observe(group[1], grid, observed)
        self.own.observe(group[:2], between, observed)
