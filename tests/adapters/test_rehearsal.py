"""After a rehearsal nothing is left to compile: a call would wait for it, and with it everybody behind it."""

import subprocess
import sys

import pytest

from swarmx.adapters.rehearsal import CALLS, rehearse
from swarmx.presets import PRESETS, preset

PROBE = """
import sys
from swarmx.adapters.{adapter}.warm import warm_up
from swarmx.adapters.settings import SchedulerSettings
from swarmx.predict.features import features
from swarmx.sim.suites.batched import BATCHED
from swarmx.sim.suites.cells import Cell
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.prefix import PREFIX
from swarmx.types import Call

def compiled():
    found = [v for m in list(sys.modules.values()) if m.__name__.startswith("swarmx") for v in vars(m).values()]
    return {{(v.py_func.__name__, str(s)) for v in found if hasattr(v, "py_func") for s in v.signatures}}

warm_up({arguments})
before = compiled()
for suite, regime in ((BATCHED, "het_b32"), (BATCHED, "het_kv"), (PREFIX, "agents_het")):
    cell = Cell(suite.name, suite.name, regime, 0.8, {preset!r}, "calibrated", 1, 40)
    suite.outcome(Material("made", (), {{}}, (), None, ""), cell)
for text in ("", "a", "system: x\\nuser: 1. one, two\\n" * 400, "Größe ist 3,5 – so?"):
    features([Call("c", "m", 0.0, text)])
assert len(before) > 5, before
print(sorted(compiled() - before))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("adapter", "arguments", "preset"),
    [("envoy", "", "late"), ("gateway", "SchedulerSettings(preset='late')", "late"),
     ("gateway", "SchedulerSettings(preset='push')", "push")],
)  # fmt: skip
def test_nothing_is_left_to_compile(adapter: str, arguments: str, preset: str) -> None:
    probe = PROBE.format(adapter=adapter, arguments=arguments, preset=preset)
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_plays_it_to_the_end(name: str) -> None:
    scheduler = preset(name)
    ended: list[str] = []
    finished = scheduler.finished
    scheduler.finished = lambda record, *more: (ended.append(record.call_id), finished(record, *more))[1]  # type: ignore[method-assign]
    rehearse(scheduler)
    assert sorted(ended) == sorted(f"rehearsal-{i}" for i in range(CALLS)) and len(scheduler.queue) == 0
