"""Endpoints of the pool, and where their list comes from without Kubernetes: the configuration, a file, or DNS."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from swarmx.adapters.settings import ReplicaSettings
from swarmx.errors import BadInput

log = logging.getLogger(__name__)
OnChange = Callable[[tuple["Endpoint", ...]], None]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model server, address as host:port, which is what the proxy is told.

    slots, context_tokens, kv_capacity_tokens : None when not configured; the first and last are learned from metrics
    draining : takes no new calls
    """

    address: str
    device: str = "default"
    slots: int | None = None
    speed: float = 1.0
    context_tokens: int | None = None
    kv_capacity_tokens: int | None = None
    draining: bool = False


def endpoint_of(replica: ReplicaSettings) -> Endpoint:
    """Raises BadInput for a url with a path, which an endpoint picker cannot name."""
    rest = replica.url.split("://", 1)[1]
    if "/" in rest:
        raise BadInput(f"replica {replica.url!r}: a proxy is told host and port alone; remove the path")
    address = rest if ":" in rest else f"{rest}:{443 if replica.url.startswith('https') else 80}"
    return Endpoint(
        address, replica.device, replica.slots, replica.speed, replica.context_tokens, replica.kv_capacity_tokens
    )


def read_endpoints(path: Path) -> tuple[Endpoint, ...]:
    """A YAML or JSON list of replicas. Raises BadInput naming file and entry."""
    try:
        rows = yaml.safe_load(path.read_text())
        replicas = TypeAdapter(list[ReplicaSettings]).validate_python(rows or [])
    except ValidationError as problem:
        first = problem.errors()[0]
        raise BadInput(f"{path}, {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as problem:  # a date may have a 13th month
        raise BadInput(f"{path} cannot be read as a list of replicas: {str(problem)[:200]}") from None
    found = tuple(endpoint_of(replica) for replica in replicas)
    if len({e.address for e in found}) < len(found):
        raise BadInput(f"{path}: two replicas have the same address")
    return found


async def watch_file(path: Path, every_s: float, on_change: OnChange) -> None:
    """Read the file whenever it changes; a file that cannot be used leaves the last good list in place."""
    last = b""
    while True:
        try:
            raw = await asyncio.to_thread(path.read_bytes)
            if raw != last:
                last = raw
                on_change(read_endpoints(path))
        except (OSError, BadInput) as problem:
            log.warning("endpoints stay as they are: %s", problem)
        await asyncio.sleep(every_s)


async def watch_dns(
    host: str,
    port: int,
    template: dict[str, Any],
    every_s: float,
    on_change: OnChange,
    resolve: Callable[[str, int], Awaitable[list[str]]] | None = None,
) -> None:
    """Every address of a name, as of a headless Service; a failed look-up leaves the last list in place."""
    known: tuple[Endpoint, ...] | None = None
    like = ReplicaSettings(**{**template, "url": f"http://{host}:{port}"})
    while True:
        try:
            addresses = await (resolve or resolve_all)(host, port)
            found = tuple(endpoint_of(like.model_copy(update={"url": f"http://{a}"})) for a in sorted(addresses))
            if found != known:
                known = found
                on_change(found)
        except OSError as problem:
            log.warning("%s does not resolve, endpoints stay as they are: %s", host, problem)
        await asyncio.sleep(every_s)


async def resolve_all(host: str, port: int) -> list[str]:
    """host:port of every address of a name."""
    rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({f"[{r[4][0]}]:{port}" if ":" in str(r[4][0]) else f"{r[4][0]}:{port}" for r in rows})
