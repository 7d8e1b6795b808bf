"""What a user can set of the external scaler: one YAML file, checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from swarmx.adapters.settings import Address, Count, Positive, Settings, matching, read_checked
from swarmx.scaling import SCALERS, scaling_preset

Url = Annotated[str, matching("^https?://", "an address that begins with http:// or https://")]


class TargetSettings(Settings):
    """The workload whose replicas are set or whose pods are annotated. namespace : default the scaler's own"""

    kind: Literal["Deployment", "StatefulSet"] = "Deployment"
    name: str
    namespace: str | None = None


class PoolScaling(Settings):
    """sources : /state pages of the pool's pickers, or /state/POOL of gateways, whose counts are added up

    policy : a name of `swarmx policies`; model : what the pages' `demand` calls it, default the pool's name
    token_env : environment variable with the token that the pages ask for, None for open ones
    maximum, minimum : replicas; cold_s : from ordering a replica until it is ready
    stale_s : when no picker has answered for so long, KEDA is told that nothing is known
    target : needed in direct mode; with KEDA, lets the cheapest replica go first
    """

    sources: Annotated[tuple[Url, ...], Field(min_length=1)]
    policy: str = "tail_demand"
    model: str | None = None
    token_env: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    minimum: Annotated[int, Field(ge=0)] = 1
    maximum: Count
    cold_s: Positive = 60.0
    stale_s: Positive = 60.0
    target: TargetSettings | None = None

    @model_validator(mode="after")
    def _known(self) -> PoolScaling:
        known = [name for name in SCALERS if name != "clairvoyant"]
        if self.policy not in known:
            raise ValueError(f"unknown scaling policy {self.policy!r}; choose one of {', '.join(known)}")
        scaling_preset(self.policy, **self.options)
        if self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum} is above maximum {self.maximum}")
        return self


class ExternalScalerSettings(Settings):
    """mode : "keda" answers KEDA on `listen`; "direct" sets the replicas itself. Never both for one workload.

    every_s : time between two looks at the pools
    """

    pools: Annotated[dict[str, PoolScaling], Field(min_length=1)]
    mode: Literal["keda", "direct"] = "keda"
    listen: Address = "0.0.0.0:9091"
    metrics_listen: Address = "0.0.0.0:9090"
    every_s: Positive = 5.0

    @model_validator(mode="after")
    def _has_targets(self) -> ExternalScalerSettings:
        without = [name for name, pool in self.pools.items() if pool.target is None]
        if self.mode == "direct" and without:
            raise ValueError(f"mode direct needs a target for pool {without[0]!r}")
        return self


def read_scaler_settings(path: Path) -> ExternalScalerSettings:
    """The checked file. Raises BadInput naming the key, its value and what would do."""
    return read_checked(path, ExternalScalerSettings)
