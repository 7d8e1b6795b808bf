"""Nothing of a call stays once it is over, but what tables with an end keep."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import aiohttp
import pytest
from gateway_harness import SPEC, Running, running
from patience import until

from swarmx.adapters.mock_replica import HiddenRule, MockOptions

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]
ROUND = 300  # more than any small table keeps
SPARE = ROUND // 5  # objects of a kind that may come and go between two looks
KEPT = {"swarmx.fairness.Account"}  # of the latest 10,000 workflows
INSTANT = MockOptions(instant=True, rule=HiddenRule(mean_tokens=20, cv=0.5))


def census() -> Counter[str]:
    """How many objects of each kind are alive. Texts and numbers are not among them: tables of these have their end."""
    gc.collect()
    return Counter(f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.get_objects())


def grown(*looks: Counter[str]) -> set[str]:
    """Kinds of which there are more at every look; timers that were cancelled go now and then."""
    pairs = list(pairwise(looks))
    return {kind for kind in looks[-1] if all(b[kind] - a[kind] > SPARE for a, b in pairs)} - KEPT


async def calls(run: Running, begin: int) -> None:
    """A round of calls, every one of another workflow and tenant, half of them streamed."""
    for i in range(begin, begin + ROUND):
        headers = {"x-swarmx-workflow-id": f"w{i}", "x-swarmx-call-id": f"c{i}", "x-swarmx-tenant": f"t{i % 7}"}
        body = {"model": "mock", "stream": i % 2 == 0, "messages": [{"role": "user", "content": f"question {i}"}]}
        async with run.http.post(f"{run.url}/v1/chat/completions", json=body, headers=headers) as answer:
            assert answer.status == 200
            await answer.read()


async def test_no_kind_of_object_grows_with_the_calls() -> None:
    async with running(2, options=INSTANT) as run:
        run.gateway.state.receipts.limit = 50
        looks = []
        for begin in range(0, 3 * ROUND, ROUND):
            await calls(run, begin)
            looks.append(census())
        assert grown(*looks) == set()


async def test_silent_streams_leave_nothing_behind_when_they_close() -> None:
    streams = 150
    async with running(2, options=INSTANT, spec=replace(SPEC, slots=streams)) as run:
        run.gateway.state.receipts.limit = 50
        await calls(run, 0)
        for mock in run.mocks:
            await mock.fault(run.http, kind="stall")
        looks = [census()]
        for _ in range(2):
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
                body = {"model": "mock", "stream": True, "messages": [{"role": "user", "content": "wait"}]}
                url = f"{run.url}/v1/chat/completions"
                answers = await asyncio.gather(*(http.post(url, json=body) for _ in range(streams)))
                assert run.gateway.state.in_flight == streams
                for answer in answers:
                    answer.close()
            await until(lambda: run.gateway.state.in_flight == 0)
            looks.append(census())
        await until(lambda: grown(*looks[:2], census()) == set())  # engines close their ends in their time
