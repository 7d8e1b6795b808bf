"""Priorities from InferenceObjectives: what a request's `x-gateway-inference-objective` stands for in this pool."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import aiohttp

from swarmx.adapters.kubernetes.client import Api, ApiError, Object
from swarmx.adapters.kubernetes.follow import follow

log = logging.getLogger(__name__)
GROUP = "/apis/inference.networking.x-k8s.io/v1alpha2"
AGAIN_S = 2.0  # before a server that could not be reached is asked again


async def watch_objectives(api: Api, pool: str, namespace: str, on_change: Callable[[Mapping[str, int]], None]) -> None:
    """Tell the priorities of the pool's objectives by name, whenever they differ; runs for ever.

    A cluster without that kind, or a role that may not read it, has none: it is said once, and not asked again.
    """
    path = f"{GROUP}/namespaces/{namespace}/inferenceobjectives"
    while True:
        try:
            await api.get(path)
            break
        except ApiError as problem:
            if problem.status in (403, 404):
                log.info("no InferenceObjectives are followed: %s", problem)
                return
            break
        except (aiohttp.ClientError, OSError) as problem:  # a timeout is the first, a token that is renewed the second
            log.warning("InferenceObjectives: %s", problem)
        await asyncio.sleep(AGAIN_S)
    told: dict[str, int] | None = None

    def tell(objects: dict[str, Object]) -> None:
        nonlocal told
        found = priorities_of(objects, pool)
        if found != told:
            told = found
            on_change(found)

    await follow(api, path, tell)


def priorities_of(objects: Mapping[str, Object], pool: str) -> dict[str, int]:
    """Name -> priority of the objectives that refer to the pool; 0 where none is given or it cannot be read."""
    found = {}
    for name, item in objects.items():
        spec = item.get("spec") or {}
        reference = spec.get("poolRef") or {}
        if reference.get("name") == pool and reference.get("kind", "InferencePool") == "InferencePool":
            priority = spec.get("priority")
            found[name] = priority if isinstance(priority, int) else 0
    return found
