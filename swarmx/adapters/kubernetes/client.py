"""A light client of the Kubernetes API: get, list, watch, create and merge-patch over httpx, nothing else.

Credentials are a pod's own: the token is read from its file for every request, as the kubelet renews it, and a request
that is answered 401 is tried once more with the token read again. Tokens never appear in errors or logs.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmx.errors import BadInput

if TYPE_CHECKING:
    import httpx

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MERGE_PATCH = "application/merge-patch+json"
WATCH_S = 300  # the server ends a watch after so long, which is normal
Object = dict[str, Any]


class ApiError(Exception):
    """The API server refused. status : HTTP status; reason : Kubernetes' own word, such as Conflict or Expired"""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message[:200]}")
        self.status, self.reason = status, reason


class Api:
    """token_file : None for no credentials (a proxy or an emulator); namespace : the caller's own"""

    def __init__(self, client: httpx.AsyncClient, token_file: Path | None = None, namespace: str = "default") -> None:
        self.client, self.token_file, self.namespace = client, token_file, namespace

    async def get(self, path: str, **query: str) -> Object:
        """An object or a list. Raises ApiError, and httpx.HTTPError when the server cannot be reached."""
        return await self._call("GET", path, query)

    async def create(self, path: str, body: Object) -> Object:
        return await self._call("POST", path, {}, body)

    async def patch(self, path: str, body: Object) -> Object:
        """JSON merge patch. With a resourceVersion in it, ApiError 409 says that the object has changed since."""
        return await self._call("PATCH", path, {}, body, MERGE_PATCH)

    async def watch(self, path: str, version: str, **query: str) -> AsyncIterator[Object]:
        """Events since that resourceVersion, until the server ends the watch.

        Raises ApiError, 410 when the version is too old, whether as a status or as an event.
        """
        query = {
            **query,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        for attempt in (1, 2):
            async with self.client.stream(
                "GET", path, params=query, headers=self._headers(), timeout=_patient()
            ) as got:
                if got.status_code == 401 and attempt == 1 and self.token_file is not None:
                    continue
                if got.status_code != 200:
                    raise _error(got.status_code, await got.aread())
                async for line in got.aiter_lines():
                    if line.strip():
                        yield _event(line)
                return

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None = None,
        kind: str = "application/json",
    ) -> Object:
        content = None if body is None else json.dumps(body).encode()
        for attempt in (1, 2):
            headers = self._headers() | ({} if content is None else {"content-type": kind})
            got = await self.client.request(method, path, params=dict(query), content=content, headers=headers)
            if got.status_code == 401 and attempt == 1 and self.token_file is not None:
                continue
            if got.status_code >= 300:
                raise _error(got.status_code, got.content)
            return _object(got.content)
        raise AssertionError("unreachable")

    def _headers(self) -> dict[str, str]:
        headers = {"accept": "application/json", "user-agent": "swarmx"}
        if self.token_file is not None:
            headers["authorization"] = f"Bearer {self.token_file.read_text().strip()}"
        return headers


@asynccontextmanager
async def in_cluster(account: Path = ACCOUNT, environment: Mapping[str, str] | None = None) -> AsyncIterator[Api]:
    """The API of the cluster that this pod runs in. Raises BadInput outside a cluster."""
    import httpx

    environment = os.environ if environment is None else environment
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (account / "token").exists():
        raise BadInput(
            "this must run in a Kubernetes pod with a service account; elsewhere list replicas, a file or DNS"
        )
    where = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    trust = ssl.create_default_context(cafile=str(account / "ca.crt"))
    namespace = (account / "namespace").read_text().strip()
    async with httpx.AsyncClient(base_url=where, verify=trust, timeout=10.0, trust_env=False) as client:
        yield Api(client, account / "token", namespace)


def _patient() -> httpx.Timeout:
    import httpx

    return httpx.Timeout(10.0, read=WATCH_S + 30)


def _object(content: bytes) -> Object:
    try:
        data = json.loads(content)
    except ValueError:
        raise ApiError(502, "NotJson", "the answer is no JSON") from None
    if not isinstance(data, dict):
        raise ApiError(502, "NotAnObject", "the answer is no object")
    return data


def _event(line: str) -> Object:
    event = _object(line.encode())
    if event.get("type") == "ERROR":
        status = event.get("object") or {}
        raise ApiError(
            int(status.get("code") or 500), str(status.get("reason") or ""), str(status.get("message") or "")
        )
    return event


def _error(status: int, content: bytes) -> ApiError:
    try:
        data = json.loads(content)
        return ApiError(status, str(data.get("reason") or ""), str(data.get("message") or ""))
    except (ValueError, AttributeError):
        return ApiError(status, "", "")
