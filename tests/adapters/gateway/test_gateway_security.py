"""The threat model of docs/security.md, a test per line."""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
import ssl
from pathlib import Path

import aiohttp
import pytest
from gateway_harness import ADMIN_TOKEN, running
from patience import PATIENCE_S, until

from swarmx.adapters.gateway.access import Access, Bucket, Tenant, digest, new_key
from swarmx.adapters.gateway.errors import Refused
from swarmx.adapters.gateway.settings import KeySettings, ServerSettings

pytestmark = pytest.mark.asyncio
SECRET = "sk-swarmx-a-key-of-the-tests"
OTHER = "sk-swarmx-another-key"


def keys(**limits: object) -> dict[str, object]:
    return {
        "keys": [{"sha256": digest(SECRET), "tenant": "blue", **limits}, {"sha256": digest(OTHER), "tenant": "red"}]
    }


AUTH = {"Authorization": f"Bearer {SECRET}"}


async def test_t1_a_missing_wrong_or_malformed_key_is_refused_everywhere() -> None:
    async with running(server=keys()) as run:
        for headers in ({}, {"Authorization": "Bearer nope"}, {"Authorization": SECRET}, {"Authorization": "Basic x"}):
            status, body, got = await run.chat(headers=headers)
            assert status == 401 and body["error"]["code"] == "invalid_api_key" and "WWW-Authenticate" in got
            assert (await run.post("/v1/select", {"model": "mock"}, headers=headers))[0] == 401
            async with run.http.get(f"{run.url}/v1/models", headers=headers) as answer:
                assert answer.status == 401
        assert (await run.chat(headers=AUTH))[0] == 200


async def test_t2_keys_are_known_by_their_hash_alone() -> None:
    key, hashed = new_key()
    assert len(key) > 50 and hashed == digest(key) and key not in hashed
    access = Access([KeySettings(sha256=hashed, tenant="t")])
    assert access.tenant(f"Bearer {key}") is not None
    with pytest.raises(Refused):
        access.tenant(f"Bearer {hashed}")  # the configuration's content opens nothing


async def test_t3_a_key_decides_the_tenant_and_its_best_class() -> None:
    async with running(server=keys(priority_ceiling="normal")) as run:
        await run.chat(headers={**AUTH, "x-swarmx-tenant": "red", "x-swarmx-priority": "high"})
        assert run.gateway.state.latest()[0]["tenant"] == "blue"
        wait = run.gateway.state.metrics.text().decode()
        assert 'priority="normal"' in wait and 'priority="high"' not in wait


async def test_t4_limits_of_rate_concurrency_and_tokens_hold() -> None:
    async with running(server=keys(rate_per_s=0.001, burst=2)) as run:
        codes = [(await run.chat(headers=AUTH))[0] for _ in range(3)]
        assert codes == [200, 200, 429]
        assert (await run.chat(headers={"Authorization": f"Bearer {OTHER}"}))[0] == 200  # others are not touched
    async with running(server=keys(concurrency=1)) as run:
        answers = await asyncio.gather(*(run.chat(headers=AUTH) for _ in range(4)))
        assert {a[1]["error"]["code"] for a in answers if a[0] == 429} == {"concurrency_limit"}
        assert (await run.chat(headers=AUTH))[0] == 200
    async with running(server=keys(tokens_per_minute=30)) as run:
        assert (await run.chat(headers=AUTH))[0] == 200  # about 20 tokens of answer, charged when they are known
        status, body, headers = await run.chat(headers=AUTH, body={"max_tokens": 25})
        assert status == 429 and body["error"]["code"] == "token_limit" and int(headers["Retry-After"]) >= 1


async def test_t4_a_bucket_never_grants_more_than_its_size_plus_its_rate() -> None:
    bucket, granted = Bucket(rate=2.0, size=5.0), 0
    for step in range(1000):
        if bucket.wait_s(1.0, step * 0.1) == 0:
            bucket.take(1.0)
            granted += 1
    assert granted <= 5 + 2.0 * 99.9 + 1
    tenant = Tenant(KeySettings(sha256=digest("x"), tenant="t", concurrency=1))
    tenant.admit(1, 0.0)
    tenant.leave(1, 1)
    tenant.admit(1, 0.0)  # a place that was given back can be had again


