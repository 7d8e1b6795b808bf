"""Leader election by a coordination.k8s.io Lease: at most one holder at a time, as far as clocks run alike.

A holder that could not renew for two thirds of the duration steps down by itself, before anyone else may take over.
Others judge by their own clock how long the Lease has not changed, so clocks need not agree, only run at the same rate.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from swarmx.adapters.kubernetes.client import Api, ApiError, Object

log = logging.getLogger(__name__)
GROUP = "/apis/coordination.k8s.io/v1"


def identity() -> str:
    """This process, unique among pods."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{os.getpid()}"


class Lease:
    """clock : monotonic seconds"""

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        me: str,
        duration_s: float = 15.0,
        renew_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.api, self.namespace, self.name, self.me = api, namespace, name, me
        self.duration_s, self.renew_s, self.clock = duration_s, renew_s, clock
        self.held = False
        self._until_s = 0.0  # until then it is ours, whatever we hear
        self._seen: tuple[Any, Any] | None = None
        self._seen_s = 0.0
        self._released = False

    async def run(self, tell: Callable[[bool], None]) -> None:
        """Try to hold the Lease for ever; `tell` is called with every change."""
        while True:
            patience, renewed = self.renew_s, False
            if self.held:  # a server that hangs must not keep us in office beyond our time
                patience = min(patience, max(self._until_s - self.clock(), 0.0) + 0.1)
            try:
                async with asyncio.timeout(patience):
                    held = renewed = not self._released and await self.attempt()
            except Exception as problem:  # whatever went wrong, time decides
                log.warning("lease %s: %s", self.name, problem or type(problem).__name__)
                held = self.held and self.clock() < self._until_s
            if renewed and self._released:  # its release was asked for while the answer was on its way
                await self._give_up()
                held = renewed = False
            if held != self.held:
                self.held = held
                log.info("lease %s: %s", self.name, "held" if held else "not held")
                tell(held)
            pause = self.renew_s if renewed else min(self.renew_s, 2.0)
            await asyncio.sleep(min(pause, max(self._until_s - self.clock(), 0.0)) if held else pause)

    async def attempt(self) -> bool:
        """Renew, take over or create; whether we hold it. A conflict means that somebody else was quicker."""
        path = f"{GROUP}/namespaces/{self.namespace}/leases"
        now = self.clock()
        try:
            lease = await self.api.get(f"{path}/{self.name}")
        except ApiError as problem:
            if problem.status != 404:
                raise
            return await self._write(self.api.create, path, self._fresh({}, 0), now)
        version = (lease.get("metadata") or {}).get("resourceVersion")
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self.me) and not self._expired(spec, now):
            return False
        fresh = self._fresh(spec, int(spec.get("leaseTransitions") or 0) + (holder != self.me))
        change = {"metadata": {"resourceVersion": version}, "spec": fresh["spec"]}
        return await self._write(self.api.patch, f"{path}/{self.name}", change, now)

    async def release(self) -> None:
        """Give it up, so that another takes over without waiting; errors are ignored, it then runs out."""
        self._released = True
        if self.held:
            await self._give_up()

    async def _give_up(self) -> None:
        path = f"{GROUP}/namespaces/{self.namespace}/leases/{self.name}"
        try:
            async with asyncio.timeout(self.renew_s):
                while (lease := await self.api.get(path)).get("spec", {}).get("holderIdentity") == self.me:
                    version = (lease.get("metadata") or {}).get("resourceVersion")
                    change = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": ""}}
                    try:
                        await self.api.patch(path, change)
                        return
                    except ApiError as problem:
                        if problem.status != 409:  # a renewal that was under way came between
                            raise
        except Exception as problem:
            log.warning("lease %s was not released: %s", self.name, problem)

    async def _write(self, write: Callable[[str, Object], Any], path: str, body: Object, now: float) -> bool:
        try:
            await write(path, body)
        except ApiError as problem:
            if problem.status == 409:
                return False
            raise
        self._until_s = now + self.duration_s * 2 / 3
        return True

    def _expired(self, spec: Object, now: float) -> bool:
        """Whether the Lease has not changed for its duration, by our own clock."""
        state = (spec.get("holderIdentity"), spec.get("renewTime"))
        if state != self._seen:
            self._seen, self._seen_s = state, now
        return now - self._seen_s >= float(spec.get("leaseDurationSeconds") or self.duration_s)

    def _fresh(self, spec: Object, transitions: int) -> Object:
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        mine = spec.get("holderIdentity") == self.me
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "holderIdentity": self.me,
                "leaseDurationSeconds": max(1, round(self.duration_s)),
                "acquireTime": spec.get("acquireTime", stamp) if mine else stamp,
                "renewTime": stamp,
                "leaseTransitions": transitions,
            },
        }


class PodLabel:
    """Labels of our own pod; without a name it does nothing."""

    def __init__(self, api: Api, pod: str | None) -> None:
        self.api, self.pod = api, pod
        self._latest = 0

    async def set(self, label: str, value: str | None, attempts: int = 5, wait_s: float = 1.0) -> None:
        """Set it, or with None remove it; tried again a few times, as the Lease itself is what decides.

        What is said later counts: it ends the tries of what was said before.
        """
        if self.pod is None:
            return
        self._latest = mine = self._latest + 1
        path = f"/api/v1/namespaces/{self.api.namespace}/pods/{self.pod}"
        for attempt in range(attempts):
            try:
                await self.api.patch(path, {"metadata": {"labels": {label: value}}})
                return
            except Exception as problem:
                log.warning("label %s of our pod was not set: %s", label, problem)
                await asyncio.sleep(wait_s * (attempt + 1))
            if mine != self._latest:
                return
