"""A light client of the Kubernetes API: get, list, watch, create and merge-patch over aiohttp, nothing else.

Credentials are a pod's own: the token is read from its file for every request, as the kubelet renews it, and a request
that is answered 401 is tried once more with the token read again. Tokens never appear in errors or logs.

Whatever keeps an answer from coming is an aiohttp.ClientError: no connection, none in time, none that is trusted, a
connection that breaks, an answer that is no HTTP.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from swarmx.errors import BadInput

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MERGE_PATCH = "application/merge-patch+json"
WATCH_S = 300  # the server ends a watch after so long, which is normal
PATIENCE_S = 10.0  # for a connection, and for the next bytes of an answer
LINE_BYTES = 8 * 2**20  # of one event at most; etcd takes objects of 1.5 MB
Object = dict[str, Any]


class ApiError(Exception):
    """The API server refused. status : HTTP status; reason : Kubernetes' own word, such as Conflict or Expired"""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message[:200]}")
        self.status, self.reason = status, reason


class Api:
    """token_file : None for no credentials (a proxy or an emulator); namespace : the caller's own

    client : of `api_client`
    """

    def __init__(
        self, client: aiohttp.ClientSession, token_file: Path | None = None, namespace: str = "default"
    ) -> None:
        self.client, self.token_file, self.namespace = client, token_file, namespace

    async def get(self, path: str, **query: str) -> Object:
        """An object or a list. Raises ApiError, and aiohttp.ClientError when the server cannot be reached."""
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
        patient = _timeout(WATCH_S + 30)
        async with self._answer("GET", path, query, {}, timeout=patient, read_bufsize=LINE_BYTES // 2) as got:
            async for line in got.content:
                if line.strip():
                    yield _event(line)

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None = None,
        kind: str = "application/json",
    ) -> Object:
        data = None if body is None else json.dumps(body).encode()
        async with self._answer(method, path, query, {"content-type": kind} if data else {}, data=data) as got:
            return _object(await got.read())

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One that is good. Redirects, which would carry the token elsewhere, are none. Raises as `get`."""
        options |= {"params": query, "allow_redirects": False}
        try:
            for attempt in (1, 2):
                own = {**self._headers(), **headers}
                async with self.client.request(method, path, headers=own, **options) as got:
                    if got.status == 401 and attempt == 1 and self.token_file is not None:
                        continue
                    if got.status >= 300:
                        raise _error(got.status, await got.read())
                    yield got
                    return
        except aiohttp.ClientResponseError as problem:  # it shows all headers that were sent, the token among them
            said = problem.message[:200]
            raise aiohttp.ClientConnectionError(f"{method} {path}: the answer is no HTTP: {said}") from None

    def _headers(self) -> dict[str, str]:
        headers = {"accept": "application/json", "user-agent": "swarmx"}
        if self.token_file is not None:
            headers["authorization"] = f"Bearer {self.token_file.read_text().strip()}"
        return headers


def api_client(url: str, trust: ssl.SSLContext | bool = True) -> aiohttp.ClientSession:
    """To the API server at that address, past all proxies. trust : whose certificates are good"""
    return aiohttp.ClientSession(
        url,
        connector=aiohttp.TCPConnector(ssl=trust),
        timeout=_timeout(PATIENCE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    )


def _timeout(read_s: float) -> aiohttp.ClientTimeout:
    """Both raise ServerTimeoutError, which is a ClientError; a limit for the whole would raise another."""
    return aiohttp.ClientTimeout(total=None, connect=PATIENCE_S, sock_read=read_s)


@asynccontextmanager
async def in_cluster(account: Path = ACCOUNT, environment: Mapping[str, str] | None = None) -> AsyncIterator[Api]:
    """The API of the cluster that this pod runs in. Raises BadInput outside a cluster."""
    environment = os.environ if environment is None else environment
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (account / "token").exists():
        raise BadInput(
            "this must run in a Kubernetes pod with a service account; elsewhere give the picker replicas, a file or "
            "DNS, and the scaler no target"
        )
    where = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    trust = ssl.create_default_context(cafile=str(account / "ca.crt"))
    namespace = (account / "namespace").read_text().strip()
    async with api_client(where, trust) as client:
        yield Api(client, account / "token", namespace)


def _object(content: bytes) -> Object:
    try:
        data = json.loads(content)
    except ValueError:
        raise ApiError(502, "NotJson", "the answer is no JSON") from None
    if not isinstance(data, dict):
        raise ApiError(502, "NotAnObject", "the answer is no object")
    return data


def _event(line: bytes) -> Object:
    event = _object(line)
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