async def test_t5_an_oversized_body_is_refused_before_it_is_read() -> None:
    async with running(1, server={"limits": {"body_bytes": 1000}}) as run:
        assert (await run.chat("x" * 2000))[0] == 413

        async def endless() -> object:
            for _ in range(100):
                yield b"x" * 100

        async with run.http.post(f"{run.url}/v1/chat/completions", data=endless()) as answer:
            assert answer.status == 413
        assert (await run.chat())[0] == 200


async def test_t6_a_slow_loris_is_cut_off() -> None:
    async with running(1, server={"limits": {"headers_s": 0.3, "body_s": 0.3}}) as run:
        reader, writer = await asyncio.open_connection("127.0.0.1", run.gateway.port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-A: ")
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""  # headers that never end
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", run.gateway.port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert b"408" in await asyncio.wait_for(reader.readline(), PATIENCE_S)  # a body that never comes
        writer.close()
        assert (await run.chat())[0] == 200


async def test_t6_connections_beyond_the_limit_are_closed_at_once() -> None:
    async with running(1, server={"limits": {"connections": 3}}) as run:
        held = [await asyncio.open_connection("127.0.0.1", run.gateway.port) for _ in range(3)]
        await asyncio.sleep(0.05)
        reader, writer = await asyncio.open_connection("127.0.0.1", run.gateway.port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.wait_for(reader.readexactly(1), PATIENCE_S)
        for _, each in [*held, (reader, writer)]:
            each.close()


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length : 5\r\n",
        b"X-A: 1\r\n folded\r\n",
    ],
)
async def test_t7_ambiguous_framing_never_reaches_a_replica(head: bytes) -> None:
    async with running(1) as run:
        reader, writer = await asyncio.open_connection("127.0.0.1", run.gateway.port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n0\r\n\r\nGET /health HTTP/1.1\r\n\r\n"
        )
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()
        assert not answer.startswith(b"HTTP/1.1 200") and b"HTTP/1.0 200" not in answer
        assert not run.gateway.state.latest()


async def test_t7_a_key_that_comes_twice_means_one_thing_to_both_sides() -> None:
    async with running(1) as run:
        raw = b'{"model":"secret","model":"mock","messages":[{"role":"user","content":"a"}]}'
        async with run.http.post(f"{run.url}/v1/chat/completions", data=raw) as answer:
            assert (await answer.json())["model"] == "mock"


