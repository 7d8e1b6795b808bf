"""What a user can set of a pool of replicas and of what is recorded of it; shared by the adapters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    ValidationError,
    field_validator,
    model_validator,
)

from swarmx.errors import BadInput

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


def matching(pattern: str, what: str) -> AfterValidator:
    """A string that matches; else the error says what it must be."""

    def check(value: str) -> str:
        if not re.match(pattern, value):
            raise ValueError(f"must be {what}")
        return value

    return AfterValidator(check)


Mode = Annotated[
    str,
    BeforeValidator(lambda value: "on" if value is True else str(value)),  # YAML reads a bare `on` as true
    matching(r"^(on|shadow|canary:(0?\.\d+|0|1|1\.0*))$", "on, shadow or canary:SHARE of at most 1, as in canary:0.05"),
]
Address = Annotated[str, matching(r"^[^\s/]+:\d{1,5}$", "HOST:PORT, as in 0.0.0.0:9090")]


class Settings(BaseModel):
    """Base of every block of the configuration: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Checked = TypeVar("Checked", bound=Settings)


def read_checked(path: Path, kind: type[Checked]) -> Checked:
    """A YAML file as settings of that kind. Raises BadInput naming the key, its value and what would do."""
    try:
        data = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"{path} cannot be read: {problem}") from None
    except yaml.YAMLError as problem:
        raise BadInput(f"{path} is not YAML: {' '.join(str(problem).split())[:200]}") from None
    if not isinstance(data, dict):
        raise BadInput(f"{path} must hold a mapping; known keys are {', '.join(kind.model_fields)}")
    try:
        return kind.model_validate(data)
    except ValidationError as problem:
        raise BadInput(f"{path}: {_sentence(problem, kind)}") from None


PLAIN = {  # pydantic's types of errors whose own words name its classes
    "model_type": "must hold keys and values",
    "model_attributes_type": "must hold keys and values",
    "dict_type": "must hold keys and values",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "extra_forbidden": "unknown key",
    "missing": "is missing",
}


def plainly(error: Mapping[str, Any]) -> str:
    """What is wrong, of one of `ValidationError.errors()`, for people who know YAML and not pydantic."""
    message = str(error["msg"]).removeprefix("Value error, ")
    return PLAIN.get(error["type"], f"{message[:1].lower()}{message[1:]}")


def _sentence(problem: ValidationError, kind: type[Settings]) -> str:
    first = problem.errors()[0]
    place = ".".join(map(str, first["loc"])) or "the file"
    if first["type"] == "extra_forbidden":
        where = "the file" if len(first["loc"]) == 1 else place.rpartition(".")[0]
        return f"unknown key {place}; known keys of {where} are {', '.join(known_at(kind, first['loc'][:-1]))}"
    value = "" if isinstance(first["input"], dict) else f", got {str(first['input'])[:80]!r}"
    return f"{place}: {plainly(first)}{value}"


def known_at(model: Any, loc: tuple[int | str, ...]) -> list[str]:
    """Keys of the block at a place, found by following the fields' types; of all alternatives where there are some."""
    for step in loc:
        model = _inside(model, step)
    found: dict[str, None] = {}
    for one in _models(model):
        found |= dict.fromkeys(one.model_fields)
    return list(found)


def _inside(hint: Any, step: int | str) -> Any:
    for model in _models(hint):
        if isinstance(step, str) and step in model.model_fields:
            return model.model_fields[step].annotation
    arguments = get_args(hint)
    if get_origin(hint) is dict:
        return arguments[1]
    if get_origin(hint) in (tuple, list):
        return arguments[0]
    for argument in arguments:
        if get_origin(argument) in (dict, tuple, list):
            return _inside(argument, step)
    return hint


