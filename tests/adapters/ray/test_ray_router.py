"""The request router in a real Ray Serve: three replicas of speeds 1, 1/2 and 1/4 with two slots each.

One application per router serves all tests of it: starting one takes seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import wait_until

from swarmx import client, kernel

WORDS = "one two three four five"


class App:
    """An application with a handle of its own on its engine."""

    def __init__(self, serve: Any, name: str, preset: str, model: Path | None = None, **config: Any) -> None:
        import routed_app

        from swarmx.adapters.ray_serve.settings import router_config

        self.serve, self.name = serve, name
        settings = {"start_s": 60.0, "predictor": {"budget_s": 5.0}, **config}
        options = {"ray_actor_options": {"num_cpus": 0.1}, "health_check_period_s": 1}
        engine = serve.deployment(routed_app.Engine).options(
            name="Engine", num_replicas=3, max_ongoing_requests=4,
            request_router_config=router_config(preset, model and str(model), settings), **options,
        )  # fmt: skip
        agent = serve.deployment(routed_app.Agent).options(name="Agent", **options)
        self.agent = serve.run(agent.bind(engine.bind()), name=name, route_prefix=None)
        self.engine = serve.get_deployment_handle("Engine", name)

    @property
    def router(self) -> Any:
        from swarmx.adapters.ray_serve.counters import router_of

        return router_of(self.engine)

    def run(self, work: Any) -> Any:
        return asyncio.run(asyncio.wait_for(work, 60))

    async def together(self, count: int, prompt: str = WORDS) -> Counter[str]:
        answers = await asyncio.gather(*(self.engine.remote(prompt) for _ in range(count)))
        return Counter(answer["replica"] for answer in answers)

    def fast_first(self) -> list[str]:
        """Replicas by their speed, as the router knows them."""
        states = self.router._desk.lanes.cluster.states
        return [s.id for s in sorted(states, key=lambda s: -s.speed)]

    def close(self) -> None:
        from swarmx.adapters.ray_serve.owner import stop

        self.serve.delete(self.name)
        stop(self.name, "Engine")


@pytest.fixture(scope="module")
def led(ray_serve: Any) -> Iterator[App]:
    app = App(ray_serve, "routed-led", "least_outstanding_per_speed")
    app.run(app.together(1))
    wait_until(lambda: {s.speed for s in app.router._desk.lanes.cluster.states} == {1.0, 0.5, 0.25})
    yield app
    app.close()


def settled(app: App) -> bool:
    """No call is known here, and the replicas' reports say so too."""
    others = app.router._desk.lanes.cluster.replicas[kernel.OTHER]
    return others.sum() == 0 and not app.router._desk.rides and not app.router._pending_requests_by_id


def test_calls_go_where_they_end_first_by_count_and_speed(led: App) -> None:
    """Each of seven LED calls goes to the least (calls + 1) / speed: 4, 2, 1."""
    wait_until(lambda: settled(led))
    fast, middle, slow = led.fast_first()
    assert led.run(led.together(7)) == {fast: 4, middle: 2, slow: 1}


def test_every_hook_is_called_and_nothing_is_left_behind(led: App) -> None:
    before = led.router.counts
    led.run(led.together(5))
    wait_until(lambda: settled(led))
    after = led.router.counts
    assert after["routed"] - before.get("routed", 0) == 5
    assert after["completed"] == after["routed"]
    assert after.get("fallbacks", 0) == 0


def test_more_calls_than_places_are_asked_again_and_all_answered(led: App) -> None:
    """Twelve places in all; Serve asks again for the rest until one is free."""
    assert sum(led.run(led.together(30)).values()) == 30
    wait_until(lambda: settled(led))


def test_streams_are_routed_and_counted_to_their_end(led: App) -> None:
    async def stream() -> list[str]:
        return [name async for name in led.engine.options(stream=True).stream.remote(WORDS)]

    assert led.run(stream()) == [led.fast_first()[0]] * 5
    wait_until(lambda: settled(led))


def test_errors_end_a_call(led: App) -> None:
    with pytest.raises(Exception, match="boom"):
        led.run(_awaited(led.engine.fail.remote("boom")))
    wait_until(lambda: settled(led))


