"""The picker behind a real Envoy: choice, bodies, streams, refusals."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Sequence

import pytest
from envoy_rig import Backend, needs_envoy, rig, settings_for
from patience import PATIENCE_S, until

from swarmx.adapters.envoy.picker import Picker
from swarmx.engine import EngineConstants
from swarmx.quantiles import QuantileGrid
from swarmx.types import Call, Prediction

pytestmark = [pytest.mark.envoy, needs_envoy]
BUFFERED = {"duplex": False}
WATCHED = {"answers": "watched"}
MODES = {"duplex": {}, "buffered": BUFFERED, "duplex, watched": WATCHED, "buffered, watched": BUFFERED | WATCHED}
every_mode = pytest.mark.parametrize("proxy", MODES.values(), ids=MODES.keys())


@every_mode
def test_a_call_goes_to_the_endpoint_that_the_picker_names(proxy: dict[str, object]) -> None:
    async def run() -> None:
        async with rig(proxy=proxy) as r:
            replies = await asyncio.gather(*(r.post({"prompt": "hi", "sleep": 0.2}) for _ in range(2)))
            assert {reply.backend for reply in replies} == {"b1", "b2"}
            for reply in replies:
                served = next(b for b in r.backends if b.name == reply.backend)
                assert reply.json["destination"].split(",")[0] == served.address
                assert reply.headers["x-swarmx-decision"]

    asyncio.run(run())


def test_the_prompt_decides_where_engines_differ() -> None:
    """Long prompts go where prefill is quick, the others where decoding is."""
    engines = {"prefill": EngineConstants(0.02, p=1e-6), "decode": EngineConstants(0.001, p=0.01)}
    backends = [Backend("prefill"), Backend("decode")]
    rows = [{"url": f"http://{b.address}", "slots": 8, "device": b.name} for b in backends]
    settings = settings_for((), replicas=rows, scheduler={"preset": "push", "options": {"engines": engines}})

    async def run() -> None:
        async with rig(backends, picker=Picker(settings)) as r:
            prompts = ("short", "long " * 10_000, "also short")
            replies = await asyncio.gather(*(r.post({"prompt": p, "max_tokens": 64, "sleep": 0.3}) for p in prompts))
            assert [reply.backend for reply in replies] == ["decode", "prefill", "decode"]

    asyncio.run(run())


@every_mode
def test_a_large_body_arrives_unchanged(proxy: dict[str, object]) -> None:
    body = json.dumps({"prompt": "x" * 300_000}).encode()

    async def run() -> None:
        async with rig(proxy=proxy) as r:
            reply = await r.post(body)
            assert reply.json["sha"] == hashlib.sha256(body).hexdigest()

    asyncio.run(run())


@every_mode
def test_tokens_pass_through_as_they_come_and_are_counted(proxy: dict[str, object]) -> None:
    async def run() -> None:
        async with rig(proxy=proxy) as r:
            loop, times, got = asyncio.get_running_loop(), [], b""
            body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "tokens": 5, "gap": 0.08}
            async with r.client.post(r.url + "/v1/chat/completions", json=body) as response:
                async for piece in response.content.iter_any():
                    times.append(loop.time())
                    got += piece
            assert got.count(b"data:") == 7 and got.endswith(b"data: [DONE]\n\n")
            assert times[-1] - times[0] > 0.3 and len(times) >= 5  # not collected and sent at the end
            await until(lambda: r.records)
            record = r.records[0]
            assert (record.status, record.output_tokens, record.prompt_tokens) == ("ok", 5, 7)
            assert record.first_token_s is not None and record.finished_s is not None
            assert record.finished_s - record.first_token_s > 0.3

    asyncio.run(run())


@every_mode
def test_usage_is_read_from_a_whole_answer(proxy: dict[str, object]) -> None:
    async def run() -> None:
        async with rig(proxy=proxy) as r:
            await r.post({"prompt": "hi", "tokens": 42}, {"x-swarmx-workflow-id": "w", "x-swarmx-tenant": "t"})
            await until(lambda: r.records)
            record = r.records[0]
            assert (record.output_tokens, record.prompt_tokens, record.cached_tokens) == (42, 11, 4)
            assert (record.workflow_id, record.tenant, record.model) == ("w", "t", "m")

    asyncio.run(run())


@pytest.mark.parametrize("answers", ["body", "watched"])
def test_a_call_is_held_until_an_endpoint_is_free(answers: str) -> None:
    async def run() -> None:
        async with rig(proxy={"answers": answers}) as r:
            replies = await asyncio.gather(*(r.post({"prompt": "hi", "sleep": 0.4}) for _ in range(6)))
            assert all(reply.status == 200 for reply in replies)
            assert [b.most for b in r.backends] == [1, 1]  # nobody ever queued at an endpoint
            assert max(reply.took_s for reply in replies) >= 3 * 0.4

    asyncio.run(run())


def test_a_buffered_call_is_held_within_the_proxys_message_timeout_alone() -> None:
    async def run() -> None:
        async with rig([Backend("b1")], BUFFERED) as r:
            replies = await asyncio.gather(*(r.post({"prompt": "hi", "sleep": 1.2}) for _ in range(2)))
            assert [reply.status for reply in replies] == [200, 200]
            assert r.backends[0].most == 2  # after its budget the second went to a busy endpoint
            assert r.picker.counters.total("overdue") == 1

    asyncio.run(run())


def test_without_answers_bodies_nothing_is_held_and_a_sentence_says_why(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with rig([Backend("b1")], {"answers": "none"}) as r:
            posts = [asyncio.create_task(r.post({"prompt": "hi", "sleep": 2.0})) for _ in range(3)]
            await until(lambda: r.backends[0].inside == 3)
            assert [(await post).status for post in posts] == [200, 200, 200]
            assert not r.picker.pool.rides

    asyncio.run(run())
    assert sum("no call is held back" in record.message for record in caplog.records) == 1


@every_mode
def test_low_priority_is_shed_with_429_when_the_pool_is_saturated(proxy: dict[str, object]) -> None:
    async def run() -> None:
        async with rig(
            [Backend("b1")], proxy, objectives={"batch": -1}, shed_waiting=1.0, scheduler={"preset": "push"}
        ) as r:
            busy = [asyncio.create_task(r.post({"prompt": "hi", "sleep": 0.5})) for _ in range(3)]
            await until(lambda: r.backends[0].inside == 3)
            shed = await r.post({"prompt": "hi"}, {"x-gateway-inference-objective": "batch"})
            assert shed.status == 429 and shed.headers["retry-after"] == "5"
            assert shed.json["error"]["type"] == "rate_limit_error"
            assert (await r.post({"prompt": "hi"})).status == 200
            assert [(await one).status for one in busy] == [200, 200, 200]

    asyncio.run(run())


def test_without_a_ready_endpoint_the_answer_is_503() -> None:
    async def run() -> None:
        async with rig() as r:
            r.picker.picture.set_endpoints(())
            reply = await r.post({"prompt": "hi"})
            assert reply.status == 503 and "no ready endpoint" in reply.json["error"]["message"]

    asyncio.run(run())


def _subset(*addresses: str) -> dict[str, object]:
    kind = "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config"
    value = {"x-gateway-destination-endpoint-subset": list(addresses)}
    entry = {"metadata_namespace": "envoy.lb.subset_hint", "value": value}
    return {"name": "envoy.filters.http.set_metadata", "typed_config": {"@type": kind, "metadata": [entry]}}


def test_a_subset_hint_is_kept_to() -> None:
    async def run() -> None:
        backends = [Backend("b1"), Backend("b2"), Backend("b3")]
        async with rig(backends, first=[_subset(backends[2].address)]) as r:
            replies = await asyncio.gather(*(r.post({"prompt": "hi", "sleep": 0.1}) for _ in range(4)))
            assert {reply.backend for reply in replies} == {"b3"}
            assert {reply.json["destination"] for reply in replies} == {backends[2].address}

    asyncio.run(run())


@pytest.mark.parametrize("hint", [(), ("10.1.2.3:80",)], ids=["empty", "unknown"])
def test_a_subset_without_an_eligible_endpoint_is_503(hint: tuple[str, ...]) -> None:
    async def run() -> None:
        async with rig(first=[_subset(*hint)]) as r:
            assert (await r.post({"prompt": "hi"})).status == 503

    asyncio.run(run())


@every_mode
def test_a_body_that_is_no_json_reaches_the_engine_which_says_so(proxy: dict[str, object]) -> None:
    async def run() -> None:
        async with rig(proxy=proxy) as r:
            for body in (b'{"prompt": ', b"\xff\xfe", b"[1, 2]" * 10, b""):
                reply = await r.post(body)
                assert reply.status in (200, 400, 500) and reply.backend is not None, body[:10]
            async with r.client.get(r.url + "/v1/models") as got:
                assert got.status == 200
            await until(lambda: not r.picker.pool.rides)

    asyncio.run(run())


@every_mode
def test_an_oversized_body_is_413(proxy: dict[str, object]) -> None:
    async def run() -> None:
        async with rig(proxy=proxy, max_body_bytes=100_000) as r:
            reply = await r.post({"prompt": "x" * 200_000})
            assert reply.status == 413
            assert (await r.post({"prompt": "x"})).status == 200
            await until(lambda: not r.picker.pool.rides)

    asyncio.run(run())


@every_mode
def test_bodies_that_are_held_together_are_bounded(proxy: dict[str, object]) -> None:
    async def run() -> None:
        async with rig([Backend("b1")], proxy, max_bodies_bytes=250_000) as r:
            first = asyncio.create_task(r.post({"prompt": "x", "sleep": 3.0}))  # all others come while it runs
            await until(lambda: r.backends[0].inside == 1)
            replies = await asyncio.gather(*(r.post({"prompt": "x" * 100_000}) for _ in range(6)))
            statuses = sorted(reply.status for reply in replies)
            assert set(statuses) <= {200, 503} and statuses[0] == 200
            if r.picker.server.rules.hold_s and proxy.get(
                "duplex", True
            ):  # buffered ones are given up as they are read
                assert statuses.count(503) == 4
                shed = next(reply for reply in replies if reply.status == 503)
                assert "long requests" in shed.json["error"]["message"] and shed.headers["retry-after"] == "1"
            assert (await first).status == 200
            await until(lambda: not r.picker.pool.rides)
            assert r.picker.pool.body_bytes == 0

    asyncio.run(run())


class Asleep:
    """A predictor whose network sleeps until it is woken; by type it says 50 tokens at once."""

    version = "1"

    def __init__(self) -> None:
        self.woken = threading.Event()

    def predict(self, calls: Sequence[Call]) -> list[Prediction]:
        self.woken.wait(PATIENCE_S)
        return self.fallback_for(calls)

    def fallback_for(self, calls: Sequence[Call]) -> list[Prediction]:
        return [Prediction(QuantileGrid.point(50.0), "per_type") for _ in calls]


def test_a_predictor_that_sleeps_costs_a_request_its_budget_and_no_more() -> None:
    async def run() -> None:
        backends = [Backend("b1"), Backend("b2")]
        settings = settings_for((b.address for b in backends), predictor={"budget_s": 0.05})
        asleep = Asleep()
        async with rig(backends, picker=Picker(settings, asleep)) as r:
            replies = [await r.post({"prompt": "x"}) for _ in range(5)]
            assert {reply.status for reply in replies} == {200}
            assert min(reply.took_s for reply in replies) >= 0.05
            await until(lambda: len(r.records) == 5)
            assert {record.prediction_source for record in r.records} == {"per_type"}
            assert r.picker.counters.total("late_predictions") == 5
            assert not asleep.woken.is_set()
            asleep.woken.set()

    asyncio.run(run())


def test_a_client_cannot_choose_its_destination() -> None:
    async def run() -> None:
        async with rig() as r:
            reply = await r.post({"prompt": "x"}, {"x-gateway-destination-endpoint": "169.254.169.254:80"})
            assert reply.status == 200
            assert reply.json["destination"].split(",")[0] in {b.address for b in r.backends}

    asyncio.run(run())


def test_shadow_decides_and_records_while_the_proxy_chooses() -> None:
    async def run() -> None:
        async with rig(mode="shadow", scheduler={"preset": "push"}) as r:
            replies = [
                await r.post({"prompt": "x"}, {"x-gateway-destination-endpoint": "1.2.3.4:80"}) for _ in range(6)
            ]
            assert [reply.status for reply in replies] == [200] * 6
            assert {reply.json["destination"] for reply in replies} == {None}
            assert [b.calls for b in r.backends] == [3, 3]  # Envoy's own round robin
            await until(lambda: len(r.records) == 6)
            served = {b.address: b.name for b in r.backends}
            assert [served[record.replica or ""] for record in r.records] == [reply.backend for reply in replies]

    asyncio.run(run())
