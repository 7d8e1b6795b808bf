"""The regimes of the scaling suites: name -> what makes a scenario from a seed and a span."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import swarmx
from swarmx.sim.scaling.agents import Waves, agents, two_kinds, two_phase
from swarmx.sim.scaling.ramp import ramp
from swarmx.sim.scaling.recorded import AZURE, SERVEGEN, azure_calls, servegen_day
from swarmx.sim.scaling.scenario import Scenario

ARRIVALS = Path(swarmx.__file__).parents[2] / "shared" / "data" / "arrivals"  # used where present
Build = Callable[[int, float], Scenario]  # seed, seconds that the run should last where that can be chosen
COLD_AND_CALL_S = ((30.0, 30.0), (60.0, 10.0), (120.0, 10.0))


def _bursting(cold_s: float, call_s: float, seed: int, span_s: float) -> Scenario:
    return agents(seed, call_s, cold_s, Waves(0.05, depth=0.0, burst_every_s=900.0), span_s, "bursts")


def ramps() -> Mapping[str, Build]:
    """llm-d's published episode; its length is fixed."""
    return {"ramp": lambda seed, span_s: ramp(seed)}


def bursts() -> Mapping[str, Build]:
    """Agent runs in bursts at three ratios of cold start to call, and an hour of recorded calls where it is there."""
    found: dict[str, Build] = {
        f"cold {cold:g} s, calls {call:g} s": partial(_bursting, cold, call) for cold, call in COLD_AND_CALL_S
    }
    if (ARRIVALS / AZURE).is_file():
        found["azure"] = lambda seed, span_s: azure_calls(ARRIVALS / AZURE, seed, max(span_s / 6, 600.0))
    return found


def days() -> Mapping[str, Build]:
    """A day squeezed into the span: a sine with bursts, and recorded days where they are there."""
    found: dict[str, Build] = {
        "sine": lambda seed, span_s: agents(seed, waves=Waves(0.05, 0.8, span_s, 2400.0), span_s=span_s, name="daily")
    }
    if (ARRIVALS / SERVEGEN).is_file():
        found["servegen"] = lambda seed, span_s: servegen_day(ARRIVALS / SERVEGEN, seed, span_s=span_s)
    return found


def mixes() -> Mapping[str, Build]:
    """Agent runs whose later load differs from the front's."""
    return {"cold 60 s, calls 10 s": lambda seed, span_s: agents(seed, span_s=span_s)}


def kinds() -> Mapping[str, Build]:
    """Two kinds of devices for every pool, at different prices; an integer program a step, so half of a short span."""
    return {"slow and fast": lambda seed, span_s: two_kinds(seed, span_s=span_s if span_s >= 3600 else span_s / 2)}


def phases() -> Mapping[str, Build]:
    """Two pools under one budget: 300 workflows in each phase, half of them in less than an hour's span."""
    return {"two_phase": lambda seed, span_s: two_phase(seed, share=1.0 if span_s >= 3600 else 0.5)}
