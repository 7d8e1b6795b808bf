"""A request router that does nothing: the floor for any router of one's own, for ray.py."""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import RequestRouter


class Nothing(RequestRouter):
    async def choose_replicas(self, candidate_replicas: Any, pending_request: Any = None) -> Any:
        return [candidate_replicas]
