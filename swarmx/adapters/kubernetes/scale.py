"""The replicas of one Deployment or StatefulSet: how many, and which of them leave first.

A replica that is to go is annotated twice: `swarmx.io/drain` tells the picker to send nothing more there, and
`controller.kubernetes.io/pod-deletion-cost` tells the ReplicaSet to delete it before others. Only once its calls have
ended the number goes down. A StatefulSet always deletes its highest ordinals; there the annotations only drain.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from swarmx.adapters.kubernetes.client import Api, ApiError
from swarmx.errors import BadInput
from swarmx.scaling.decisions import Scale

log = logging.getLogger(__name__)
COST, DRAIN = "controller.kubernetes.io/pod-deletion-cost", "swarmx.io/drain"
PLURAL = {"Deployment": "deployments", "StatefulSet": "statefulsets"}


class Workload:
    """kind : Deployment or StatefulSet"""

    def __init__(self, api: Api, kind: str, namespace: str, name: str) -> None:
        self.api, self.kind, self.namespace, self.name = api, kind, namespace, name
        self._path = f"/apis/apps/v1/namespaces/{namespace}/{PLURAL[kind]}/{name}/scale"

    async def replicas(self) -> int:
        """As wanted now. Raises ApiError."""
        return int(((await self.api.get(self._path)).get("spec") or {}).get("replicas") or 0)

    async def set_replicas(self, replicas: int) -> int:
        """Raises ApiError; a conflict with another writer is tried once more."""
        body = {"spec": {"replicas": replicas}}
        try:
            answer = await self.api.patch(self._path, body)
        except ApiError as problem:
            if problem.status != 409:
                raise
            answer = await self.api.patch(self._path, body)
        return int((answer.get("spec") or {}).get("replicas") or 0)

    async def carry_out(self, scale: Scale) -> None:
        """More replicas at once; fewer in two steps: drain those that are to go, then lower the number.

        `scale.remove` are drained replicas; `scale.cancel` are starting ones, which hold no call.
        """
        await self.mark(scale.drain, scale.resume)
        change = sum(scale.add.values()) - len(scale.remove) - len(scale.cancel)
        if change:
            await self.set_replicas(max(scale.target, await self.replicas() + change))

    async def mark(self, leaving: Iterable[str], staying: Iterable[str], drain: bool = True) -> None:
        """Annotate the pods behind these addresses (host:port). One that is gone already is no error.

        drain : leaving ones get no more calls; else they are only the first to be deleted, whenever that happens
        """
        for address in leaving:
            await self._annotate(address, {COST: "-1000"} | ({DRAIN: "true"} if drain else {}))
        for address in staying:
            await self._annotate(address, {COST: None, DRAIN: None})

    async def check_alone(self) -> None:
        """Raises BadInput when an HPA, KEDA's too, sets the replicas of this workload: two would fight."""
        path = f"/apis/autoscaling/v2/namespaces/{self.namespace}/horizontalpodautoscalers"
        for hpa in (await self.api.get(path)).get("items") or []:
            target = (hpa.get("spec") or {}).get("scaleTargetRef") or {}
            if (target.get("kind"), target.get("name")) == (self.kind, self.name):
                name = (hpa.get("metadata") or {}).get("name")
                raise BadInput(
                    f"the HorizontalPodAutoscaler {name!r} sets the replicas of {self.kind} {self.name!r} already; "
                    "remove it (or its ScaledObject), or use mode keda"
                )

    async def _annotate(self, address: str, notes: dict[str, Any]) -> None:
        host = address.rpartition(":")[0].strip("[]")
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        found = (await self.api.get(path, fieldSelector=f"status.podIP={host}")).get("items") or []
        for pod in found:
            if (pod.get("status") or {}).get("podIP") == host:
                try:
                    await self.api.patch(f"{path}/{pod['metadata']['name']}", {"metadata": {"annotations": notes}})
                except ApiError as problem:
                    if problem.status != 404:
                        raise
