"""Shadow and canary: what is decided, and what they report."""

from __future__ import annotations

import asyncio

import pytest
from gateway_harness import running

from swarmx.adapters.gateway.trial import Comparison

pytestmark = pytest.mark.asyncio


async def test_a_shadow_decides_nothing_and_says_what_it_would_have_done() -> None:
    async with running(2, mode="shadow") as run:
        for begin in range(0, 160, 8):  # no more at once than run, so that each shows its replica's speed
            answers = await asyncio.gather(*(run.chat(f"call {i}") for i in range(begin, begin + 8)))
            assert all(status == 200 for status, _, _ in answers)
        pool = (await run.state())["pools"]["mock"]
        trial = pool["trial"]
        assert pool["policies"] == {"plain": "least_outstanding"} and trial["mode"] == "shadow"
        assert trial["calls"] == 160 and 0 < trial["agreed"] <= 160
        low, high = trial["saved_s_per_call"]["ci95"]
        assert low <= trial["saved_s_per_call"]["value"] <= high and trial["saved_s_per_call"]["value"] >= 0


async def test_a_canary_serves_its_share_of_workflows_whole() -> None:
    async with running(2, mode=0.5) as run:
        await asyncio.gather(
            *(run.chat(f"call {i}", headers={"x-swarmx-workflow-id": f"w{i // 2}"}) for i in range(160))
        )
        trial = (await run.state())["pools"]["mock"]["trial"]
        assert trial["swarmx"]["n"] + trial["plain"]["n"] == 160
        assert abs(trial["swarmx"]["n"] - 80) <= 40  # 80 workflows at one half: more than four standard deviations
        assert trial["swarmx"]["n"] % 2 == 0  # no workflow was split
        for name in ("p50", "p95", "p99", "mean"):
            low, high = trial[f"{name}_ratio"]["ci95"]
            assert 0 < low <= high


@pytest.mark.asyncio(loop_scope="function")
async def test_the_interval_of_a_comparison_covers_a_known_ratio() -> None:
    import numpy as np

    rng = np.random.default_rng(1)
    comparison = Comparison()
    for i in range(2000):
        comparison.add("ours", f"a{i}", float(rng.exponential(2.0)))
        comparison.add("theirs", f"b{i}", float(rng.exponential(4.0)))
    report = comparison.report("ours", "theirs")
    low, high = report["mean_ratio"]["ci95"]
    assert low < 0.5 < high and high - low < 0.1  # standard error of the ratio: 0.5 * sqrt(2 / 2000) = 0.016


async def test_the_fairness_accounts_are_metrics() -> None:
    async with running(2) as run:
        await asyncio.gather(*(run.chat(f"call {i}", headers={"x-swarmx-tenant": f"t{i % 2}"}) for i in range(8)))
        async with run.http.get(f"{run.admin}/metrics") as answer:
            text = await answer.text()
    labels = '{policy="late",pool="mock",tenant="t1"}'
    rows = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("swarmx_"))
    assert rows["swarmx_tenant_dispatched_total" + labels] == "4.0"
    assert float(rows["swarmx_tenant_served_tokens_total" + labels]) > 0
    assert float(rows["swarmx_tenant_turnaround_seconds_total" + labels]) > 0
    assert float(rows["swarmx_tenant_worst_delay_seconds" + labels]) >= 0
    shares = [float(rows["swarmx_tenant_share_over_weight" + labels.replace("t1", t)]) for t in ("t0", "t1")]
    assert sum(shares) == pytest.approx(2.0)
    assert 0.5 <= float(rows['swarmx_pool_jain{policy="late",pool="mock"}']) <= 1
