"""The configuration of the whole product: one YAML file, checked before anything starts.

    mode: on                       # or shadow, or {canary: 0.05}
    model_pools:
      llama:
        replicas:
          - {url: "http://10.0.0.1:8000", slots: 16, device: a100}
          - {url: "http://10.0.0.2:8000", slots: 16, device: l4}
    scheduler: {preset: late}
    predictor: {kind: local, path: models/llama}
    log: {directory: logs}
    server: {port: 8080}

An unknown key or name is an error that says where it stands and which are known.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from swarmx.adapters.adaptation import AdaptationSettings
from swarmx.adapters.gateway.gateway import GatewaySettings
from swarmx.adapters.gateway.settings import ServerSettings
from swarmx.adapters.live_work import DemandSettings
from swarmx.adapters.settings import (
    LogSettings,
    PoolSettings,
    PredictorSettings,
    SchedulerSettings,
    Settings,
    known_at,
    plainly,
)
from swarmx.errors import BadInput
from swarmx.presets import preset
from swarmx.scaling import SCALERS

MAX_BYTES = 4 * 2**20
PATHS = (
    ("log", "directory"), ("demand", "log"), ("predictor", "path"), ("server", "tls", "certificate"),
    ("server", "tls", "key"),
)  # fmt: skip


class Canary(Settings):
    """canary : share of workflows that swarmx serves; server.shadow_preset serves the rest."""

    canary: Annotated[float, Field(gt=0, lt=1)]


class ScalingSettings(Settings):
    """kind : a scaling policy; options : its constructor's arguments; every_s : time between two decisions"""

    kind: str = "tail_demand"
    options: dict[str, Any] = Field(default_factory=dict)
    every_s: Annotated[float, Field(gt=0)] = 15.0


class Config(Settings):
    """Everything that one file can set."""

    model_pools: Annotated[dict[str, PoolSettings], Field(min_length=1)]
    mode: Literal["on", "shadow"] | Canary = "on"
    scheduler: SchedulerSettings = SchedulerSettings()
    predictor: PredictorSettings = PredictorSettings()
    scaling: ScalingSettings | None = None
    adaptation: AdaptationSettings = AdaptationSettings()
    log: LogSettings = LogSettings()
    demand: DemandSettings | None = None
    server: ServerSettings = ServerSettings()

    @field_validator("mode", mode="before")
    @classmethod
    def _says_what_would_do(cls, value: Any) -> Any:
        if not isinstance(value, dict | Canary) and value not in ("on", "shadow"):
            raise ValueError("must be on, shadow or {canary: SHARE}, as in {canary: 0.05}")
        return value

    @model_validator(mode="after")
    def _can_adapt(self) -> Config:
        if self.adaptation.kind != "none" and self.predictor.kind != "local":
            raise ValueError("adaptation needs a predictor of kind 'local' to adapt")
        learns = self.log.directory is not None and self.log.prompt in ("keep", "embed")
        if self.adaptation.trainer == "process" and not learns:
            raise ValueError("adaptation.trainer 'process' learns from log.directory, with log.prompt keep or embed")
        return self

    def gateway(self) -> GatewaySettings:
        """The part that `swarmx serve` runs."""
        mode = self.mode.canary if isinstance(self.mode, Canary) else self.mode
        parts = self.model_pools, self.server, self.scheduler, self.predictor, self.log
        return GatewaySettings(*parts, mode, self.adaptation, self.demand)


