"""The queue owner in a real Ray: one queue for all handles, and what happens when something dies under load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from patience import wait_until
from test_ray_router import WORDS, App

MODEL = Path(__file__).parents[3] / "models" / "default"
SHORT = "one two"
SLOTS = 2  # of each of the three replicas


def owner(app: App) -> Any:
    import ray

    from swarmx.adapters.ray_serve.messages import NAMESPACE, owner_name

    return ray.get_actor(owner_name(app.name, "Engine"), namespace=NAMESPACE)


def state(app: App) -> dict[str, Any]:
    import ray

    return dict(ray.get(owner(app).state.remote(), timeout=30))


@pytest.fixture(scope="module")
def late(ray_serve: Any) -> Iterator[App]:
    app = App(ray_serve, "routed-late", "late", MODEL, answer_s=10.0)
    app.run(app.together(1))
    wait_until(lambda: app.router._link.is_up)
    wait_until(lambda: {s.speed for s in app.router._desk.lanes.cluster.states} == {1.0, 0.5, 0.25})
    app.run(app.together(1))
    yield app
    app.close()


@dataclass
class Load:
    """What callers that call one after another have seen. answered_s : times of answers"""

    answered_s: list[float] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    broken_s: float = 0.0

    @property
    def went_on(self) -> bool:
        """Whether there were answers before the fault and well after it."""
        counts = [sum(t < self.broken_s for t in self.answered_s), sum(t > self.broken_s + 1 for t in self.answered_s)]
        return min(counts) >= 10


async def load(app: App, seconds: float, width: int, fault: Callable[[], None]) -> Load:
    """So many callers for so long; the fault comes after a third of the time."""
    begin, seen = time.monotonic(), Load()

    async def caller() -> None:
        while time.monotonic() < begin + seconds:
            try:
                answer = await app.engine.remote(SHORT)
                assert answer["usage"]["completion_tokens"] == 2
                seen.answered_s.append(time.monotonic())
            except Exception as problem:
                seen.failures.append(problem)

    async def break_it() -> None:
        await asyncio.sleep(seconds / 3)
        seen.broken_s = time.monotonic()
        await asyncio.to_thread(fault)

    await asyncio.gather(break_it(), *(caller() for _ in range(width)))
    return seen


def test_handles_share_one_queue_that_fills_no_replica_beyond_its_slots(late: App, ray_serve: Any) -> None:
    """The agent's handle lives in another process."""
    before = state(late)
    late.agent.remote([SHORT]).result(timeout_s=60)

    async def both() -> None:
        agents = [late.agent.remote([f"{WORDS} {i}" for i in range(8)]) for _ in range(2)]
        await asyncio.gather(late.together(12), *agents)

    def two() -> bool:
        late.agent.remote([SHORT]).result(timeout_s=60)
        late.run(late.together(1))
        return state(late)["handles"] == 2

    wait_until(two)
    late.run(both())
    after = state(late)
    assert after["granted"] - before["granted"] >= 28
    wait_until(lambda: state(late)["running"] == 0 and state(late)["waiting"] == 0)
    assert state(late)["returned"] == 0
    stats = [r.routing_stats for r in late.router._replicas_list]
    assert all(s["waiting"] == 0 for s in stats)


def test_calls_are_held_while_no_slot_is_free_and_come_in_order(late: App) -> None:
    async def work() -> tuple[list[dict[str, Any]], list[int]]:
        order: list[int] = []

        async def call(i: int) -> None:
            await late.engine.remote("word " * 10, swarmx_workflow_id=f"w{i}")
            order.append(i)

        calls = []
        for i in range(18):
            calls.append(asyncio.create_task(call(i)))
            await asyncio.sleep(0.005)
        seen = []
        while not all(call.done() for call in calls):
            seen.append(await asyncio.to_thread(state, late))
            await asyncio.sleep(0.02)
        await asyncio.gather(*calls)
        return seen, order

    seen, order = late.run(work())
    assert all(one["running"] <= 3 * SLOTS for one in seen)
    assert any(one["waiting"] for one in seen)
    assert set(order[:2]) < set(range(6))  # what came first, started first


def test_calls_come_to_the_owner_with_a_prediction(late: App) -> None:
    async def work() -> list[str]:
        calls = [late.engine.remote(f"Please write a report on rivers, part {i}") for i in range(4)]
        await asyncio.sleep(0.2)
        sources = [r.prediction.source for r in late.router._desk.rides.values() if r.prediction is not None]
        await asyncio.gather(*calls)
        return sources

    assert "neural" in late.run(work())


def test_a_cancelled_call_leaves_the_owners_queue(late: App) -> None:
    async def work() -> None:
        responses = [late.engine.remote("word " * 50) for _ in range(12)]
        await asyncio.sleep(0.5)
        for response in responses:
            response.cancel()

    late.run(work())
    wait_until(lambda: state(late)["waiting"] == 0 and state(late)["running"] == 0)


def test_the_calls_of_a_handle_that_dies_return(late: App) -> None:
    import ray

    from swarmx.adapters.ray_serve.messages import Ask, Told
    from swarmx.types import Call

    asks = tuple(Ask(Call(f"orphan-{i}", "Engine", time.time()), None, f"o{i}") for i in range(8))
    before = state(late)["returned"]
    answer = ray.get(owner(late).tell.remote(Told("dead", asks)), timeout=30)
    assert answer.grants
    assert sum(late.run(late.together(8)).values()) == 8  # they wait for the lease, then go on
    wait_until(lambda: state(late)["returned"] == before + 8)


@pytest.mark.fault
def test_a_killed_replica_costs_only_the_calls_inside_it(late: App) -> None:
    import ray

    def kill() -> None:
        ray.kill(late.router._replicas_list[0]._replica_info.get_actor_handle(), no_restart=False)

    seen = late.run(load(late, 9, 8, kill))
    assert seen.went_on
    assert len(seen.failures) <= SLOTS
    assert all("Actor" in type(f).__name__ or "actor" in str(f) for f in seen.failures)
    wait_until(lambda: len(late.router._replicas_list) == 3)
    wait_until(lambda: bool(late.run(late.together(3))) and len(state(late)["replicas"]) == 3)


@pytest.mark.fault
@pytest.mark.parametrize("for_good", [False, True])
def test_a_killed_owner_costs_no_call_and_comes_back(late: App, for_good: bool) -> None:
    import ray

    wait_until(lambda: bool(late.run(late.together(1))) and late.router._link.is_up)
    away = late.router.counts.get("owner_away", 0)
    seen = late.run(load(late, 6, 8, lambda: ray.kill(owner(late), no_restart=for_good)))
    assert seen.went_on
    assert seen.failures == []
    assert late.router.counts["owner_away"] == away + 1
    wait_until(lambda: bool(late.run(late.together(1))) and late.router._link.is_up)
    grants = late.router.counts["owner_grants"]
    late.run(late.together(5))
    assert late.router.counts["owner_grants"] == grants + 5


@pytest.mark.fault
def test_a_killed_controller_costs_no_call(late: App) -> None:
    import ray
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME

    def kill() -> None:
        ray.kill(ray.get_actor(SERVE_CONTROLLER_NAME, namespace="serve"), no_restart=False)

    seen = late.run(load(late, 6, 8, kill))
    assert seen.went_on
    assert seen.failures == []
    grants = late.router.counts["owner_grants"]
    late.run(late.together(5))
    assert late.router.counts["owner_grants"] == grants + 5
