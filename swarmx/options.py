"""Parts of a scheduler from plain data, as a configuration file spells them.

    scheduler:
      preset: late
      options:
        order: {kind: fair_share, weights: {gold: 4}, floors: {batch: 0.2}}   # or a name alone
        classes: {nightly: low, gold: high}       # tenant or call type -> class
        aging: {hold_s: [30, 60, 300], share: 0.1}
        reserve: {slots: {high: 0.125}}
        preemption: {rules: [priority], costs: {resume: checkpoint}, most: 2}
        pacing: {per_s: 10, burst: 20}            # of starts, as a hosted model's limits say
        admission: {class_caps: {low: 500}, rates: {free: {per_s: 2000, burst: 20000}}, stall_s: 120}
        inherits: true

A part is spelled by the arguments of its constructor; `{}` takes its defaults, `null` is none of it. Whatever is not
known or not possible is an error that says where it stands and what would do.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from swarmx.admission import Admission
from swarmx.callgraph import GraphBook
from swarmx.combination import Combination
from swarmx.errors import BadInput
from swarmx.late import LateWalk
from swarmx.migration import Migration, Stealing
from swarmx.ordering import ORDERS, Aging, LaneOrder, Order, order_named
from swarmx.pacing import Pacing
from swarmx.preemption import Preemption
from swarmx.reserve import Reserve

PARTS: dict[str, Callable[..., Any]] = {
    "aging": Aging, "preemption": Preemption, "migration": Migration, "stealing": Stealing, "admission": Admission,
    "reserve": Reserve, "pacing": Pacing,
}  # fmt: skip
WALK = ("harm_weight", "prefix_weight", "wait_weight")
TIER = ("overtakes", "hold_services", "hold_s", "share", "tenant_services")
OBJECTS = ("placement", "late")  # only Python sets these
KNOWN = (*(f.name for f in fields(Combination) if f.name not in OBJECTS), *WALK, *TIER, "work_weight")


def combined(parts: Combination, options: Mapping[str, Any]) -> Combination:
    """The combination with these options in the place of its own.

    options : fields of `Combination`, as objects or spelled; `harm_weight`, `prefix_weight`, `wait_weight` of the walk;
        `overtakes`, `hold_services`, `hold_s`, `share`, `tenant_services` of the starvation tier; `work_weight` of
        oldest_workflow
    Raises BadInput, naming the place, for an unknown name or a value that will not do.
    """
    left = dict(options)
    for name in left:
        if name not in (*KNOWN, *OBJECTS):
            raise BadInput(f"unknown option {name!r}{near(name, KNOWN)}; known are {', '.join(KNOWN)}")
    walk, tier = ({k: left.pop(k) for k in names if k in left} for names in (WALK, TIER))
    if "work_weight" in left:
        if "order" in left:
            raise BadInput("give work_weight inside order, as {kind: oldest_workflow, work_weight: ...}")
        left["order"] = {"kind": "oldest_workflow", "work_weight": left.pop("work_weight")}
    parts = replace(parts, **{name: _spelled(name, value) for name, value in left.items()})
    if (walk and parts.late is None) or (tier and parts.binding == "immediate"):
        raise BadInput(f"{', '.join([*walk, *tier])} cannot be set: this policy does not walk a queue")
    if walk and parts.late is not None:
        parts = replace(parts, late=made(LateWalk, {**asdict(parts.late), **walk}, "walk"))
    if tier:
        parts = replace(parts, aging=made(Aging, {**asdict(parts.aging or Aging()), **tier}, "aging"))
    return parts


def order_from(value: str | Mapping[str, Any] | Order | LaneOrder, place: str = "order") -> Order | LaneOrder:
    """A fresh discipline from its name, or from its `kind` and the arguments of its constructor."""
    if isinstance(value, str):
        return order_named(value)
    if not isinstance(value, Mapping):
        return value
    kind = value.get("kind")
    if kind not in ORDERS:
        raise BadInput(f"{place}.kind: unknown {kind!r}{near(str(kind), ORDERS)}; choose one of {', '.join(ORDERS)}")
    found: Order | LaneOrder = made(ORDERS[kind], {k: v for k, v in value.items() if k != "kind"}, place)
    return found


def made(kind: Callable[..., Any], options: Mapping[str, Any], place: str) -> Any:
    """An object of that kind from plain arguments, each checked and converted by the constructor's annotations.

    Raises BadInput for an argument that is unknown, of another type, or that the constructor refuses.
    """
    hints = get_type_hints(kind if is_dataclass(kind) else kind.__init__)
    known = [n for n in inspect.signature(kind).parameters if not _is_from_python(hints.get(n))]
    for name in options:
        if name not in known:
            names = ", ".join(known) or "none"
            raise BadInput(f"{place}: unknown option {name!r}{near(name, known)}; known are {names}")
    try:
        return kind(**_checked({n: hints[n] for n in options}, options, f"{place}."))
    except BadInput:
        raise
    except (ValueError, TypeError) as problem:
        raise BadInput(f"{place}: {problem}") from None


def near(name: object, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _spelled(name: str, value: Any) -> Any:
    if name == "order":
        return order_from(value)
    if name in OBJECTS:
        if isinstance(value, str | Mapping | int | float):
            raise BadInput(f"{name} cannot be set here; choose another preset")
        return value
    part = PARTS.get(name)
    if part is None:
        return _checked({name: get_type_hints(Combination)[name]}, {name: value}, "")[name]
    if value is None:
        return Admission() if name == "admission" else None
    if isinstance(value, Mapping):
        return made(part, value, name)
    if not is_dataclass(value):
        raise BadInput(f"{name}: give its options, as {{name: value}}, got {str(value)[:60]!r}")
    return value


def _checked(hints: Mapping[str, Any], options: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The options, each as its annotation wants it; nested parts are made. prefix : of their names in errors"""
    values = {name: _nested(hint, options[name], prefix + name) for name, hint in hints.items()}
    wanted: dict[str, Any] = {name: (hint, ...) for name, hint in hints.items()}
    model = create_model("Options", __config__=ConfigDict(arbitrary_types_allowed=True), **wanted)
    try:
        found = model.model_validate(values)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = prefix + ".".join(str(step) for step in first["loc"] if step != "[key]")
        message = first["msg"].removeprefix("Value error, ")
        shown = "" if isinstance(first["input"], dict | list) else f", got {str(first['input'])[:60]!r}"
        raise BadInput(f"{where}: {message[:1].lower()}{message[1:]}{shown}") from None
    return {name: getattr(found, name) for name in hints}


def _nested(hint: Any, value: Any, place: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    if isinstance(hint, type) and is_dataclass(hint):
        return made(hint, value, place)
    if get_origin(hint) is Mapping:
        return {key: _nested(get_args(hint)[1], item, f"{place}.{key}") for key, item in value.items()}
    return value


def _is_from_python(hint: Any) -> bool:
    return hint is GraphBook or GraphBook in get_args(hint)