def test_cancelled_calls_leave_the_book(led: App) -> None:
    async def cancel() -> None:
        responses = [led.engine.remote("word " * 200) for _ in range(15)]
        await asyncio.sleep(0.3)
        for response in responses:
            response.cancel()

    led.run(cancel())
    wait_until(lambda: settled(led))
    assert not led.router._desk.lanes.cluster.flights


def test_a_model_that_is_loaded_somewhere_is_asked_for_there(led: App) -> None:
    def call(model: str) -> str:
        return str(led.run(_awaited(led.engine.options(multiplexed_model_id=model).multiplexed.remote("x")))[0])

    first = call("m1")
    replicas = led.router._replicas_list
    wait_until(lambda: any("m1" in r.multiplexed_model_ids for r in replicas))
    assert {call("m1") for _ in range(4)} == {first}
    wait_until(lambda: settled(led))


def test_an_agents_calls_for_one_request_are_all_answered(led: App) -> None:
    """They share Serve's internal id, by which Ray 2.60 would confuse them in a router without FIFO order."""
    assert len(led.agent.remote([f"{WORDS} {i}" for i in range(6)]).result(timeout_s=60)) == 6


def test_calls_know_the_workflow_around_them(led: App) -> None:
    async def work() -> set[str]:
        with client.workflow("run-7"):
            calls = [led.engine.remote("word " * 20) for _ in range(3)]
            await asyncio.sleep(0.3)
            seen = {ride.call.workflow_id for ride in led.router._desk.rides.values()}
            await asyncio.gather(*calls)
            return seen

    assert led.run(work()) == {"run-7"}


def test_replicas_numbers_reach_the_router(led: App) -> None:
    def numbers() -> bool:
        stats = [r.routing_stats for r in led.router._replicas_list]
        return all({"running", "waiting", "kv_tokens", "tokens_per_s", "device"} <= set(s or {}) for s in stats)

    wait_until(numbers)
    led.run(led.together(6))
    wait_until(lambda: any(r.routing_stats["tokens_per_s"] > 0 for r in led.router._replicas_list))


def test_replicas_say_how_long_answers_were_and_how_calls_ended(led: App) -> None:
    async def work() -> list[Any]:
        await led.engine.remote("a b c d e f g")
        assert len([1 async for _ in led.engine.options(stream=True).stream.remote("a b c")]) == 3
        with pytest.raises(Exception, match="boom"):
            await led.engine.fail.remote("boom")
        broken = led.engine.options(stream=True).stream.remote("word " * 100)
        await anext(broken)
        broken.cancel()
        await asyncio.sleep(0.5)
        seen = [await led.engine.swarmx_seen.remote() for _ in range(12)]
        return [row for stats in {s["id"]: s for s in seen}.values() for row in stats["ended"][-8:]]

    rows = led.run(work())
    assert {("__call__", "ok", 7), ("stream", "ok", 3), ("fail", "error", 0)} <= {(r[1], r[2], r[3]) for r in rows}
    assert any(r[1] == "stream" and r[2] == "cancelled" and 1 <= r[3] < 100 for r in rows)


def test_in_shadow_serve_chooses_and_both_choices_are_compared(led: App, monkeypatch: pytest.MonkeyPatch) -> None:
    from swarmx.adapters.ray_serve.settings import settings_of

    monkeypatch.setattr(led.router, "_settings", settings_of({"mode": "shadow"}))
    before = led.router.counts
    led.run(led.together(20))
    wait_until(lambda: settled(led))
    after = led.router.counts
    same, other = (after.get(n, 0) - before.get(n, 0) for n in ("shadow_same", "shadow_other"))
    assert same + other == 20
    assert other > 0


def test_whatever_fails_in_the_router_serve_chooses(led: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("broken")

    before = led.router.counts.get("fallbacks", 0)
    monkeypatch.setattr(led.router._desk, "bind", broken)
    assert sum(led.run(led.together(5)).values()) == 5
    assert led.router.counts["fallbacks"] >= before + 5
    monkeypatch.undo()
    wait_until(lambda: settled(led))


async def _awaited(response: Any) -> Any:
    return await response