@pytest.mark.parametrize("link", ["http://169.254.169.254/latest", "file:///etc/passwd", "https://internal/x"])
async def test_t8_no_field_makes_anyone_fetch_an_address(link: str) -> None:
    async with running(1) as run:
        parts = [{"type": "image_url", "image_url": {"url": link}}]
        status, body, _ = await run.chat(body={"messages": [{"role": "user", "content": parts}]})
        assert status == 400 and body["error"]["code"] == "remote_media_refused"
        deep = {"model": "mock", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": link}]}]}
        assert (await run.post("/v1/responses", deep))[0] == 400
        headers = {"Host": "evil", "X-Forwarded-Host": "evil", "x-swarmx-replica": link}
        assert (await run.chat(headers=headers))[0] == 200  # nothing of a request chooses an address


async def test_t8_redirects_of_a_replica_are_not_followed() -> None:
    from aiohttp import web

    hits = []

    async def away(request: web.Request) -> web.Response:
        hits.append(request.path)
        return web.json_response({}, status=302, headers={"Location": "/stolen"})

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", away)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    async with running(0, urls=[url]) as run:
        status, _, headers = await run.chat(body={"messages": [{}]})
        assert status == 302 and "Location" not in headers
    assert "/stolen" not in hits
    await runner.cleanup()


async def test_t9_neither_secrets_nor_prompts_are_logged_or_recorded_by_default(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running(1, server=keys(), log=tmp_path) as run:
        await run.chat("my secret plan", headers=AUTH)
        await run.mocks[0].fault(run.http, kind="error")
        await run.chat("my secret plan", headers=AUTH)
    written = b"".join(p.read_bytes() for p in tmp_path.iterdir())
    assert written and b"secret plan" not in written and SECRET.encode() not in written
    assert "secret plan" not in caplog.text and SECRET not in caplog.text


async def test_t10_administration_is_closed_without_its_token_and_not_on_the_public_port() -> None:
    async with running(1) as run:
        for method, path in (
            ("get", "/admin/state"),
            ("delete", "/admin/pools/mock/replicas/r0"),
            ("get", "/admin/receipts/x"),
        ):
            for headers in ({}, {"Authorization": f"Bearer {ADMIN_TOKEN}x"}):
                async with run.http.request(method, run.admin + path, headers=headers) as answer:
                    assert answer.status == 401
            async with run.http.request(method, run.url + path, headers=run.admin_headers) as answer:
                assert answer.status == 404
        async with run.http.get(f"{run.url}/metrics") as answer:
            assert answer.status == 404


async def test_t10_what_an_administrator_sends_is_checked() -> None:
    async with running(1) as run:
        url = f"{run.admin}/admin/pools/mock/replicas"
        for bad in (
            {"url": "ftp://x"},
            {"url": "http://u:p@x"},
            {"url": "http://x", "slots": 0},
            {"uri": "http://x"},
            [],
        ):
            async with run.http.post(url, json=bad, headers=run.admin_headers) as answer:
                assert answer.status == 400


async def test_t11_without_keys_only_loopback_is_served() -> None:
    with pytest.raises(ValueError, match="would serve anyone"):
        ServerSettings(host="0.0.0.0")
    assert ServerSettings(host="0.0.0.0", open=True).open


async def test_t12_a_workflow_cannot_claim_to_be_older_than_any_real_one() -> None:
    async with running(1, log=None) as run:
        await run.chat(headers={"x-swarmx-workflow-id": "w", "x-swarmx-workflow-arrival": "1"})
        workflows = run.gateway.state.workflows
        assert next(iter(workflows._first.values())) > 1e9


async def test_t13_an_odd_replica_neither_kills_the_gateway_nor_fills_its_memory() -> None:
    from aiohttp import web

    async def odd(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.Response(body=b"\xff\x00vllm:num_requests_running{ nonsense\n" * 1000)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(64):
            await response.write(b"data: " + b"x" * 2**19)  # one event that never ends
        return response

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", odd)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    async with running(0, urls=[url], server={"upstream": {"attempts": 2}}) as run:
        status, body, _ = await run.chat(body={"stream": True})
        assert status == 502 and body["error"]["code"] == "cut"
    await runner.cleanup()


async def test_t14_tls_is_served_with_the_given_certificate(tmp_path: Path) -> None:
    certificate, key = _self_signed(tmp_path)
    async with running(1, server={"tls": {"certificate": certificate, "key": key}}) as run:
        trusted = ssl.create_default_context(cafile=certificate)
        body = {"model": "mock", "messages": [{"role": "user", "content": "hi"}]}
        url = f"https://localhost:{run.gateway.port}/v1/chat/completions"
        async with run.http.post(url, json=body, ssl=trusted) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await run.chat()


def _self_signed(folder: Path) -> tuple[str, str]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = str(folder / "cert.pem"), str(folder / "key.pem")
    Path(paths[0]).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    Path(paths[1]).write_bytes(key.private_bytes(pem, plain, serialization.NoEncryption()))
    return paths


async def test_t15_the_status_page_runs_no_foreign_code() -> None:
    async with running(1) as run:
        async with run.http.get(run.admin + "/") as answer:
            policy = answer.headers["Content-Security-Policy"]
            page = await answer.text()
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "http://" not in page and "https://" not in page
        async with run.http.get(run.admin + "/status.js") as answer:
            script = await answer.text()
        assert "innerHTML" not in script and "eval(" not in script


async def test_t16_the_queue_is_bounded_in_bytes_too() -> None:
    async with running(1, server={"limits": {"waiting_bytes": 3000}}) as run:
        answers = await asyncio.gather(*(run.chat("x" * 1000 + str(i)) for i in range(12)))
        assert {a[0] for a in answers} == {200, 429}
        await until(lambda: not run.gateway.state.in_flight)
        pool = run.gateway.state.pools["mock"]
        assert pool.waiting_bytes == 0 and pool.waiting_calls == 0
        assert json.loads(json.dumps(answers[0][1]))


async def test_t18_no_answer_says_which_software_of_which_version_it_is_from() -> None:
    async with running(1) as run:
        for url in (f"{run.url}/health", f"{run.url}/nowhere", f"{run.admin}/health"):
            async with run.http.get(url) as answer:
                assert answer.headers["Server"] == "swarmx"
        _, _, headers = await run.chat()
        assert headers["Server"] == "swarmx"
