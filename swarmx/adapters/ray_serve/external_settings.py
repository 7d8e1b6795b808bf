"""What a user can set of `swarmx serve-scaler`: one YAML file, checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from swarmx.adapters.keda.settings import Url
from swarmx.adapters.settings import Address, Count, Positive, Settings, read_checked
from swarmx.scaling import scaling_preset


class ScaledDeployment(Settings):
    """minimum, maximum : replicas; slots : calls that one runs at once; cold_s : from ordering one until it serves

    units, weight : of a replica and of its calls in the application's budget
    model : what the pages of `demand` call it, default the deployment's name
    """

    minimum: Annotated[int, Field(ge=0)] = 1
    maximum: Count
    slots: Count
    cold_s: Positive = 60.0
    units: Positive = 1.0
    weight: Positive = 1.0
    model: str | None = None

    @model_validator(mode="after")
    def _ordered(self) -> ScaledDeployment:
        if self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum} is above maximum {self.maximum}")
        return self


class ScaledApplication(Settings):
    """policy : a name of `swarmx policies`, options : its own, bounds : fields of its bounds; for all deployments

    budget : units in all, None for as many replicas as each wants
    """

    deployments: Annotated[dict[str, ScaledDeployment], Field(min_length=1)]
    policy: str = "tail_demand"
    options: dict[str, Any] = Field(default_factory=dict)
    bounds: dict[str, Any] = Field(default_factory=dict)
    budget: Positive | None = None

    @model_validator(mode="after")
    def _known(self) -> ScaledApplication:
        if self.policy == "clairvoyant":
            raise ValueError("the scaling policy 'clairvoyant' needs a known future")
        scaling_preset(self.policy, **self.options)
        return self


class ServeScalerSettings(Settings):
    """address : Ray's dashboard, whose REST API sets the replicas

    metrics : metrics pages of all Ray nodes; none to ask the dashboard for them at every look
    demand : /state pages of the gateways or pickers that all calls come through, for what live workflows will ask for
    token_file : with Ray's token; None looks where Ray does: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token
    listen : for /state, /livez and /healthz; every_s : time between two looks
    """

    address: Url = "http://127.0.0.1:8265"
    metrics: tuple[Url, ...] = ()
    demand: tuple[Url, ...] = ()
    applications: Annotated[dict[str, ScaledApplication], Field(min_length=1)]
    token_file: Path | None = None
    listen: Address = "127.0.0.1:9090"
    every_s: Positive = 5.0


def read_serve_scaler_settings(path: Path) -> ServeScalerSettings:
    """The checked file. Raises BadInput naming the key, its value and what would do."""
    return read_checked(path, ServeScalerSettings)
