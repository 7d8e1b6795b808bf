"""Errors in the shape that OpenAI's clients know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil

from aiohttp import web

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


class Refused(Exception):
    """A request that will not be served.

    status : HTTP status; code : short machine-readable reason; param : the field at fault
    retry_after_s : when another try may help; None when it cannot
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry_after_s = retry_after_s
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """The JSON error object."""
        kind = TYPES.get(self.status, "server_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return json.dumps({"error": error}).encode()

    def event(self) -> bytes:
        """The same as a server-sent event, for a stream that has begun."""
        return b"data: " + self.body() + b"\n\n"

    def response(self) -> web.Response:
        headers = dict(self.headers)
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, ceil(self.retry_after_s)))
        return web.Response(status=self.status, body=self.body(), content_type="application/json", headers=headers)


class Failed(Exception):
    """An attempt on a replica failed. reason : a word for metrics; answer : what the server said, if it did."""

    def __init__(self, reason: str, message: str, answer: web.Response | None = None) -> None:
        super().__init__(message)
        self.reason, self.answer = reason, answer


class ClientGone(Exception):
    """The client has closed its side."""