def _models(hint: Any) -> list[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return [hint]
    if get_origin(hint) in (dict, tuple, list):
        return []
    return [m for argument in get_args(hint) for m in _models(argument)]


class ReplicaSettings(Settings):
    """One model server.

    id : default host:port of the url; slots : calls that it runs at once, None to learn it from its metrics
    context_tokens, kv_capacity_tokens : None to ask the server; api_key_env : environment variable with its API key
    """

    url: str
    id: str = ""
    device: str = "default"
    slots: Count | None = None
    speed: Positive = 1.0
    context_tokens: Count | None = None
    kv_capacity_tokens: Count | None = None
    api_key_env: str | None = None

    @field_validator("url")
    @classmethod
    def _plain_url(cls, value: str) -> str:
        url = HttpUrl(value)
        if url.username or url.password or url.query or url.fragment:
            raise ValueError("give scheme, host, port and path alone, like http://10.0.0.1:8000")
        return value.rstrip("/").removesuffix("/v1")

    @property
    def name(self) -> str:
        return self.id or self.url.split("://", 1)[1]


class DnsDiscovery(Settings):
    """Every address that a host name resolves to is a replica; the rest is as in `template`."""

    kind: Literal["dns"]
    host: str
    port: Annotated[int, Field(ge=1, le=65535)]
    every_s: Positive = 5.0
    template: dict[str, Any] = Field(default_factory=dict)


class FileDiscovery(Settings):
    """A YAML or JSON file with a list of replicas, read again when it changes."""

    kind: Literal["file"]
    path: Path
    every_s: Positive = 1.0


Discovery = Annotated[DnsDiscovery | FileDiscovery, Field(discriminator="kind")]


class SchedulerSettings(Settings):
    """preset : a name of `swarmx policies`; options : what to have otherwise, as in `swarmx.options`."""

    preset: str = "late"
    options: dict[str, Any] = Field(default_factory=dict)


class PoolSettings(Settings):
    """Replicas that serve the same model.

    models : names by which clients ask for it; default the pool's name
    count_usage : ask streaming servers for their token counts (`stream_options.include_usage`); a client that did not
        ask for them does not see them
    engine_priority : send vLLM's `priority` field; the servers must run with --scheduling-policy priority
    prefix_cache : the servers keep the KV of earlier prompts; calls go where their beginning is thought to be held
    scheduler : instead of the one for all pools
    """

    models: tuple[str, ...] = ()
    replicas: tuple[ReplicaSettings, ...] = ()
    discover: Discovery | None = None
    count_usage: bool = True
    engine_priority: bool = False
    prefix_cache: bool = True
    scheduler: SchedulerSettings | None = None

    @model_validator(mode="after")
    def _has_replicas(self) -> PoolSettings:
        names = [r.name for r in self.replicas]
        if len(set(names)) < len(names):
            raise ValueError(f"replica ids must differ, got {', '.join(names)}")
        return self


class PredictorSettings(Settings):
    """kind : "none", or "local" for a trained model directory at `path`, run on this machine beside the event loop.

    budget_s : how long a call may be held for its prediction before it is queued without one
    runs : in a "thread" of this process, or in a "process" of its own, which shortens the tail of latencies for some
        230 MB of memory and a part of another core
    """

    kind: Literal["none", "local"] = "none"
    path: Path | None = None
    budget_s: Annotated[float, Field(ge=0)] = 0.01
    runs: Literal["thread", "process"] = "thread"

    @model_validator(mode="after")
    def _has_path(self) -> PredictorSettings:
        if self.kind == "local" and self.path is None:
            raise ValueError("kind 'local' needs path, a directory that `swarmx train` wrote")
        return self

    @property
    def own_process(self) -> bool:
        return self.runs == "process"


class LogSettings(Settings):
    """What is written of finished calls.

    directory : None writes nothing
    prompt : "hash" (default), "keep" or "drop" the prompt's text, or "embed" it: the predictor's encoder turns it into
        numbers from which a new head can be trained
    rotate_records, rotate_s : a Parquet file is closed after so many calls or seconds, whichever comes first
    receipts : how many decisions are kept in memory for `explain`; 0 makes none, and none are written
    journal : write what each pool's scheduler was told and decided to <directory>/journal, for `swarmx replay`
    """

    directory: Path | None = None
    prompt: Literal["hash", "keep", "drop", "embed"] = "hash"
    rotate_records: Count = 10_000
    rotate_s: Positive = 600.0
    receipts: Annotated[int, Field(ge=0)] = 10_000
    journal: bool = False
