"""What a user can set of the request router: a deployment's `request_router_kwargs`, checked when it is declared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError, model_validator

from swarmx.adapters.live_work import DemandSettings
from swarmx.adapters.settings import LogSettings, Mode, Positive, PredictorSettings, SchedulerSettings, Settings
from swarmx.errors import BadInput
from swarmx.presets import PRESETS, preset

ROUTER = "swarmx.adapters.ray_serve.router.SwarmXRequestRouter"


class RouterSettings(Settings):
    """The whole configuration.

    mode : "on"; "shadow" decides and counts, Serve chooses; "canary:SHARE" does so for the workflows outside the share
    queue_owner : whether a preset that holds calls back asks one owner for the whole deployment; without, every handle
        binds at once
    lease_s : a handle that the owner has not heard of for so long has lost its calls
    answer_s : an owner that takes longer to answer counts as away
    start_s : how long a handle's first calls wait for its compiled loops and its model before Serve chooses
    log : where handles and the owner write records of ended calls and receipts
    demand : what live workflows will still ask for, told to the autoscaling policies
    """

    mode: Mode = "on"
    scheduler: SchedulerSettings = SchedulerSettings()
    predictor: PredictorSettings = PredictorSettings()
    queue_owner: bool = True
    lease_s: Positive = 5.0
    answer_s: Positive = 2.0
    start_s: Annotated[float, Field(ge=0)] = 1.0
    log: LogSettings = LogSettings()
    demand: DemandSettings | None = None

    @property
    def share(self) -> float:
        """Of workflows that are really routed."""
        if self.mode in ("on", "shadow"):
            return float(self.mode == "on")
        return float(self.mode.removeprefix("canary:"))

    @property
    def asks_owner(self) -> bool:
        return self.queue_owner and preset(self.scheduler.preset).parts.binding == "late"

    @model_validator(mode="after")
    def _known(self) -> RouterSettings:
        name = self.scheduler.preset
        if name not in PRESETS or PRESETS[name].needs == "oracle":
            known = ", ".join(n for n, p in PRESETS.items() if p.needs != "oracle")
            raise ValueError(f"scheduler.preset {name!r} is unknown here; choose one of {known}")
        preset(name, 0, **self.scheduler.options)
        if self.log.journal:
            raise ValueError("log.journal is for the gateway and the picker; the router writes records and receipts")
        if self.log.prompt == "embed" and self.predictor.path is None:
            raise ValueError("log.prompt 'embed' needs a predictor with an encoder; give predictor.path")
        if self.demand is not None and self.demand.learned and self.predictor.path is None:
            raise ValueError("demand.learned needs a predictor of kind 'local', whose directory holds the forecast")
        return self


def settings_of(
    config: dict[str, Any] | str | None = None, model_dir: str | None = None, preset: str | None = None
) -> RouterSettings:
    """Settings from the router's keyword arguments. config : a mapping, or the path of a YAML file with one

    model_dir, preset : short for `predictor: {kind: local, path: ...}` and `scheduler: {preset: ...}`
    Raises BadInput naming the key, its value and what would do.
    """
    data = dict(_read(config) if isinstance(config, str) else config or {})
    if model_dir is not None:
        data["predictor"] = {**data.get("predictor", {}), "kind": "local", "path": model_dir}
    if preset is not None:
        data["scheduler"] = {**data.get("scheduler", {}), "preset": preset}
    try:
        return RouterSettings.model_validate(data)
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(map(str, first["loc"])) or "config"
        known = ", ".join(RouterSettings.model_fields)
        hint = f"; known keys are {known}" if first["type"] == "extra_forbidden" else ""
        message = first["msg"].removeprefix("Value error, ")
        raise BadInput(f"swarmx router: {place}: {message}{hint}") from None


def router_config(
    preset: str = "late",
    model_dir: str | None = None,
    config: dict[str, Any] | str | None = None,
    stats_period_s: float = 0.5,
    **more: Any,
) -> Any:
    """The `request_router_config` of a deployment, checked here and now instead of in every handle.

    stats_period_s : how often replicas' numbers travel to the handles; more : further fields of RequestRouterConfig
    Raises BadInput for settings that cannot be, and for an unsupported Ray.
    """
    from swarmx.adapters.ray_serve.versions import check_ray

    check_ray()
    settings_of(config, model_dir, preset)
    from ray.serve.config import RequestRouterConfig

    kwargs = {"config": config, "model_dir": model_dir, "preset": preset}
    return RequestRouterConfig(
        request_router_class=ROUTER,
        request_router_kwargs={k: v for k, v in kwargs.items() if v is not None},
        request_routing_stats_period_s=stats_period_s,
        **more,
    )


def _read(path: str) -> dict[str, Any]:
    try:
        data = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise BadInput(f"swarmx router: {path} cannot be read: {' '.join(str(problem).split())[:200]}") from None
    if not isinstance(data, dict):
        raise BadInput(f"swarmx router: {path} must hold a mapping, got {type(data).__name__}")
    return data
