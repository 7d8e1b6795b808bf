"""Whose word on lengths counts, on the gateway's metrics page."""

from __future__ import annotations

import pytest
from gateway_harness import running

pytestmark = pytest.mark.asyncio


async def test_the_gateways_page_has_them() -> None:
    async with running(1) as run:
        await run.chat()
        async with run.http.get(f"{run.admin}/metrics") as answer:
            page = await answer.text()
    labels = 'policy="late",pool="mock"'
    assert f'swarmx_expectations_total{{{labels},tier="pool_mean"}} 1.0' in page
    assert f"swarmx_predictor_heard{{{labels}}} 0.0" in page
    assert f"swarmx_predictor_turns_total{{{labels}}} 0.0" in page
