"""report.json: what an evaluation found, one row per (suite, workload, regime, load, policy, arm, level).

The terminal table and report.html are drawn from this file and from nothing else. The same seeds on the same
data give the same bytes, apart from `meta.created` and `meta.git`; run times are kept out of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from swarmx.errors import BadInput
from swarmx.files import replacing

Level = Literal["call", "workflow"]
_STRICT = ConfigDict(extra="forbid")
NO_INTERVAL = 1e-6, 1e6  # of one seed: JSON has no infinity
SIGNIFICANT = 6  # digits kept of every number: far below any interval, and the same on every machine


@dataclass(frozen=True, slots=True)
class Ratio:
    """A policy's percentiles over those of a reference, paired by seed; geometric means, below 1 is better.

    ci95 : 95 % interval of the P99 ratio; `NO_INTERVAL` where one seed gives none
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    p50: float
    p95: float
    p99: float
    ci95: tuple[float, float]

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval where there is one."""
        return self.ci95 if NO_INTERVAL[0] < self.ci95[0] and self.ci95[1] < NO_INTERVAL[1] else None

    def percent(self) -> str:
        """The interval in words, as a change in percent."""
        if self.interval is None:
            return "one seed, no interval"
        low, high = ((bound - 1) * 100 for bound in self.interval)
        return f"95 % interval {low:+.0f} to {high:+.0f} %"


@dataclass(frozen=True, slots=True)
class Row:
    """One policy under one load; `meta.definitions` says the same for readers of the file.

    arm : which predictions the policy saw; None for a policy that uses none
    max_rate_at_slo : largest load, as a share of capacity, whose workflow P99 keeps the limit; None where
        nobody looked
    extra : figures of the suite's own, means over seeds; with several tenants also `tenants_jain`,
        `tenants_worst_delay_s` and, up to twelve of them, `tenant/<name>/<figure>`, see `swarmx.sim.accounts`
    vs : reference name (led, round_robin, power_of_two, central_fcfs, clairvoyant, ...) -> ratio
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    suite: str
    workload: str
    regime: str
    load: float
    policy: str
    arm: str | None
    level: Level
    n: int
    p50_s: float
    p95_s: float
    p99_s: float
    ttft_p99_s: float | None = None
    slo_attainment: float | None = None
    max_rate_at_slo: float | None = None
    replica_seconds: float | None = None
    mean_replicas: float | None = None
    flaps: int = 0
    vs: Mapping[str, Ratio] = field(default_factory=dict)
    extra: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Curve:
    """How long the workflows of one row took, and where their time went.

    levels, latency_s : points of the quantile function
    parts_s : queue, prefill, decode, tool -> mean seconds on the critical path; their sum is the mean latency
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    suite: str
    regime: str
    load: float
    policy: str
    arm: str | None
    levels: list[float]
    latency_s: list[float]
    parts_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Predicted against observed output tokens on held-out calls.

    observed : share of calls at or below the predicted quantile of each level
    pinball : predictor or baseline name -> loss per level, in tokens
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    n: int
    levels: list[float]
    observed: list[float]
    pinball: Mapping[str, list[float]]


@dataclass(frozen=True, slots=True)
class Fidelity:
    """A recorded run beside its replay: same arrivals, same replica for each call. Seconds."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    run: str
    level: Level
    n: int
    recorded_s: Mapping[str, float]
    simulated_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Meta:
    """What a reader needs to judge the rows and to get them again.

    data : name, sha256, rows and whatever else tells one log from another
    settings : numbers that the suites measured or chose, such as the capacity of a regime
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    seeds: list[int]
    git: str
    data: Mapping[str, str | int | float]
    versions: Mapping[str, str]
    definitions: Mapping[str, str]
    command: str
    created: str
    settings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figures:
    """What the plots need beyond the rows."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    curves: list[Curve] = field(default_factory=list)
    calibration: Calibration | None = None
    fidelity: list[Fidelity] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Report:
    """A whole evaluation."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    meta: Meta
    rows: list[Row]
    figures: Figures = field(default_factory=Figures)


def write_report(report: Report, path: Path) -> None:
    """Write report.json. Raises BadInput, before anything is written, when a row breaks a promise."""
    _check(report, str(path))
    whole = _rounded(asdict(report))
    with replacing(path) as temporary:
        temporary.write_text(_lines(whole), encoding="utf-8")


def _lines(whole: dict[str, Any]) -> str:
    """JSON with one row, curve or field of meta per line: small, and a diff shows which row changed."""

    def text(value: Any, depth: int) -> str:
        if depth == 0 or not value or not isinstance(value, dict | list):
            return json.dumps(value, allow_nan=False, ensure_ascii=False)
        if isinstance(value, dict):
            items = [f"{json.dumps(key)}: {text(item, depth - 1)}" for key, item in value.items()]
            return "{\n" + ",\n".join(items) + "\n}"
        return "[\n" + ",\n".join(text(item, 0) for item in value) + "\n]"

    return text(whole, 3) + "\n"


def read_report(path: Path) -> Report:
    """Read and check report.json. Raises BadInput naming the file, the place and the value that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"{path}: cannot be read as a report ({problem}); `swarmx evaluate` writes one") from problem
    try:
        report = TypeAdapter(Report).validate_json(text)
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        got = "" if first["type"] == "missing" else f", got {str(first['input'])[:60]!r}"
        raise BadInput(f"{path}: {place}: {first['msg']}{got}; `swarmx evaluate` writes a new one") from problem
    _check(report, str(path))
    return report


def _check(report: Report, name: str) -> None:
    if not report.rows:
        raise BadInput(f"{name}: rows is empty; a report needs at least one policy under one load")
    for index, row in enumerate(report.rows):
        place = f"{name}: rows.{index} ({row.policy}, load {row.load})"
        quantiles = (row.p50_s, row.p95_s, row.p99_s)
        if not all(map(math.isfinite, quantiles)) or not 0 <= row.p50_s <= row.p95_s <= row.p99_s:
            raise BadInput(f"{place}: p50_s, p95_s, p99_s must be finite and not decrease, got {quantiles}")
        if row.n < 1:
            raise BadInput(f"{place}: n must be at least 1, got {row.n}")
        for reference, ratio in row.vs.items():
            numbers = (ratio.p50, ratio.p95, ratio.p99, *ratio.ci95)
            if not all(math.isfinite(x) and x > 0 for x in numbers) or ratio.ci95[0] > ratio.ci95[1]:
                raise BadInput(f"{place}: vs.{reference} needs positive ratios and lo <= hi, got {numbers}")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
