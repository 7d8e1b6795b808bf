"""The gateway before two real engines: policies compared, coverage of predictions, and the simulator on the same run.

    python benchmarks/real_engine.py --server .../llama-server --fast q8_0.gguf --slow f32.gguf --workflows 120

Two llama.cpp servers of different speed serve SmolLM2-135M (see training/record_log.py for the weights). Agent
workflows from the project's own prompts arrive as a Poisson process at the gateway, the same ones at the same times for
every policy; the trained predictor is `models/default`, whose templates these prompts share. Rounds alternate between
the policies. Everything is measured where the client stands.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "training")]
from _http_suite import free_ports, processes, wait_ready  # noqa: E402
from prompts import draw_tasks  # noqa: E402
from record_log import SAMPLING, SLOTS, replica  # noqa: E402

from swarmx.logs.record import Recorder  # noqa: E402
from swarmx.logs.record_journal import Journal, complete, read_journal  # noqa: E402
from swarmx.logs.record_run import open_loop  # noqa: E402
from swarmx.logs.record_stream import Endpoint  # noqa: E402
from swarmx.logs.table import read_log  # noqa: E402
from swarmx.logs.workflows import workflows_of  # noqa: E402
from swarmx.quantiles import LEVELS  # noqa: E402
from swarmx.sim.replay import fidelity  # noqa: E402
from swarmx.sim.suites.engines import recorded_cluster  # noqa: E402
from swarmx.types import CallRecord  # noqa: E402

POLICIES = ("least_outstanding_per_speed", "late")
SPEEDS = (1.0, 0.62)  # what an operator would say of the two
DEVICES = ("cpu-q8_0", "cpu-f32")
RESAMPLES = 1000


def config(policy: str, urls: Sequence[str], port: int, log: Path) -> dict[str, Any]:
    replicas = [
        {"url": url, "id": device, "device": device, "speed": speed, "slots": SLOTS, "context_tokens": 2048}
        for url, device, speed in zip(urls, DEVICES, SPEEDS, strict=True)
    ]
    return {
        "model_pools": {"smollm2": {"replicas": replicas}},
        "scheduler": {"preset": policy},
        "predictor": {"kind": "local", "path": str(ROOT / "models" / "default"), "budget_s": 0.05},
        "log": {"directory": str(log), "prompt": "hash"},
        "server": {"port": port, "admin": {"port": port + 1}, "drain_s": 5.0},
    }


async def one_round(policy: str, urls: Sequence[str], number: int, given: argparse.Namespace) -> dict[str, Any]:
    """One policy, one seed: what the client saw and what the gateway logged."""
    folder = given.out / f"{policy}-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (port, _) = free_ports(2)
    with processes(folder) as group:
        path = folder / "gateway.yaml"
        path.write_text(json.dumps(config(policy, urls, port, folder / "log")))
        child = group.start(
            [sys.executable, "-m", "swarmx.cli", "serve", str(path), "--log-level", "warning"], "gateway"
        )
        url = f"http://127.0.0.1:{port}"
        await wait_ready(url, child, "smollm2")
        with Journal(folder / "client.journal.jsonl") as journal:
            client = Recorder(
                [Endpoint(url, "gateway")], journal, "smollm2", sampling=SAMPLING, seed=number, identify=True
            )
            async with client as recorder:
                tasks = draw_tasks("real", given.workflows, [number, 7], 0.3)
                await open_loop(recorder, tasks, given.rate, number)
    seen = complete(*read_journal(folder / "client.journal.jsonl"))
    logged = [r for file in sorted((folder / "log").glob("*.parquet")) for r in read_log(file)]
    print(f"{policy} round {number}: {len(seen)} calls, {len(logged)} logged", file=sys.stderr, flush=True)
    return {"seen": seen, "logged": logged}


def latencies(records: Sequence[CallRecord]) -> tuple[np.ndarray, np.ndarray]:
    """(calls, workflows) in seconds, of those that ended well."""
    calls = [r.finished_s - r.arrival_s for r in records if r.status == "ok" and r.finished_s is not None]
    spans: dict[str, list[float]] = {}
    for r in records:
        if r.status == "ok" and r.finished_s is not None:
            spans.setdefault(r.workflow_id, []).extend((r.arrival_s, r.finished_s))
    return np.array(calls), np.array([max(span) - min(span) for span in spans.values()])


def ratios(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """Quantile ratios with 95 % bootstrap intervals."""
    rng, out = np.random.default_rng(0), {}
    for q in (0.5, 0.95, 0.99):
        draws = [
            np.quantile(rng.choice(ours, ours.size), q) / np.quantile(rng.choice(theirs, theirs.size), q)
            for _ in range(RESAMPLES)
        ]
        value = float(np.quantile(ours, q) / np.quantile(theirs, q))
        out[f"p{round(100 * q)}"] = [round(value, 3), *(round(float(v), 3) for v in np.quantile(draws, [0.025, 0.975]))]
    return out


def coverage(records: Sequence[CallRecord]) -> dict[str, Any]:
    """Share of calls whose length was at most the predicted quantile, by level."""
    rows = [
        r for r in records if r.status == "ok" and r.predicted_tokens is not None and r.prediction_source == "neural"
    ]
    below = np.array([[r.output_tokens <= v for v in r.predicted_tokens or ()] for r in rows])
    shares = below.mean(axis=0) if len(rows) else np.full(LEVELS.size, np.nan)
    return {"n": len(rows), **{f"{level:g}": round(float(x), 3) for level, x in zip(LEVELS, shares, strict=True)}}


def simulated(records: Sequence[CallRecord]) -> list[dict[str, Any]]:
    """The gateway's own log, replayed on engines fitted to it, calls where they were dispatched."""
    found = fidelity(workflows_of(records), recorded_cluster(records))[0]
    return [{"quantity": f.quantity, "n": f.n, "ratio": [round(v, 3) for v in f.ratios]} for f in found]