def load_config(path: str | Path) -> Config:
    """Read and check a file; relative paths in it are taken from its directory.

    Raises BadInput naming file, place, value and what is known there.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(f"{path}: larger than {MAX_BYTES} bytes, which no configuration is")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"{path}: cannot be read ({problem})") from None
    return parse_config(text, str(path), path.parent)


def parse_config(text: str, source: str = "configuration", base: Path | None = None) -> Config:
    """The same from text. base : directory that relative paths are taken from"""
    try:
        raw = yaml.load(text, _Loader)
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark is not None else ""
        raise BadInput(f"{source}:{where} {getattr(problem, 'problem', None) or 'is not YAML'}") from None
    if not isinstance(raw, dict):
        raise BadInput(f"{source}: must hold keys and values, beginning with model_pools")
    if raw.get("mode") is True:  # YAML 1.1 reads `on` as true
        raw["mode"] = "on"
    _resolve(raw, base or Path())
    try:
        config = Config.model_validate(raw)
    except ValidationError as problem:
        raise BadInput(f"{source}: {_explain(problem)}") from None
    _check_names(config, source)
    return config


def _check_names(config: Config, source: str) -> None:
    """Names of policies and their options, which only their registries know."""
    places = {"scheduler": config.scheduler}
    places |= {f"model_pools.{n}.scheduler": p.scheduler for n, p in config.model_pools.items() if p.scheduler}
    places["server.shadow_preset"] = SchedulerSettings(preset=config.server.shadow_preset)
    for place, wanted in places.items():
        try:
            preset(wanted.preset, **wanted.options)
        except BadInput as problem:
            raise BadInput(f"{source}: {place}: {problem}") from None
    names = [m for n, p in config.model_pools.items() for m in (p.models or (n,))]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise BadInput(f"{source}: model_pools: the model {twice[0]!r} is served by two pools; one must do")
    if config.scaling is not None:
        known = {name: entry.policy for name, entry in SCALERS.items()}
        _check_part(f"{source}: scaling", config.scaling.kind, config.scaling.options, known)


def _check_part(place: str, kind: str, options: Mapping[str, Any], known: Mapping[str, Callable[..., Any]]) -> None:
    if kind not in known:
        raise BadInput(f"{place}.kind: unknown {kind!r}{_near(kind, known)}; choose one of {', '.join(known)}")
    arguments = [p for p in inspect.signature(known[kind]).parameters if p != "self"]
    for name in options:
        if name not in arguments:
            raise BadInput(f"{place}.options: unknown {name!r} for {kind}; known are {', '.join(arguments) or 'none'}")


def _resolve(raw: Any, base: Path) -> None:
    """Make relative paths absolute, in place, where a path is expected."""
    store = raw.get("adaptation", {}).get("models") if isinstance(raw.get("adaptation"), dict) else None
    is_address = isinstance(store, str) and "://" in store
    for keys in PATHS if is_address else (*PATHS, ("adaptation", "models")):
        _resolve_at(raw, keys, base)
    pools = raw.get("model_pools")
    for pool in pools.values() if isinstance(pools, dict) else ():
        _resolve_at(pool, ("discover", "path"), base)


def _resolve_at(raw: Any, keys: tuple[str, ...], base: Path) -> None:
    for key in keys[:-1]:
        raw = raw.get(key) if isinstance(raw, dict) else None
    if isinstance(raw, dict) and isinstance(raw.get(keys[-1]), str):
        raw[keys[-1]] = str(base / raw[keys[-1]])


# ---- errors that a person can mend ----


def _explain(problem: ValidationError) -> str:
    """The most telling error in one sentence: an unknown key, as it may cause others, else the deepest one."""
    whole = ("model_type", "model_attributes_type", "dict_type")
    errors = sorted(
        problem.errors(), key=lambda e: (e["type"] != "extra_forbidden", e["type"] in whole, -len(e["loc"]))
    )
    first = errors[0]
    steps = [str(p) for p in first["loc"]]
    place = ".".join(s for s in steps if not s.startswith(("literal[", "function-", "Canary"))) or "the file"
    if first["type"] == "extra_forbidden":
        known = known_at(Config, first["loc"][:-1])
        return f"{place}: unknown key{_near(steps[-1], known)}; known here are {', '.join(known)}"
    value = first.get("input")
    shown = "" if isinstance(value, dict | list) or first["type"] == "missing" else f", got {str(value)[:60]!r}"
    return f"{place}: {plainly(first)}{shown}"


def _near(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key given twice, instead of dropping the first."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key, _ in node.value:
        name = loader.construct_object(key)
        if name in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} is given twice", key.start_mark)
        seen.add(name)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
