"""Scaling receipts where anybody in the cluster can read them: one named actor, held by the policies in the controller.

It lives as long as one of them does and keeps the last `KEPT` receipts of each deployment in memory; the controller's
log holds every one of them as a line of JSON.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from swarmx.scaling.decisions import ScaleReceipt

log = logging.getLogger("ray.serve")
NAME, NAMESPACE = "swarmx_scaling_receipts", "serve"
KEPT, PATIENCE_S = 200, 120.0


class Shelf:
    """The actor's body."""

    def __init__(self) -> None:
        self.rows: dict[str, deque[dict[str, Any]]] = defaultdict(lambda: deque(maxlen=KEPT))

    def put(self, deployment: str, receipt: dict[str, Any]) -> None:
        self.rows[deployment].append(receipt)

    def last(self, deployment: str, count: int) -> list[dict[str, Any]]:
        return list(self.rows[deployment])[-count:]


class Sender:
    """Logs receipts and puts them on the shelf, from a thread, so that the control loop waits for nothing."""

    def __init__(self, application: str) -> None:
        self.application = application
        self._thread = ThreadPoolExecutor(1, "swarmx-receipts")
        self._shelf: Any = None  # kept: an actor ends when whoever made it holds it no more
        self._failures: Any = None

    def __call__(self, receipt: ScaleReceipt) -> None:
        self._thread.submit(self._send, receipt)

    def failed(self) -> None:
        """A decision could not be made: counted as the Ray metric `swarmx_scaling_failures`."""
        self._thread.submit(self._count)

    def _count(self) -> None:
        from ray.util import metrics

        if self._failures is None:
            about = "Decisions that the swarmx autoscaling policy could not make; replicas stay as they are."
            self._failures = metrics.Counter("swarmx_scaling_failures", about, tag_keys=("application",))
        self._failures.inc(1, tags={"application": self.application})

    def _send(self, receipt: ScaleReceipt) -> None:
        row = asdict(receipt)
        log.info("swarmx scale %s %s", self.application, json.dumps(row))
        for _ in (1, 2):  # an actor that has died is made anew
            try:
                self._put(f"{self.application}/{receipt.pool}", row)
                return
            except Exception as problem:  # a receipt is not worth a replica
                self._shelf = None
                log.warning("swarmx: a scaling receipt was not kept: %r", problem)

    def _put(self, deployment: str, row: dict[str, Any]) -> None:
        import ray

        if self._shelf is None:
            options = {"name": NAME, "namespace": NAMESPACE, "get_if_exists": True}
            self._shelf = ray.remote(num_cpus=0)(Shelf).options(**options).remote()
        ray.get(self._shelf.put.remote(deployment, row), timeout=PATIENCE_S)


def scaling_receipts(application: str, deployment: str, count: int = 20) -> list[dict[str, Any]]:
    """The last receipts of a deployment, oldest first, as `ScaleReceipt` has them; from any process of the cluster.

    Empty before the first change. Needs a connected Ray.
    """
    import ray

    try:
        actor = ray.get_actor(NAME, namespace=NAMESPACE)
        found: list[dict[str, Any]] = ray.get(actor.last.remote(f"{application}/{deployment}", count), timeout=10)
    except (ValueError, ray.exceptions.RayActorError):
        return []
    return found