def run(given: argparse.Namespace) -> dict[str, Any]:
    ports = free_ports(2)
    every: dict[str, list[dict[str, Any]]] = {policy: [] for policy in POLICIES}
    with replica(given.server, given.fast, ports[0], 0) as fast, replica(given.server, given.slow, ports[1], 1) as slow:
        for number in range(1, given.rounds + 1):
            for policy in POLICIES if number % 2 else POLICIES[::-1]:
                every[policy].append(asyncio.run(one_round(policy, (fast, slow), number, given)))
    rows, found = {}, {}
    for policy, rounds in every.items():
        parts = [latencies(r["seen"]) for r in rounds]
        calls, flows = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
        found[policy] = calls, flows
        rows[policy] = {
            "calls": int(calls.size), "workflows": int(flows.size),
            "not_ok": sum(r.status != "ok" for one in rounds for r in one["seen"]),
            "call_s": [round(float(v), 2) for v in np.quantile(calls, [0.5, 0.95, 0.99])],
            "workflow_s": [round(float(v), 2) for v in np.quantile(flows, [0.5, 0.95, 0.99])],
            "coverage": coverage([r for one in rounds for r in one["logged"]]),
            "simulated_over_measured": [simulated(one["logged"]) for one in rounds],
        }  # fmt: skip
    led, late = (found[policy] for policy in POLICIES)
    compared = {"call": ratios(late[0], led[0]), "workflow": ratios(late[1], led[1])}
    return {"rate_per_s": given.rate, "rows": rows, "late_over_led": compared}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path, required=True, help="llama-server")
    parser.add_argument("--fast", type=Path, required=True, help="GGUF of the fast replica")
    parser.add_argument("--slow", type=Path, required=True, help="GGUF of the slow replica")
    parser.add_argument("--workflows", type=int, default=120, help="per round and policy")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.35, help="workflows per second")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "swarmx-real-engine")
    print(json.dumps(run(parser.parse_args()), indent=2))
