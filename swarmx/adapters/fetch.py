"""Reads pages of servers that are not trusted: metrics of model servers, what pickers and gateways publish."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp


def page_client(timeout_s: float) -> aiohttp.ClientSession:
    """Follows no proxy of the environment, keeps no cookies, unpacks nothing, gives a page `timeout_s` to be read.

    It opens as many connections as it is asked for pages at once.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        headers={"accept-encoding": "identity"},  # a packed page may be of any length
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )


async def fetch(
    client: aiohttp.ClientSession, url: str, max_bytes: int, headers: Mapping[str, str] | None = None
) -> bytes:
    """The page, as a client of `page_client` finds it.

    Raises ValueError for a page that is too long, for any status but 200, redirects among them, and for some addresses
    that are none; TimeoutError; aiohttp.ClientConnectorError when no connection is accepted or the name is not known,
    another aiohttp.ClientError for everything else. A connection that the server has closed since the last page is
    replaced without a word.
    """
    async with client.get(url, headers=headers, allow_redirects=False) as answer:
        if answer.status != 200:
            raise ValueError(f"HTTP {answer.status}")
        body = bytearray()
        async for piece in answer.content.iter_any():
            body += piece
            if len(body) > max_bytes:
                raise ValueError("too long")
    return bytes(body)
