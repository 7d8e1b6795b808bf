"""The autoscaling policies on Serve's own contexts, over a deployment that is simulated second by second."""

from __future__ import annotations

import json
import logging
import math
import warnings
from dataclasses import dataclass, field
from itertools import pairwise
from time import thread_time
from typing import Any

import numpy as np
import pytest

from swarmx.adapters.ray_serve.autoscaling import (
    SwarmXApplicationPolicy,
    SwarmXAutoscalingPolicy,
    application_settings,
    swarmx_autoscaling,
)
from swarmx.adapters.ray_serve.demand import CallCounts, Deployment
from swarmx.errors import BadInput

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray")]


@pytest.fixture(autouse=True)
def ray_is_imported() -> None:
    """Importing Ray takes seconds and warns of its own use of pydantic."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("ray.serve", reason="needs the extra ray")


@dataclass
class Simulated:
    """Replicas with slots; calls come by a rate and last `service_s`; reports are as Serve's controller holds them."""

    name: str = "llm"
    slots: int = 4
    service_s: float = 8.0
    cold_s: float = 10.0
    largest: int = 10
    now: float = 1000.0
    target: int = 1
    total: int = 0
    ended: int = 0
    replicas: dict[str, CallCounts] = field(default_factory=dict)
    running: dict[str, list[float]] = field(default_factory=dict)
    starting: list[float] = field(default_factory=list)
    queue: list[float] = field(default_factory=list)
    lost: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def __post_init__(self) -> None:
        self._up()

    def _up(self) -> None:
        id_ = f"r{len(self.replicas)}-{self.total}-{self.now:g}"
        self.replicas[id_], self.running[id_] = CallCounts(self.slots), []

    def second(self, rate: float) -> None:
        self.now += 1
        for _ in range(self.rng.poisson(rate)):
            self.total += 1
            self.queue.append(self.now)
        while self.starting and self.starting[0] <= self.now:
            self.starting.pop(0)
            self._up()
        for id_, ends in list(self.running.items()):
            for end in [e for e in ends if e <= self.now]:
                ends.remove(end)
                self.ended += 1
                if id_ in self.replicas:
                    self.replicas[id_].ended(self.service_s)
            if id_ not in self.replicas and not ends:
                del self.running[id_]
        for id_, counts in self.replicas.items():
            while self.queue and len(self.running[id_]) < self.slots:
                self.queue.pop(0)
                self.running[id_].append(self.now + self.rng.exponential(self.service_s))
                counts.arrived()
                counts.began()

    def scale(self, target: int) -> None:
        """As Serve does: new replicas are cold for a while, a replica that leaves ends its calls first."""
        self.target = target
        while len(self.replicas) + len(self.starting) < target:
            self.starting.append(self.now + self.cold_s)
        while len(self.replicas) + len(self.starting) > target:
            if self.starting:
                self.starting.pop()
            else:
                self.replicas.popitem()

    @property
    def id(self) -> Any:
        from ray.serve._private.common import DeploymentID

        return DeploymentID(self.name, "app")

    def context(self, **changed: Any) -> Any:
        from ray.serve._private.common import ReplicaID, TimeStampedValue
        from ray.serve.config import AutoscalingConfig, AutoscalingContext

        app = self.id
        ids = {id_: ReplicaID(id_, app) for id_ in self.replicas}
        raw: dict[str, dict[Any, list[Any]]] = {}
        for id_, counts in self.replicas.items():
            for name, value in counts.stats().items():
                raw.setdefault(name, {})[ids[id_]] = [TimeStampedValue(self.now, value)]
        running = sum(map(len, self.running.values()))
        values: dict[str, Any] = {
            "deployment_id": app, "deployment_name": self.name, "app_name": "app",
            "current_num_replicas": len(ids), "target_num_replicas": self.target,
            "running_replicas": list(ids.values()),
            "total_num_requests": float(running + len(self.queue)), "total_queued_requests": float(len(self.queue)),
            "aggregated_metrics": {}, "raw_metrics": raw, "capacity_adjusted_min_replicas": 1,
            "capacity_adjusted_max_replicas": self.largest, "policy_state": {}, "last_scale_up_time": None,
            "last_scale_down_time": None, "current_time": self.now,
            "config": AutoscalingConfig(max_replicas=self.largest, target_ongoing_requests=self.slots),
        }  # fmt: skip
        return AutoscalingContext(**(values | changed))


