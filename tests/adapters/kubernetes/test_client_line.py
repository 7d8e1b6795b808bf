"""What lies between the light client and the API server: certificates, redirects, proxies, silence, long events."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import logging
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from k8s_rig import Line, cluster

from swarmx.adapters.kubernetes import client as client_module
from swarmx.adapters.kubernetes.client import Api, ApiError, api_client, in_cluster

PATH = "/api/v1/namespaces/default/pods"
SECRET = "secret-token"
Speaks = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(SECRET + "\n")
    return path


def certify(folder: Path) -> ssl.SSLContext:
    """A certificate of 127.0.0.1 as folder/ca.crt, and the context of a server that shows it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "cluster")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - day).not_valid_after(now + day)
    certificate = builder.add_extension(here, critical=False).sign(key, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    folder.mkdir(exist_ok=True)
    (folder / "ca.crt").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, plain, serialization.NoEncryption()))
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    shown.load_cert_chain(folder / "ca.crt", folder / "key.pem")
    return shown


@asynccontextmanager
async def speaking(speaks: Speaks) -> AsyncIterator[str]:
    """A server with manners of its own."""
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await speaks(reader, writer)
        writer.close()
        await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.create_task(talk(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*talks)


async def tongues(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()  # until the client has gone


async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"items"')


def test_a_pod_trusts_the_certificates_of_its_cluster_and_no_others(token: Path) -> None:
    account, other = token.parent, token.parent / "other"
    shown = certify(account)
    certify(other)
    (account / "namespace").write_text("agents\n")

    async def run() -> None:
        async with cluster() as (_, _api, line), line.listening(shown) as url:
            environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": url.rpartition(":")[2]}
            async with in_cluster(account, environment) as api:
                assert (await api.get(PATH))["items"] == [] and api.namespace == "agents"
                assert line.seen[-1].headers["authorization"] == f"Bearer {SECRET}"
            (account / "ca.crt").write_bytes((other / "ca.crt").read_bytes())
            asked = len(line.seen)
            async with in_cluster(account, environment) as api:
                with pytest.raises(aiohttp.ClientError, match="certificate verify failed"):
                    await api.get(PATH)
            assert len(line.seen) == asked  # the token went nowhere

    asyncio.run(run())


def test_nothing_listens() -> None:
    async def run() -> None:
        async with speaking(silent) as url:
            pass  # closed again
        async with api_client(url) as client:
            with pytest.raises(aiohttp.ClientError, match="Cannot connect"):
                await Api(client).get(PATH)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("speaks", "said"),
    [(tongues, "the answer is no HTTP"), (silent, "(?i)timeout"), (broken, "payload is not completed")],
    ids=["no HTTP", "silent", "broken"],
)
def test_a_server_that_does_not_answer_is_one_kind_of_error_and_never_shows_the_token(
    speaks: Speaks, said: str, token: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_module, "PATIENCE_S", 0.1)
    caplog.set_level(logging.DEBUG)

    async def run() -> None:
        async with speaking(speaks) as url, api_client(url) as client:
            with pytest.raises(aiohttp.ClientError, match=said) as failed:
                await Api(client, token).get(PATH)
            problem = failed.value
            assert SECRET not in "".join([str(problem), repr(problem), repr(problem.args), caplog.text])
            assert SECRET not in "".join(traceback.format_exception(problem))

    asyncio.run(run())


def test_a_redirect_is_an_error_and_takes_the_token_nowhere(token: Path) -> None:
    async def run() -> None:
        elsewhere = Line("http://127.0.0.1:1")
        async with cluster(token) as (_, api, line), elsewhere.listening() as url:
            line.disturb = lambda asked: web.Response(status=307, headers={"location": url + PATH})
            for ask in (api.get(PATH), api.create(PATH, {}), anext(api.watch(PATH, "0"))):
                with pytest.raises(ApiError, match="307"):
                    await ask
            assert elsewhere.seen == []

    asyncio.run(run())


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async def run() -> None:
        async with cluster() as (_, api, _line):
            assert (await api.get(PATH))["items"] == []

    asyncio.run(run())


def test_a_watch_may_be_silent_for_longer_than_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PATIENCE_S", 0.1)

    async def thinks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        assert b"timeoutSeconds=300" in asked
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        await asyncio.sleep(0.4)
        writer.write(b'{"type": "BOOKMARK"}\n')

    async def run() -> None:
        async with speaking(thinks) as url, api_client(url) as client:
            assert [event["type"] async for event in Api(client).watch(PATH, "0")] == ["BOOKMARK"]

    asyncio.run(run())


def test_an_event_of_a_megabyte_comes_whole() -> None:
    async def run() -> None:
        async with cluster() as (_, api, line):
            events = [f'{{"type": "ADDED", "object": {{"metadata": {{"name": "{"x" * n}"}}}}}}' for n in (1_500_000, 1)]
            line.disturb = lambda asked: web.Response(text="\n".join(events))  # the last line has no end
            names = [len(event["object"]["metadata"]["name"]) async for event in api.watch(PATH, "0")]
            assert names == [1_500_000, 1]

    asyncio.run(run())
