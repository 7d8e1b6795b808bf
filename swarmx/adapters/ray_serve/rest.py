"""Serve's REST API on Ray's dashboard: what runs, and how many replicas it shall have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmx.errors import BadInput

if TYPE_CHECKING:
    import httpx

WHERE = "set RAY_AUTH_TOKEN or token_file (on KubeRay: the secret that the RayService's authOptions made)"


class RestError(Exception):
    """The dashboard refused or cannot be understood. status : HTTP status"""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {' '.join(message.split())[:200]}")
        self.status = status


class ServeApi:
    """address : of the dashboard; token_file : read for every request, as a mounted secret may be renewed"""

    def __init__(self, client: httpx.AsyncClient, address: str, token_file: Path | None = None) -> None:
        self.client, self.address, self.token_file = client, address.rstrip("/"), token_file

    async def applications(self) -> dict[str, Any]:
        """Name -> details, as `GET /api/serve/applications/` gives them.

        Raises RestError; BadInput when the token is missing or wrong; httpx.HTTPError when nobody answers.
        """
        answer = await self._call("GET", "/api/serve/applications/")
        found = answer.get("applications") if isinstance(answer, dict) else None
        if not isinstance(found, dict):
            raise RestError(200, "the answer holds no applications; is this Ray's dashboard?")
        return found

    async def scale(self, application: str, deployment: str, replicas: int) -> None:
        """Set the replicas. Raises as `applications`; RestError 412 where the application is not scaled externally."""
        path = f"/api/v1/applications/{application}/deployments/{deployment}/scale"
        await self._call("POST", path, {"target_num_replicas": replicas})

    async def metrics_pages(self) -> tuple[str, ...]:
        """Addresses of the metrics pages of all nodes, as the dashboard tells Prometheus. Raises as `applications`."""
        answer = await self._call("GET", "/api/prometheus/sd")
        groups = answer if isinstance(answer, list) else []
        targets = [t for group in groups if isinstance(group, dict) for t in group.get("targets") or ()]
        return tuple(f"http://{target}/metrics" for target in targets)

    async def metrics(self, url: str) -> str:
        """The text of a metrics page, which asks for no token. Raises RestError, or httpx.HTTPError."""
        got = await self.client.get(url)
        if got.status_code != 200:
            raise RestError(got.status_code, got.text)
        return got.text

    async def _call(self, method: str, path: str, body: object = None) -> Any:
        got = await self.client.request(method, self.address + path, json=body, headers=self._headers())
        if got.status_code in (401, 403):
            raise BadInput(f"{self.address} asks for another token than the one given; {WHERE}")
        if got.status_code >= 300:
            raise RestError(got.status_code, got.text)
        try:
            return got.json()
        except ValueError:
            raise RestError(got.status_code, "no JSON") from None

    def _headers(self) -> dict[str, str]:
        token = find_token(self.token_file)
        return {"authorization": f"Bearer {token}"} if token else {}


def find_token(token_file: Path | None = None) -> str | None:
    """The token, from the file given or from where Ray itself looks; None when there is none.

    Raises BadInput when the file that was given cannot be read.
    """
    if token_file is not None:
        try:
            return token_file.read_text().strip()
        except OSError as problem:
            raise BadInput(f"token_file {token_file} cannot be read: {problem}") from None
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token.strip()
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return path.read_text().strip() if path.is_file() else None
