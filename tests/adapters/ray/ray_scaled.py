"""What runs inside Ray in the tests of scaling."""

from __future__ import annotations

import asyncio
from typing import Any

from swarmx.adapters.ray_serve.replica import SwarmXReplica


class Sleeper(SwarmXReplica):
    """Sleeps for as long as it is told; runs four calls at once."""

    swarmx_slots = 4

    async def __call__(self, seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds


def application(_: dict[str, str]) -> Any:
    """For configuration files: `import_path: ray_scaled:application`."""
    from ray import serve

    options = {"name": "LLM", "max_ongoing_requests": 4, "ray_actor_options": {"num_cpus": 0.1}}
    return serve.deployment(Sleeper).options(**options).bind()
