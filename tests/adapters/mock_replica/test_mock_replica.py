"""The emulated engine: its time, its lengths, its faults."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import aiohttp
import numpy as np
import pytest

from swarmx.adapters.mock_replica import HiddenRule, MockOptions, MockReplica, serve_mocks
from swarmx.adapters.mock_replica.faults import parse_fault
from swarmx.engine import EngineConstants
from swarmx.errors import BadInput
from swarmx.sim.cluster import ReplicaSpec

SPEC = ReplicaSpec("r", slots=4, service=EngineConstants(0.001, 0.0005, 0.0, 1e-4), kv_capacity_tokens=10_000)


async def timed(replica: MockReplica, prompt: int, tokens: int, blocks: tuple[int, ...] = ()) -> tuple[float, int]:
    loop = asyncio.get_running_loop()
    begin, cached = loop.time(), 0
    async for _, cached in replica.generate(prompt, tokens, blocks, streamed=False):  # noqa: B007
        pass
    return loop.time() - begin, cached


@pytest.mark.asyncio
async def test_a_call_alone_takes_prefill_and_its_tokens() -> None:
    seconds, _ = await timed(MockReplica(SPEC), 1000, 100)
    assert 0.1 + 99 * 0.0015 <= seconds + 1e-4 < 0.5  # never less than the model says; a busy machine adds


@pytest.mark.asyncio
async def test_calls_together_slow_each_other_and_more_than_fit_wait() -> None:
    replica = MockReplica(SPEC)
    seconds = sorted(s for s, _ in await asyncio.gather(*(timed(replica, 1, 200) for _ in range(5))))
    assert seconds[0] >= 199 * (0.001 + 4 * 0.0005) - 1e-3
    assert seconds[4] - seconds[0] >= 0.9 * 199 * 0.0015  # the clocks of a busy machine are read a little late
    assert replica.finished == 5 and replica.load() == (0, 0, 0)


@pytest.mark.asyncio
async def test_a_prompt_that_was_there_is_cached() -> None:
    replica = MockReplica(replace(SPEC, block_tokens=16))
    blocks = tuple(range(60))
    _, first = await timed(replica, 1000, 1, blocks)
    _, again = await timed(replica, 1000, 1, blocks)
    assert first == 0 and again == 960


@pytest.mark.asyncio
async def test_an_abandoned_call_frees_its_place() -> None:
    replica = MockReplica(SPEC)
    task = asyncio.create_task(timed(replica, 1, 100_000 // 20))
    await asyncio.sleep(0.05)
    assert replica.load()[0] == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    assert replica.load()[0] == 0 and replica.aborted == 1


def test_lengths_follow_from_the_words_and_from_nothing_that_says_them() -> None:
    rule = HiddenRule(mean_tokens=100, cv=1.5, rho2=0.7, seed=3)
    rng = np.random.default_rng(0)
    vocabulary = [f"w{chr(97 + i)}{chr(97 + j)}" for i in range(26) for j in range(26)]
    texts = [" ".join(rng.choice(vocabulary, 12)) for _ in range(3000)]
    lengths = np.array([rule.length(t) for t in texts])
    assert lengths.tolist() == [rule.length(t) for t in texts]
    assert lengths.mean() == pytest.approx(100, rel=0.25)
    assert rule.length("2000 tokens please") == rule.length("2000 tokens please")
    # the same words with another remainder: what words explain is rho2 of the log variance
    pairs = np.array([[np.log(rule.length(f"{t} {i}")) for i in (1, 2)] for t in texts])
    assert np.corrcoef(pairs.T)[0, 1] == pytest.approx(0.7, abs=0.06)  # standard error 0.01; rounding costs a little
    assert HiddenRule(seed=4).length(texts[0]) != rule.length(texts[0])


@pytest.mark.asyncio
async def test_its_metrics_have_vllms_names() -> None:
    runners = await serve_mocks([SPEC], MockOptions(), "127.0.0.1", 0)
    address = runners[0].addresses[0]
    try:
        async with aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{address[1]}/metrics") as answer:
                text = await answer.text()
            async with http.post(f"http://127.0.0.1:{address[1]}/mock/fault", json={"kind": "flood"}) as answer:
                assert answer.status == 400
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "cache_config_info"):
            assert f"vllm:{name}" + "{" in text
    finally:
        for runner in runners:
            await runner.cleanup()


@pytest.mark.parametrize("body", [None, [], {"kind": "flood"}, {"kind": "cut", "when": 1}])
def test_an_unknown_fault_is_refused(body: object) -> None:
    with pytest.raises(BadInput):
        parse_fault(body)
