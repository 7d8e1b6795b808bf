"""Choosing for a data plane that is not ours."""

from __future__ import annotations

import asyncio

import pytest
from gateway_harness import running
from patience import until

pytestmark = pytest.mark.asyncio
ASK = {"model": "mock", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 10}


async def test_a_reservation_holds_its_place_until_it_is_reported_finished() -> None:
    async with running(1) as run:
        picks = [(await run.post("/v1/select", ASK))[1] for _ in range(4)]  # all four slots
        assert {p["replica"]["url"] for p in picks} == {run.mocks[0].url}
        fifth = asyncio.create_task(run.post("/v1/select", ASK))
        await asyncio.sleep(0.1)
        assert not fifth.done()
        name = picks[0]["reservation"]
        assert (await run.post(f"/v1/reservations/{name}/started", {}))[0] == 200
        assert (await run.post(f"/v1/reservations/{name}/progress", {"tokens": 5}))[0] == 200
        assert (await run.post(f"/v1/reservations/{name}/finished", {"output_tokens": 9}))[0] == 200
        status, body, _ = await fifth
        assert status == 200 and body["decision"]
        row = run.gateway.state.latest()[0]
        assert row["status"] == "ok" and row["output_tokens"] == 9
        for pick in [*picks[1:], body]:
            await run.post(f"/v1/reservations/{pick['reservation']}/finished", {"status": "error"})
        assert (await run.post(f"/v1/reservations/{name}/finished", {}))[0] == 404


async def test_a_refused_reservation_goes_to_another_replica() -> None:
    async with running(2) as run:
        pick = (await run.post("/v1/select", ASK))[1]
        again = (await run.post(f"/v1/reservations/{pick['reservation']}/refused", {}))[1]
        assert again["reservation"] == pick["reservation"] and again["replica"]["id"] != pick["replica"]["id"]
        await run.post(f"/v1/reservations/{pick['reservation']}/finished", {})


async def test_a_forgotten_reservation_frees_its_place() -> None:
    async with running(1) as run:
        await run.post("/v1/select", {**ASK, "ttl_s": 0.1})
        await until(lambda: not run.gateway.state.in_flight)
        assert run.gateway.state.latest()[0]["status"] == "timeout"


async def test_waiting_for_a_place_ends_in_time() -> None:
    async with running(1) as run:
        names = [(await run.post("/v1/select", ASK))[1]["reservation"] for _ in range(4)]
        status, body, headers = await run.post("/v1/select", {**ASK, "wait_s": 0.1})
        assert status == 429 and body["error"]["code"] == "no_capacity" and headers["Retry-After"] == "1"
        for name in names:
            await run.post(f"/v1/reservations/{name}/finished", {})


@pytest.mark.parametrize("bad", [{"max_tokens": "many"}, {"prompt_tokens": -1}, {"wait_s": "soon"}])
async def test_a_wrong_field_is_named(bad: dict[str, object]) -> None:
    async with running(1) as run:
        status, body, _ = await run.post("/v1/select", {**ASK, **bad})
        assert status == 400 and body["error"]["param"] in bad
