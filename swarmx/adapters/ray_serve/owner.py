"""The queue owner: a named actor, one per deployment, that holds the queue all handles ask.

It is made by the first handle that needs it, in Serve's namespace, detached, and restarted by Ray when it dies; it
leaves by itself when neither a handle nor a replica has been heard of for `IDLE_S`. After a restart it knows nothing,
and the handles tell it again what they have.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from swarmx.adapters.gateway.clock import Clock
from swarmx.adapters.ray_serve.grants import Grants, Line
from swarmx.adapters.ray_serve.messages import NAMESPACE, Answer, Report, Told, owner_name
from swarmx.adapters.ray_serve.recording import own_place, receipts_in

IDLE_S = 60.0
MOST_WAITING = 10_000  # concurrent messages; each handle has at most one waiting for grants and one telling


class QueueOwner:
    """Runs on the actor's event loop, one message at a time. Arguments as of `Grants`.

    receipts : directory below which it explains its grants, and names of its own there; None explains none
    """

    def __init__(
        self, preset: str, options: dict[str, Any], lease_s: float, receipts: tuple[str, ...] | None = None
    ) -> None:
        from swarmx.adapters.envoy.warm import warm_up

        warm_up()
        self.receipts = None if receipts is None else receipts_in(own_place(Path(receipts[0]), *receipts[1:]))
        told = None if self.receipts is None else self.receipts.add
        self.grants = Grants(Clock().now, preset, options, lease_s, told)
        self._heard_s = time.monotonic()
        self._ticking: asyncio.Task[None] | None = None

    async def tell(self, told: Told) -> Answer:
        """Take a handle's messages; answer at once with what can be granted."""
        self._alive()
        self.grants.told(told)
        return self.grants.fetch(told.handle)

    async def wait(self, handle: str, at_most_s: float) -> Answer:
        """Answer when something was granted to the handle, or after that time."""
        self._alive()
        line = self.grants.lines.get(handle)
        if line is not None and not line.grants:
            await _woken(line, at_most_s)
        return self.grants.fetch(handle)

    async def report(self, report: Report) -> None:
        """A replica's numbers and ended calls."""
        self._alive()
        self.grants.report(report)

    async def state(self) -> dict[str, Any]:
        """What is here now, for people and tests."""
        grants = self.grants
        running = sum(bool(p.replica) for p in grants.places.values())
        replicas = [s.id for s in grants.scheduler.cluster.states]
        return {
            **grants.counts, "waiting": len(grants.places) - running, "running": running, "handles": len(grants.lines),
            "replicas": replicas, "is_fitted": grants.scheduler.cluster.is_fitted,
        }  # fmt: skip

    def _alive(self) -> None:
        self._heard_s = time.monotonic()
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.get_running_loop().create_task(self._tick())

    async def _tick(self) -> None:
        while time.monotonic() - self._heard_s < IDLE_S:
            await asyncio.sleep(self.grants.scheduler.tick_s)
            self.grants.tick()
            if self.receipts is not None:
                await asyncio.to_thread(self.receipts.flush)
        import ray

        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


async def _woken(line: Line, at_most_s: float) -> None:
    news = asyncio.Event()
    line.wake = news.set
    try:
        await asyncio.wait_for(news.wait(), at_most_s)
    except TimeoutError:
        pass
    finally:
        line.wake = None


def find_or_make(
    app: str, deployment: str, preset: str, options: dict[str, Any], lease_s: float, receipts: str | None = None
) -> Any:
    """The deployment's owner. Blocks for some milliseconds; raises what Ray raises when it is away itself.

    receipts : directory for the owner's receipts, if this call makes it
    """
    import ray

    actor = ray.remote(QueueOwner).options(
        name=owner_name(app, deployment), namespace=NAMESPACE, get_if_exists=True, lifetime="detached", num_cpus=0,
        max_restarts=-1, max_task_retries=0, max_concurrency=MOST_WAITING,
    )  # fmt: skip
    return actor.remote(preset, options, lease_s, None if receipts is None else (receipts, app, deployment, "owner"))


def stop(app: str, deployment: str) -> bool:
    """End a deployment's owner for good; whether there was one. Handles that still route make another."""
    import ray

    try:
        actor = ray.get_actor(owner_name(app, deployment), namespace=NAMESPACE)
    except ValueError:
        return False
    ray.kill(actor, no_restart=True)
    return True
