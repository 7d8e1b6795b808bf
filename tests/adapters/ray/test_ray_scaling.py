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
    answers, asked, seen = asyncio.run(_ramp(ray_serve, handle, app_name))
    assert answers == asked > 0
    steps = [b - a for a, b in pairwise(seen) if a != b]
    assert max(seen) == 3 and seen[0] == seen[-1] == 1, seen
    assert sum((a > 0) != (b > 0) for a, b in pairwise(steps)) == 1, f"one turn, at the top: {seen}"
    receipts = scaling_receipts(app_name, "LLM")
    assert [r["target"] for r in receipts][-1] == 1 and max(r["target"] for r in receipts) == 3
    assert all(r["policy"] == "tail_demand" and r["why"] and r["before"] != r["target"] for r in receipts)
    assert any("demand" in r["why"] for r in receipts), "the replicas' own counts were used"


async def _ramp(serve: Any, handle: Any, app: str) -> tuple[int, int, list[int]]:
    """Calls that were answered, calls that were made, and the replicas that ran, looked at until one is left.

    Twelve callers, a call of a second each at a time, are what three replicas hold; they stop once three run.
    """
    seen, counts = [1], {"asked": 0, "answered": 0}
    loaded = asyncio.Event()
    until = time.monotonic() + 240

    async def call_on() -> None:
        while not loaded.is_set() and time.monotonic() < until:
            counts["asked"] += 1
            counts["answered"] += await handle.remote(1.0) == 1.0

    callers = [asyncio.create_task(call_on()) for _ in range(12)]
    while time.monotonic() < until and not (loaded.is_set() and seen[-1] == 1):
        seen.append(await asyncio.to_thread(_running, serve, app))
        if seen[-1] == 3:
            loaded.set()
        await asyncio.sleep(0.5)
    await asyncio.gather(*callers)
    return counts["answered"], counts["asked"], seen


def _running(serve: Any, app: str) -> int:
    states = serve.status().applications[app].deployments["LLM"].replica_states
    return sum(count for state, count in states.items() if state == "RUNNING")
