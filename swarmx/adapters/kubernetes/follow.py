"""Keeps a set of objects as the API server has it: list, watch from there, list again when that breaks."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from swarmx.adapters.kubernetes.client import Api, ApiError, Object

log = logging.getLogger(__name__)
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
OnObjects = Callable[[dict[str, Object]], None]


async def follow(api: Api, path: str, tell: OnObjects, first_wait_s: float = FIRST_WAIT_S, **query: str) -> None:
    """Call `tell` with all objects by name, after the first list and after every change; runs for ever.

    query : such as labelSelector or fieldSelector. Nothing is told while the server cannot be reached: what was known
    stays, and the watch goes on with growing, jittered pauses. 410 Gone leads to a new list at once.
    """
    wait = first_wait_s
    while True:
        try:
            listed = await api.get(path, **query)
            objects = {_name(item): item for item in listed.get("items") or []}
            version = str((listed.get("metadata") or {}).get("resourceVersion") or "0")
            tell(objects)
            while True:
                next_s = asyncio.get_running_loop().time() + first_wait_s
                version = await _watch_once(api, path, version, objects, tell, query)
                wait = first_wait_s  # a server that ends watches at once is not asked again at once
                await asyncio.sleep(max(0.0, next_s - asyncio.get_running_loop().time()))
        except ApiError as problem:
            if problem.status == 410:
                log.info("watch of %s: the version is gone, listing again", path)
                wait = min(wait, first_wait_s)
            else:
                log.warning("watch of %s: %s", path, problem)
        except (
            Exception
        ) as problem:  # a token file that is being changed, an object of another shape: the watch goes on
            log.warning("watch of %s: %s", path, _plain(problem))
        await asyncio.sleep(wait * random.uniform(0.5, 1.0))
        wait = min(wait * 2, LONGEST_WAIT_S)


async def _watch_once(
    api: Api, path: str, version: str, objects: dict[str, Object], tell: OnObjects, query: dict[str, str]
) -> str:
    """Apply events until the server ends the watch; returns the version to go on from."""
    async for event in api.watch(path, version, **query):
        item = event.get("object") or {}
        version = str((item.get("metadata") or {}).get("resourceVersion") or version)
        kind = event.get("type")
        if kind == "DELETED":
            objects.pop(_name(item), None)
        elif kind in ("ADDED", "MODIFIED"):
            objects[_name(item)] = item
        else:  # a bookmark only moves the version
            continue
        tell(objects)
    return version


def _name(item: Object) -> str:
    return str((item.get("metadata") or {}).get("name") or "")


def _plain(problem: Exception) -> str:
    return f"{type(problem).__name__}: {str(problem)[:200]}"