def _ramp(policy: SwarmXAutoscalingPolicy, pool: Simulated, rates: list[float]) -> list[int]:
    targets = []
    for rate in rates:
        pool.second(rate)
        target, _ = policy(pool.context())
        pool.scale(int(target))
        targets.append(int(target))
    return targets


RAMP = [0.05] * 60 + [3.0] * 240 + [0.05] * 240
BOUNDS = {"down_delay_s": 30.0}


def _quiet(policy: Any) -> Any:
    policy.decider.on_receipt = policy.sender = lambda receipt: None
    return policy


def test_a_ramp_is_followed_up_and_down_without_flapping() -> None:
    pool = Simulated()
    targets = _ramp(_quiet(SwarmXAutoscalingPolicy(cold_s=10.0, bounds=BOUNDS)), pool, RAMP)
    # 3 calls a second of 8 s are 24 busy slots: 6 replicas on average, and some more for chance
    assert targets[59] <= 2 and 6 <= max(targets[100:300]) <= 10 and targets[-1] == 1
    steps = [(a, b) for a, b in pairwise(targets) if a != b]
    turns = sum((b > a) != (d > c) for (a, b), (c, d) in pairwise(steps))
    assert turns <= 3, steps
    assert pool.ended + sum(map(len, pool.running.values())) + len(pool.queue) == pool.total


def test_without_reports_the_calls_that_serve_counts_scale_it() -> None:
    policy, pool = _quiet(SwarmXAutoscalingPolicy()), Simulated()
    pool.second(0.0)
    target, _ = policy(pool.context(raw_metrics={}, total_num_requests=17.0, total_queued_requests=13.0))
    assert target == 5  # 17 calls, 4 to a replica


def test_reports_that_are_old_or_no_numbers_are_as_none() -> None:
    from ray.serve._private.common import TimeStampedValue

    pool = Simulated()
    pool.second(2.0)
    for age_s, factor in ((999.0, 1.0), (0.0, math.nan)):
        ctx = pool.context()
        for series in ctx.raw_metrics.values():
            for replica, points in series.items():
                series[replica] = [TimeStampedValue(p.timestamp - age_s, p.value * factor) for p in points]
        sample = Deployment("llm").sample(ctx, pool.now)
        assert sample.waiting is not None and math.isfinite(sample.waiting)
        assert sample.arrived is None or sample.arrived == pool.context().total_queued_requests


