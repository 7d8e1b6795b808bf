"""Endpoints of an InferencePool: its selector and port, and the pods that fit, as they come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from swarmx.adapters.envoy.endpoints import Endpoint
from swarmx.adapters.kubernetes.client import Api, Object
from swarmx.adapters.kubernetes.follow import follow

log = logging.getLogger(__name__)
GROUP = "/apis/inference.networking.k8s.io/v1"
PREFIX = "swarmx.io/"


async def watch_pool(
    api: Api, name: str, namespace: str, device_label: str, on_change: Callable[[tuple[Endpoint, ...]], None]
) -> None:
    """Tell the endpoints whenever they differ; follows the pool's own changes of selector and port. Runs for ever."""
    watch = _PoolWatch(api, namespace, device_label, on_change)
    path = f"{GROUP}/namespaces/{namespace}/inferencepools"
    try:
        await follow(api, path, lambda objects: watch.pool(objects.get(name)), fieldSelector=f"metadata.name={name}")
    finally:
        watch.stop()


class _PoolWatch:
    def __init__(
        self, api: Api, namespace: str, device_label: str, on_change: Callable[[tuple[Endpoint, ...]], None]
    ) -> None:
        self.api, self.namespace, self.device_label, self.on_change = api, namespace, device_label, on_change
        self.selector = ""
        self.ports: tuple[int, ...] = ()
        self.told: tuple[Endpoint, ...] | None = None
        self.pods: dict[str, Object] = {}
        self.task: asyncio.Task[None] | None = None

    def pool(self, found: Object | None) -> None:
        """The pool as it is now; without it there is no endpoint."""
        spec = (found or {}).get("spec") or {}
        labels = (spec.get("selector") or {}).get("matchLabels") or {}
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        ports = tuple(int(p["number"]) for p in spec.get("targetPorts") or [] if "number" in p)
        if found is None or not selector or not ports:
            log.warning("the InferencePool is missing or selects nothing")
        changed = selector != self.selector
        self.selector, self.ports = selector, ports
        if changed:
            self.stop()
            self.pods = {}
            if selector:
                path = f"/api/v1/namespaces/{self.namespace}/pods"
                self.task = asyncio.create_task(follow(self.api, path, self._take, labelSelector=selector))
        self._tell(listed=not selector or not changed)

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            self.task = None

    def _take(self, pods: dict[str, Object]) -> None:
        self.pods = dict(pods)
        self._tell(listed=True)

    def _tell(self, listed: bool) -> None:
        if not listed:  # a new selector: the pods are about to be listed
            return
        pods = [self.pods[name] for name in sorted(self.pods)]
        found = tuple(e for pod in pods for port in self.ports for e in endpoints_of(pod, port, self.device_label))
        if found != self.told:
            self.told = found
            self.on_change(found)


def endpoints_of(pod: Object, port: int, device_label: str) -> list[Endpoint]:
    """The endpoint of a pod: one when it is ready, one that drains while it leaves, none otherwise.

    A pod leaves when it is being deleted, or is annotated `swarmx.io/drain: "true"`.
    """
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    address = status.get("podIP")
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or [])
    notes = metadata.get("annotations") or {}
    leaving = metadata.get("deletionTimestamp") is not None or notes.get(PREFIX + "drain") == "true"
    if not address or status.get("phase") not in (None, "Running") or not (ready or leaving):
        return []
    labels = metadata.get("labels") or {}
    host = f"[{address}]" if ":" in address else address
    return [
        Endpoint(
            f"{host}:{port}",
            device=str(labels.get(device_label) or "default"),
            slots=_count(notes, "slots"),
            speed=_positive(notes, "speed") or 1.0,
            context_tokens=_count(notes, "context-tokens"),
            kv_capacity_tokens=_count(notes, "kv-capacity-tokens"),
            draining=leaving,
        )
    ]


def _positive(notes: dict[str, str], name: str) -> float | None:
    """A number above 0, else None: an annotation that cannot be read must not take a pod out."""
    text = notes.get(PREFIX + name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 0 < value < 1e12:
        return value
    log.warning("annotation %s%s: %r is no number above 0", PREFIX, name, text[:40])
    return None


def _count(notes: dict[str, str], name: str) -> int | None:
    value = _positive(notes, name)
    return None if value is None else max(1, int(value))
