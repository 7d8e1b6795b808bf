"""Speed of the simulator: calls per second with a real scheduler in the loop, beside SimPy and Ciw on the same queue.

    python benchmarks/simulator.py [--quick] [--json] [--large]

All run one M/M/4 at load 0.8. `simpy, late in its loop` asks the same scheduler at the same events, so it says what
SimPy takes for the same work; SimPy and Ciw alone serve in order of arrival and decide nothing. Times are CPU
seconds of this process, best of the repeats, which alternate between the contestants, so that a busy machine slows
all alike; each one's mean wait stands beside theory's. `--large` adds 1,000 replicas and 1,000,000 calls with their
wall time and peak memory. SimPy and Ciw are measured where installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from swarmx.presets import preset
from swarmx.sim import ReplicaSpec, SimCall, SimWorkflow, Workload, arriving, cluster, simulate
from swarmx.sim.theory import mmc_wait_s
from swarmx.sim.workload import poisson
from swarmx.types import Call, CallRecord, Start

SERVERS, LOAD = 4, 0.8
NAMES = ["least_outstanding_per_speed", "central_fcfs", "late"]


class CentralFcfs:
    """The shortest scheduler there is: one queue, any free slot. Every step takes constant time."""

    tick_s = 1e9

    def __init__(self) -> None:
        self.waiting: deque[str] = deque()
        self.free: deque[str] = deque()

    def replicas_changed(self, states: Any, now: float) -> list[Start]:
        self.free = deque(s.id for s in states for _ in range(s.slots))
        return []

    def arrive(self, call: Any, prediction: Any, now: float) -> list[Start]:
        if self.free:
            return [Start(call.id, self.free.popleft())]
        self.waiting.append(call.id)
        return []

    def finished(self, record: Any, now: float, retry: bool = False) -> list[Start]:
        if self.waiting:
            return [Start(self.waiting.popleft(), record.replica)]
        self.free.append(record.replica)
        return []

    def nothing(self, *observed: Any) -> list[Start]:
        return []

    predicted = started = progress = refused = tick = nothing


def mm_c(calls: int, servers: int, seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    flows = [SimWorkflow(f"w{i}", 0.0, (SimCall("c", x),)) for i, x in enumerate(rng.exponential(1.0, calls).tolist())]
    return arriving(flows, LOAD * servers, poisson, rng)


Timed = tuple[float, float]  # mean wait, CPU seconds


def run_swarmx(calls: int, make: Callable[[], Any]) -> Timed:
    workload = mm_c(calls, SERVERS, 1)
    servers = cluster(ReplicaSpec("r"), [1.0] * SERVERS)
    began = time.process_time()
    table = simulate(workload, servers, make())
    ended = time.process_time()
    return float(table.wait_s().mean()), ended - began


def run_simpy(calls: int) -> Timed:
    import simpy

    began = time.process_time()
    rng, env, waits = random.Random(1), simpy.Environment(), []
    servers = simpy.Resource(env, SERVERS)

    def call() -> Any:
        came = env.now
        with servers.request() as mine:
            yield mine
            waits.append(env.now - came)
            yield env.timeout(rng.expovariate(1.0))

    def source() -> Any:
        for _ in range(calls):
            yield env.timeout(rng.expovariate(LOAD * SERVERS))
            env.process(call())

    env.process(source())
    env.run()
    return sum(waits) / len(waits), time.process_time() - began


def run_simpy_deciding(calls: int, make: Callable[[], Any]) -> Timed:
    """SimPy with a scheduler of swarmx in its loop: it hears of the same arrivals, starts and ends as in `swarmx.sim`,
    and is ticked while there are calls."""
    import simpy

    flows = mm_c(calls, SERVERS, 1).workflows
    work = {flow.id: flow.calls[0].output_tokens for flow in flows}
    began = time.process_time()
    env, scheduler, came, waits = simpy.Environment(), make(), dict[str, float](), []

    def carry_out(decisions: Any) -> None:
        for start in decisions:
            waits.append(env.now - came[start.call_id])
            scheduler.started(start.call_id, env.now)
            env.process(service(start))

    def service(start: Start) -> Any:
        name = start.call_id
        yield env.timeout(work[name])
        record = CallRecord(
            name, "model", came.pop(name), "ok", workflow_id=name, replica=start.replica,
            output_tokens=max(round(work[name]), 1), finished_s=env.now,
        )  # fmt: skip
        carry_out(scheduler.finished(record, env.now))

    def ticker() -> Any:
        yield env.timeout(scheduler.tick_s)
        while came:
            carry_out(scheduler.tick(env.now))
            yield env.timeout(scheduler.tick_s)

    def source() -> Any:
        ticking = None
        for flow in flows:
            yield env.timeout(flow.arrival_s - env.now)
            came[flow.id] = env.now
            if ticking is None or not ticking.is_alive:
                ticking = env.process(ticker())
            call = Call(flow.id, "model", env.now, workflow_id=flow.id, workflow_arrival_s=flow.arrival_s)
            carry_out(scheduler.arrive(call, None, env.now))

    servers = cluster(ReplicaSpec("r"), [1.0] * SERVERS)
    scheduler.replicas_changed([spec.state(0, 0, 0, False, 0.0) for spec in servers.replicas], 0.0)
    env.process(source())
    env.run()
    return sum(waits) / len(waits), time.process_time() - began


def run_ciw(calls: int) -> Timed:
    import ciw

    began = time.process_time()
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(LOAD * SERVERS)],
        service_distributions=[ciw.dists.Exponential(1.0)],
        number_of_servers=[SERVERS],
    )
    ciw.seed(1)
    run = ciw.Simulation(network)
    run.simulate_until_max_customers(calls)
    waits = [record.waiting_time for record in run.get_all_records()]
    return float(np.mean(waits)), time.process_time() - began


def contestants(names: list[str]) -> dict[str, Callable[[int], Timed]]:
    found: dict[str, Callable[[int], Timed]] = {"swarmx, 15 lines of FCFS": lambda n: run_swarmx(n, CentralFcfs)}
    for name in names:
        found[f"swarmx, {name}"] = lambda n, name=name: run_swarmx(n, lambda: preset(name))
    if importlib.util.find_spec("simpy"):
        found["simpy, late in its loop"] = lambda n: run_simpy_deciding(n, lambda: preset("late"))
    for name, run in (("simpy", run_simpy), ("ciw", run_ciw)):
        if importlib.util.find_spec(name):
            found[name] = run
        else:
            print(f"{name} is not installed: pip install {name} to have it in the table", file=sys.stderr)
    return found


def race(calls: int, repeats: int, names: list[str]) -> dict[str, Any]:
    """name -> calls a CPU second (best of the repeats), mean wait."""
    best: dict[str, float] = {}
    waits: dict[str, float] = {}
    field = contestants(names)
    for _ in range(repeats):
        for name, run in field.items():
            waits[name], seconds = run(calls)
            best[name] = min(best.get(name, float("inf")), seconds)
    return {n: {"calls_per_s": round(calls / best[n]), "mean_wait_s": round(waits[n], 4)} for n in best}


def large(replicas: int, calls: int) -> dict[str, float]:
    """Wall time and peak memory of one big run, its workload included."""
    began = time.perf_counter()
    workload = mm_c(calls, replicas, 2)
    made = time.perf_counter()
    table = simulate(workload, cluster(ReplicaSpec("r"), [1.0] * replicas), CentralFcfs())
    ended = time.perf_counter()
    if not table.ok.all():
        raise RuntimeError("calls were lost")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "replicas": replicas,
        "calls": calls,
        "workload_s": round(made - began, 1),
        "simulate_s": round(ended - made, 1),
        "peak_rss_mb": round(peak),
    }


def run(quick: bool = False, big: bool = False) -> dict[str, Any]:
    """Everything, as `swarmx bench simulator` prints it. big : also 1,000 replicas and 1,000,000 calls"""
    calls, repeats = (5_000, 2) if quick else (50_000, 5)
    result: dict[str, Any] = {
        "queue": f"M/M/{SERVERS} at load {LOAD}, {calls} calls",
        "theory_mean_wait_s": round(mmc_wait_s(LOAD * SERVERS, 1.0, SERVERS), 4),
        "race": race(calls, repeats, NAMES),
    }
    if big:
        result["large"] = large(1000, 1_000_000)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5,000 calls, two repeats")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--large", action="store_true", help="add 1,000 replicas x 1,000,000 calls")
    arguments = parser.parse_args()
    result = run(arguments.quick, arguments.large)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['queue']}; theory's mean wait {result['theory_mean_wait_s']} s")
    for name, row in result["race"].items():
        print(f"{name:42s} {row['calls_per_s']:>9,} calls/s   mean wait {row['mean_wait_s']} s")
    if "large" in result:
        print(result["large"])


if __name__ == "__main__":
    main()