@pytest.mark.parametrize(
    "broken", ["running_replicas", "raw_metrics", "capacity_adjusted_max_replicas", "current_time"]
)
def test_whatever_serve_hands_over_the_policy_holds_and_never_raises(
    broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    pool = Simulated(target=3)
    policy = _quiet(SwarmXAutoscalingPolicy())
    logging.getLogger("ray.serve").addHandler(caplog.handler)
    try:
        answers = [policy(pool.context(**{broken: "nonsense"})) for _ in range(20)]
    finally:
        logging.getLogger("ray.serve").removeHandler(caplog.handler)
    assert {target for target, _ in answers} == {3}
    assert answers[-1][1]["swarmx_failures"] == 20
    assert sum("cannot decide for llm" in message for message in caplog.messages) == 1


def test_a_tick_takes_well_under_five_milliseconds() -> None:
    policy, pool = _quiet(SwarmXAutoscalingPolicy(every_s=0.1, bounds={"down_delay_s": 300.0})), Simulated(largest=64)
    pool.scale(64)
    for _ in range(300):  # as long as the delay of a fall is remembered
        pool.second(20.0)
        policy(pool.context())
    spent = []
    for _ in range(200):
        pool.second(20.0)
        ctx = pool.context()
        began = thread_time()
        policy(ctx)
        spent.append(thread_time() - began)
    assert np.median(spent) < 0.005


def test_between_decisions_the_last_one_is_repeated() -> None:
    policy, pool = _quiet(SwarmXAutoscalingPolicy(every_s=1.0)), Simulated()
    pool.second(1.0)
    for tenth in range(10):
        policy(pool.context(current_time=pool.now + tenth / 10))
    assert policy.decider.decisions == 1


def test_totals_of_replicas_that_come_and_go_make_no_rate() -> None:
    memory, pool = Deployment("llm"), Simulated()
    for _ in range(50):
        pool.second(2.0)
    before = memory.sample(pool.context(), pool.now)
    pool.scale(3)
    for _ in range(20):
        pool.second(0.0)
    grown = memory.sample(pool.context(), pool.now)
    pool.replicas.pop(next(iter(pool.replicas)))  # the oldest dies, with all that it had counted
    after = memory.sample(pool.context(), pool.now + 1)
    assert grown.arrived == before.arrived and after.arrived == before.arrived


def test_one_budget_is_shared_by_need_and_the_others_stay_with_serve() -> None:
    plan, code, ingress = Simulated("plan"), Simulated("code"), Simulated("ingress", slots=2)
    arguments = {"deployments": {"plan": {"units": 1}, "code": {"units": 1}}, "budget": 6, "cold_s": 10.0}
    policy = _quiet(SwarmXApplicationPolicy(**arguments))
    for _ in range(200):
        for pool, rate in ((plan, 0.5), (code, 3.0), (ingress, 0.1)):
            pool.second(rate)
        contexts = {p.id: p.context() for p in (plan, code, ingress)}
        targets, states = policy(contexts)
        assert targets.keys() == states.keys() == contexts.keys()
        for pool in (plan, code):
            pool.scale(int(targets[pool.id]))
        assert plan.target + code.target <= 6
    assert code.target > plan.target >= 1
    busy = ingress.context(total_num_requests=6.0)
    assert policy({ingress.id: busy})[0][ingress.id] == 3


def test_a_wrong_argument_is_refused_before_anything_is_deployed() -> None:
    for wrong, said in (
        ({"policy": "nothing"}, "tail_demand"),
        ({"options": {"levle": 0.9}}, "levle"),
        ({"bounds": {"minimum": 1}}, "min_replicas"),
        ({"bounds": {"down": -1, "nonsense": 2}}, "nonsense"),
        ({"every_s": 0}, "every_s"),
    ):
        with pytest.raises(BadInput, match=said):
            swarmx_autoscaling(1, 4, slots=4, **wrong)
    with pytest.raises(BadInput, match="weigth"):
        application_settings(budget=4, deployments={"plan": {"weigth": 2}})


def test_serves_own_delays_and_factors_are_off_and_the_rest_is_json() -> None:
    config = swarmx_autoscaling(1, 8, slots=16, cold_s=90.0)
    assert (config.upscale_delay_s, config.downscale_delay_s, config.downscale_to_zero_delay_s) == (0, 0, 0)
    assert config.get_upscaling_factor() == config.get_downscaling_factor() == 1
    assert json.loads(config.model_dump_json())["policy"]["policy_kwargs"] == {"cold_s": 90.0}
    assert config.policy.get_policy().__name__ == "SwarmXAutoscalingPolicy"
    block = application_settings(budget=8, deployments={"plan": {"units": 2}})
    assert json.loads(json.dumps(block)) == block


def test_in_the_controller_wrong_arguments_leave_the_scaling_to_serve_and_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logging.getLogger("ray.serve").addHandler(caplog.handler)
    try:
        one, many = SwarmXAutoscalingPolicy(policy="nothing"), SwarmXApplicationPolicy(budget=4, evry_s=1)
    finally:
        logging.getLogger("ray.serve").removeHandler(caplog.handler)
    assert sum("Serve's own policy does" in message for message in caplog.messages) == 2
    pool = Simulated()
    busy = pool.context(total_num_requests=12.0)
    assert one(busy)[0] == 3 and "tail_demand" in one(busy)[1]["swarmx_problem"]
    assert many({pool.id: busy})[0] == {pool.id: 3} and "evry_s" in many({pool.id: busy})[1][pool.id]["swarmx_problem"]


def test_even_what_fails_outside_of_the_decision_stays_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    for policy in (SwarmXAutoscalingPolicy, SwarmXApplicationPolicy):  # pickling by value gives each its own globals
        monkeypatch.setitem(policy.__call__.__globals__, "Sender", None)  # as if the controller had another version
    pool = Simulated(target=3)
    target, state = SwarmXAutoscalingPolicy()(pool.context())
    assert target == 3 and "TypeError" in state["swarmx_problem"]
    targets, states = SwarmXApplicationPolicy()({pool.id: pool.context()})
    assert targets == {pool.id: 3.0} and "TypeError" in states[pool.id]["swarmx_problem"]
