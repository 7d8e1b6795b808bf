"""The loop across restarts: one file, replaced atomically, from which the next start goes on.

What is kept: the reservoir, the place in the stream, open drifts, the rival with the evidence of its trial, the latest
events. What is not: the monitor's evidence and the online calibration, which are gathered anew from the next records,
and the calls of workflows that were still running, which then teach nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from swarmx.adapt.contest import Contest, Probation, Wealth
from swarmx.adapt.events import Event, Rival
from swarmx.adapt.loop import AdaptationLoop
from swarmx.adapt.packing import pack, unpack
from swarmx.adapt.registry import RegistryError
from swarmx.adapt.retrain import Changed
from swarmx.errors import BadInput
from swarmx.files import replacing

SCHEMA = 1
TRIALS = {"contest": Contest, "probation": Probation}


def save(loop: AdaptationLoop, path: Path, position: Mapping[str, Any]) -> None:
    """Write the file. position : where in its input the caller is; may raise OSError."""
    examples, about = loop.reservoir.snapshot()
    state = {
        "schema": SCHEMA,
        "position": dict(position),
        "seq": loop.seq,
        "at": loop.at,
        "retrained_seq": loop.retrained_seq,
        "in_vain": loop.in_vain,
        "changed": [[list(c.group), c.seq, c.alarmed, c.reason] for c in (*loop.changed.values(), *loop.underway)],
        "champion": loop.champion.version,
        "rival": None if loop.rival is None else _rival(loop.rival),
        "reservoir": about,
        "events": [asdict(event) for event in loop.events],
    }
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    with replacing(path) as temporary, temporary.open("wb") as out:
        np.savez(out, state=text, **pack(examples))  # type: ignore[arg-type]


def restore(loop: AdaptationLoop, path: Path) -> dict[str, Any]:
    """Take over what `save` wrote, as far as it still holds; returns the position, {} when there is no file.

    The registry says who is champion: a trial of another one is not taken up again.
    Raises BadInput when the file is not what `save` writes.
    """
    if not path.exists():
        return {}
    try:
        with np.load(path) as arrays:
            state = json.loads(arrays["state"].tobytes())
            examples = unpack(arrays)
        if state["schema"] != SCHEMA:
            raise ValueError(f"schema {state['schema']!r}, this swarmx reads {SCHEMA}")
        loop.reservoir.restore(examples, state["reservoir"])
        loop.seq, loop.at = int(state["seq"]), float(state["at"])
        loop.retrained_seq, loop.in_vain = int(state["retrained_seq"]), int(state["in_vain"])
        if state["champion"] == loop.champion.version:
            for (kind, model, device), seq, alarmed, reason in state["changed"]:
                loop.changed[kind, model, device] = Changed((kind, model, device), seq, alarmed, reason)
            if state["rival"] is not None:
                _take_up(loop, state["rival"])
        loop.events.extend(Event(**event) for event in state["events"])
        position: dict[str, Any] = state["position"]
    except (OSError, KeyError, TypeError, ValueError, IndexError) as problem:
        raise BadInput(f"{path} is not a usable state of the loop ({problem!r}); remove it to start anew") from None
    return position


def _rival(rival: Rival) -> dict[str, Any]:
    kind = "contest" if isinstance(rival.trial, Contest) else "probation"
    return {"version": rival.model.version, "kind": kind, "trial": _plain(asdict(rival.trial))}


def _plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _plain(value) for name, value in tree.items()}
    return tree.tolist() if isinstance(tree, np.ndarray) else tree


def _take_up(loop: AdaptationLoop, data: Mapping[str, Any]) -> None:
    """The rival and its trial; without its model there is none."""
    kind = TRIALS[data["kind"]]
    values = {f.name: _typed(data["trial"][f.name]) for f in fields(kind)}
    try:
        model = loop.load(loop.registry.path(data["version"]))
    except (BadInput, RegistryError):
        return
    loop.rival = Rival(model, kind(**values))


def _typed(value: Any) -> Any:
    if isinstance(value, dict):
        return Wealth(np.array(value["logs"], dtype=np.float64))
    return np.array(value, dtype=np.float64) if isinstance(value, list) else value
