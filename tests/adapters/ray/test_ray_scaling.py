"""The autoscaling policy inside a real Serve: one replica, several under load, one again; no call is lost."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.xdist_group("ray")]


def test_a_ramp_scales_up_and_down_without_flapping_and_loses_no_call(ray_serve: Any, app_name: str) -> None:
    from ray_scaled import Sleeper

    from swarmx.adapters.ray_serve.autoscaling import swarmx_autoscaling
    from swarmx.adapters.ray_serve.receipts import scaling_receipts

    # the rate of arrivals is that of the last minute: a fall to one replica needs about so long after the last call
    scaling = swarmx_autoscaling(1, 3, slots=4, cold_s=5.0, bounds={"down_delay_s": 5.0})
    options = {"name": "LLM", "max_ongoing_requests": 4, "ray_actor_options": {"num_cpus": 0.1}}
    deployment = ray_serve.deployment(Sleeper).options(autoscaling_config=scaling, **options)
    handle = ray_serve.run(deployment.bind(), name=app_name, route_prefix=None)
    answers, seen = asyncio.run(_ramp(ray_serve, handle, app_name))
    assert answers == [1.5] * len(answers) and len(answers) == 80
    steps = [b - a for a, b in pairwise(seen) if a != b]
    assert max(seen) == 3 and seen[0] == seen[-1] == 1, seen
    assert sum((a > 0) != (b > 0) for a, b in pairwise(steps)) == 1, f"one turn, at the top: {seen}"
    receipts = scaling_receipts(app_name, "LLM")
    assert [r["target"] for r in receipts][-1] == 1 and max(r["target"] for r in receipts) == 3
    assert all(r["policy"] == "tail_demand" and r["why"] and r["before"] != r["target"] for r in receipts)
    assert any("demand" in r["why"] for r in receipts), "the replicas' own counts were used"


async def _ramp(serve: Any, handle: Any, app: str) -> tuple[list[float], list[int]]:
    """Answers of all calls, and the replicas that run, looked at from the first call until one is left."""
    seen: list[int] = []
    done = asyncio.Event()

    async def watch() -> None:
        until = time.monotonic() + 180
        while time.monotonic() < until and not (done.is_set() and seen[-1] == 1):
            seen.append(await asyncio.to_thread(_running, serve, app))
            await asyncio.sleep(0.5)

    watching = asyncio.create_task(watch())
    calls = []
    for _ in range(80):
        calls.append(asyncio.ensure_future(handle.remote(1.5)))
        await asyncio.sleep(0.15)
    answers = list(await asyncio.gather(*calls))
    until = time.monotonic() + 60
    while max(seen) < 3 and time.monotonic() < until:  # replicas that start slowly are still on their way
        await asyncio.sleep(0.5)
    done.set()
    await watching
    return answers, seen


def _running(serve: Any, app: str) -> int:
    states = serve.status().applications[app].deployments["LLM"].replica_states
    return sum(count for state, count in states.items() if state == "RUNNING")


def test_a_wrong_option_in_a_configuration_file_fails_the_application_with_a_sentence(ray_serve: Any) -> None:
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    policy = {
        "policy_function": "swarmx.adapters.ray_serve.autoscaling:SwarmXAutoscalingPolicy",
        "policy_kwargs": {"policy": "nothing_like_that"},
    }
    llm = {"name": "LLM", "num_replicas": None, "autoscaling_config": {"max_replicas": 2, "policy": policy}}
    app = {"name": "wrong", "import_path": "ray_scaled:application", "route_prefix": None, "deployments": [llm]}
    _get_global_client().deploy_apps(ServeDeploySchema.model_validate({"applications": [app]}))
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            state = ray_serve.status().applications["wrong"]
            if state.status == "DEPLOY_FAILED":
                break
            time.sleep(0.5)
        assert state.status == "DEPLOY_FAILED", state
        assert "tail_demand" in state.message, state.message
    finally:
        ray_serve.delete("wrong")
