"""Our engine model beside Vidur's replica scheduler: the same requests, the same time per step.

Vidur is not among our dependencies; it runs in the Python that it is installed in.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from swarmx.engine import EngineConstants
from swarmx.errors import BadInput
from swarmx.sim import Cluster, ReplicaSpec, SimCall, SimWorkflow, arriving, percentiles, simulate
from swarmx.sim.replay import AsRecorded
from swarmx.sim.workload import Workload, poisson

CONSTANTS = EngineConstants(0.015, 0.0005, 1.5e-7, 5e-5)
STEP_TOKENS = 16_384  # prompt tokens that one step takes in; a longer prompt would wait for ever
LONGEST_PROMPT = 12_000
RUNNER = Path(__file__).with_name("_vidur_run.py")


@dataclass(frozen=True, slots=True)
class Setting:
    """One server under Poisson arrivals of independent requests, lengths lognormal."""

    name: str
    per_s: float
    slots: int = 32
    kv_tokens: int = 60_000
    prompt_tokens: float = 500.0
    output_tokens: float = 200.0
    cv: float = 1.0


# memory that binds is not among them: the wheel (0.0.26) fails an assertion of its own when it restarts a request
SETTINGS = (
    Setting("half load", 2.0),
    Setting("busy", 3.5),
    Setting("slots bind", 1.7, slots=8),
    Setting("long prompts", 1.2, kv_tokens=400_000, prompt_tokens=4000.0),
)


def requests_of(setting: Setting, n: int, seed: int) -> list[SimWorkflow]:
    rng = np.random.default_rng(seed)
    sigma = float(np.sqrt(np.log1p(setting.cv**2)))
    prompts, outputs = (
        np.clip(mean * np.exp(sigma * rng.standard_normal(n) - sigma**2 / 2), 2, LONGEST_PROMPT).astype(int)
        for mean in (setting.prompt_tokens, setting.output_tokens)
    )
    calls = [
        SimWorkflow(f"w{i}", 0.0, (SimCall("c", float(y), prompt_tokens=int(x)),))
        for i, (x, y) in enumerate(zip(prompts, outputs, strict=True))
    ]
    return list(arriving(calls, setting.per_s, poisson, rng).workflows)


def vidur(python: Path, setting: Setting, flows: list[SimWorkflow]) -> dict[str, list[float]]:
    """Seconds to the first token and to the end, by Vidur. Raises BadInput when it does not run."""
    asked = {
        "requests": [[w.arrival_s, w.calls[0].prompt_tokens, int(w.calls[0].output_tokens)] for w in flows],
        "constants": list(CONSTANTS.as_tuple()), "slots": setting.slots, "kv_tokens": setting.kv_tokens,
        "chunk_tokens": STEP_TOKENS,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [str(python), str(RUNNER), str(answer)]
        ran = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True)
        if ran.returncode or not answer.exists():
            last = (ran.stderr.strip().splitlines() or ["no message"])[-1][:200]
            raise BadInput(f"--vidur {python}: Vidur did not run there ({last})")
        found: dict[str, list[float]] = json.loads(answer.read_text())
    return found


def beside(python: Path, n: int = 1500, seed: int = 0) -> list[dict[str, Any]]:
    """Per setting: Vidur's percentiles and ours over them."""
    out = []
    for setting in SETTINGS:
        flows = requests_of(setting, n, seed)
        theirs = vidur(python, setting, flows)
        spec = ReplicaSpec(
            "r", batched=True, slots=setting.slots, service=CONSTANTS, kv_capacity_tokens=setting.kv_tokens
        )
        table = simulate(Workload(tuple(flows)), Cluster((spec,)), AsRecorded({f"{w.id}/c": "r" for w in flows}))
        row: dict[str, Any] = {"setting": setting.name, "n": n}
        for name, ours in (("ttft", table.ttft_s()), ("latency", table.call_latency_s())):
            his = percentiles(np.array(theirs[f"{name}_s"]))
            row[f"vidur_{name}_s"] = [round(float(v), 3) for v in his]
            row[f"{name}_ratio"] = [round(float(o / h), 3) for o, h in zip(percentiles(ours), his, strict=True)]
        out.append(row)
    return out
