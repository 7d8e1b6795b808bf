"""What others look at: the API's description under fuzzing, metrics, receipts, records, traces, the status page."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from gateway_harness import ADMIN_TOKEN, running
from patience import until

from swarmx.adapters.prompts import prefix_blocks
from swarmx.logs.table import read_log

pytestmark = pytest.mark.asyncio
REPOSITORY = Path(__file__).parents[3]


@pytest.mark.slow
async def test_the_api_keeps_what_its_description_promises_under_fuzzing() -> None:
    import schemathesis
    from hypothesis import HealthCheck, given, settings

    async with running(2, server={"upstream": {"stall_s": 0.3}}) as run:  # reservations end by themselves
        await run.chat()

        def check(case: schemathesis.Case) -> None:
            answer = case.call(timeout=60)
            assert answer.status_code < 500, answer.text[:300]
            if answer.status_code >= 400:
                assert set(answer.json()["error"]) == {"message", "type", "param", "code"}

        def fuzz() -> None:
            schema = schemathesis.openapi.from_url(f"{run.url}/openapi.json")
            few = settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
            for operation in schema.get_all_operations():
                few(given(case=operation.ok().as_strategy())(check))()

        await asyncio.to_thread(fuzz)
        await until(lambda: not run.gateway.state.in_flight)
        assert (await run.chat())[0] == 200


async def test_metrics_tell_what_happened() -> None:
    async with running(2) as run:
        await asyncio.gather(*(run.chat(f"call {i}", headers={"x-swarmx-tenant": f"t{i % 2}"}) for i in range(6)))
        await run.post("/v1/chat/completions", {"model": "none", "messages": [{}]})
        async with run.http.get(f"{run.admin}/metrics") as answer:
            text = await answer.text()
        assert 'swarmx_requests_total{pool="mock",status="ok",tenant="t0"} 3.0' in text
        assert 'swarmx_refused_total{code="model_not_found"} 1.0' in text
        assert 'swarmx_e2e_request_latency_seconds_count{pool="mock"} 6.0' in text
        assert 'swarmx_decisions_total{action="start",policy="late",pool="mock",tier="pool_mean"} 6.0' in text
        assert "swarmx_fairness_jain" in text and 'swarmx_replica_usable{pool="mock",replica="r1"} 1.0' in text
        dashboard = (REPOSITORY / "deploy/grafana/swarmx-gateway.json").read_text()
        for name in set(re.findall(r"swarmx_[a-z0-9_]+", json.loads(json.dumps(dashboard)))) - {"swarmx_gateway"}:
            family = re.sub(r"_(bucket|total|count|sum)$", "", name)
            assert f"# TYPE {family}" in text or f"# TYPE {family}_total" in text, name


async def test_a_receipt_explains_a_decision_and_a_wait(tmp_path: Path) -> None:
    from swarmx.adapters.gateway.receipts import find_receipt

    async with running(1, log=tmp_path) as run:
        _, _, headers = await run.chat(headers={"x-swarmx-call-id": "mine"})
        name = headers["x-swarmx-decision"]
        async with run.http.get(f"{run.admin}/admin/receipts/{name}", headers=run.admin_headers) as answer:
            (receipt,) = (await answer.json())["receipts"]
        assert receipt["call_id"] == "mine" and receipt["policy"] == "late" and receipt["replica"] == "r0"
        await run.mocks[0].fault(run.http, kind="slow", factor=0.05)
        calls = [asyncio.create_task(run.chat(headers={"x-swarmx-call-id": f"c{i}"})) for i in range(5)]
        await until(lambda: run.gateway.state.pools["mock"].waiting_calls == 1)
        held = next(t.call.id for t in run.gateway.state.pools["mock"].tickets.values() if t.waiting)
        async with run.http.get(f"{run.admin}/admin/explain/{held}", headers=run.admin_headers) as answer:
            assert (await answer.json())["receipts"][0]["action"] == "hold"
        await run.mocks[0].fault(run.http, kind="none")
        await asyncio.gather(*calls)
    assert [r["id"] for r in find_receipt(tmp_path, "mine")] == [name]


async def test_records_become_a_log_that_training_reads(tmp_path: Path) -> None:
    async with running(2, log=tmp_path, prompt="keep") as run:
        await asyncio.gather(*(run.chat(f"call {i}", headers={"x-swarmx-workflow-id": "w"}) for i in range(4)))
        await run.chat("again", headers={"x-swarmx-call-id": "same"})
        await run.chat("again", headers={"x-swarmx-call-id": "same"})  # as a client's library retries
    records = [r for p in tmp_path.glob("*.parquet") for r in read_log(p)]
    assert len(records) == 6 and len({r.call_id for r in records}) == 6
    assert {r.prompt for r in records} >= {"user: call 0", "user: again"}
    for r in records:
        assert r.status == "ok" and r.output_tokens > 0 and r.policy == "late" and r.replica in ("r0", "r1")
        assert r.finished_s and r.dispatched_s and r.arrival_s <= r.dispatched_s <= r.finished_s


async def test_spans_follow_the_genai_conventions_and_the_callers_trace() -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from swarmx.adapters.gateway.tracing import Tracing

    exporter = InMemorySpanExporter()
    async with running(1) as run:
        run.gateway.state.ended.tracing = Tracing(exporter)
        parent = f"00-{'a' * 32}-{'b' * 16}-01"
        await run.chat(headers={"traceparent": parent, "x-swarmx-tenant": "blue"})
        run.gateway.state.ended.tracing.provider.force_flush()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    whole, upstream = spans["chat mock"], spans["upstream"]
    assert whole.context.trace_id == int("a" * 32, 16) and whole.parent.span_id == int("b" * 16, 16)
    assert upstream.parent.span_id == whole.context.span_id
    assert whole.attributes["gen_ai.usage.output_tokens"] > 0 and whole.attributes["swarmx.tenant"] == "blue"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
async def test_the_status_page_shows_the_state_in_a_browser(tmp_path: Path) -> None:
    async with running(2) as run:
        await run.chat(headers={"x-swarmx-call-id": "<img src=x onerror=alert(1)>", "x-swarmx-tenant": "blue"})
        await run.chat(headers={"x-swarmx-call-id": "shown-in-page"})

        def dump() -> str:
            argv = [
                "chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile",
                "--virtual-time-budget=4000", "--dump-dom", f"{run.admin}/#token={ADMIN_TOKEN}",
            ]  # fmt: skip
            return subprocess.run(argv, capture_output=True, text=True, timeout=90).stdout

        shown = await asyncio.to_thread(dump)
        assert "mock: 0 running, 0 waiting (late)" in shown
        assert "shown-in-page" in shown and "blue" in shown and "<td>r0</td>" in shown
        assert "<img" not in shown


async def test_a_journal_of_served_calls_decides_the_same_again(tmp_path: Path) -> None:
    from swarmx.journal import replay

    async with running(2, log=tmp_path, journal=True) as run:
        answers = await asyncio.gather(*(run.chat(f"call {i}") for i in range(20)))
        assert {status for status, _, _ in answers} == {200}
    (path,) = (tmp_path / "journal").glob("*.jsonl")
    lines = path.read_text().splitlines()
    assert sum('"Start"' in line for line in lines) == 20
    assert not list(replay(lines, str(path)))


@pytest.mark.parametrize("tracked", [True, False])
async def test_the_scheduler_knows_which_replica_holds_the_beginning_of_a_session(tracked: bool) -> None:
    async with running(2, pool={"prefix_cache": tracked}) as run:
        first = [{"role": "user", "content": "tell me about apples " * 100}]
        _, answer, _ = await run.chat(body={"messages": first})
        turn = (*first, answer["choices"][0]["message"], {"role": "user", "content": "go on"})
        (scheduler,) = run.gateway.state.pools["mock"].arms.schedulers()
        served = scheduler.cluster.index[run.gateway.state.latest()[0]["replica"]]
        cached = scheduler.cluster.prefix.cached(prefix_blocks(turn))
        assert cached[1 - served] == 0
        assert (cached[served] > 400) == tracked, "2,100 characters are some 520 tokens, eight blocks of 64"


async def test_without_receipts_none_is_made_and_calls_are_served() -> None:
    async with running(1, receipts=0) as run:
        status, _, headers = await run.chat()
        assert status == 200 and "x-swarmx-decision" not in headers
        assert list(run.gateway.state.receipts.latest(10)) == []


async def test_a_stalled_stream_is_given_up_after_its_limit() -> None:
    async with running(1, server={"upstream": {"stall_s": 0.2}}) as run:
        await run.mocks[0].fault(run.http, kind="stall", times=1)
        body = {"model": "mock", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
        async with run.http.post(f"{run.url}/v1/chat/completions", json=body) as answer:
            text = await answer.text()
        assert '"code": "stream_broken"' in text and "[DONE]" not in text
        status, _, _ = await run.chat()
        assert status == 200
