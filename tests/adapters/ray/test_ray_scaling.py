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

    Seven calls of a second come in each second, nine slots at the 95 % level or more, until three replicas have run for
    a while. How long they take to start is up to the machine, and their queue is worked off then.
    """
    seen, calls = [1], list[asyncio.Future[float]]()
    until, loaded_s = time.monotonic() + 300, 0.0
    while time.monotonic() < until and not (loaded_s > 3 and seen[-1] == 1):
        seen.append(await asyncio.to_thread(_running, serve, app))
        loaded_s += 0.5 * (seen[-1] == 3)
        for _ in range(7):
            if loaded_s <= 3:
                calls.append(asyncio.ensure_future(handle.remote(1.0)))
            await asyncio.sleep(1 / 7 if loaded_s <= 3 else 0.1)
    answers = await asyncio.gather(*calls)
    return sum(answer == 1.0 for answer in answers), len(calls), seen


def _running(serve: Any, app: str) -> int:
    states = serve.status().applications[app].deployments["LLM"].replica_states
    return sum(count for state, count in states.items() if state == "RUNNING")
