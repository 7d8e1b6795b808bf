"""The example runs: three models, an ingress, agents whose calls carry workflow headers."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from swarmx.logs.many import read_logs
from swarmx.types import CallRecord

EXAMPLE = Path(__file__).parents[3] / "examples" / "ray"

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.xdist_group("ray")]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield EXAMPLE
    for name in ("agents", "drive_agents"):
        sys.modules.pop(name, None)


def test_agents_plan_code_and_summarise_through_the_ingress(example: Path, ray_serve: Any, tmp_path: Path) -> None:
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    config = yaml.safe_load((example / "serve.yaml").read_text())
    del config["proxy_location"], config["http_options"]
    (application,) = config["applications"]
    application |= {
        "route_prefix": None,
        "args": {**application["args"], "logs": str(tmp_path)},
        "runtime_env": {"env_vars": {"PYTHONPATH": f"{example}:{Path(__file__).parent}"}},
    }
    _get_global_client().deploy_apps(ServeDeploySchema.model_validate(config))
    try:
        _wait_until_running(ray_serve, "agents")
        took = asyncio.run(_drive(ray_serve.get_deployment_handle("ingress", "agents")))
        assert len(took) == 8 and 0 < min(took) <= max(took) < 60
        deployments = ray_serve.status().applications["agents"].deployments
        targets = {name: sum(deployments[name].replica_states.values()) for name in ("plan", "code", "summarise")}
        assert sum(targets.values()) <= 8 + 3  # the budget, and what is leaving
        _check_records(tmp_path)
    finally:
        ray_serve.delete("agents")


def _complete(records: list[CallRecord]) -> bool:
    plans = {r.call_id for r in records if r.model == "plan"}
    causes = {r.parent_id for r in records if r.model == "code"}
    return sum(r.model == "summarise" for r in records) >= 8 and causes <= plans


def _check_records(logs: Path) -> None:
    """Every call of the agents is recorded, with its workflow and what it waited for."""
    until = time.monotonic() + 30
    records: list[CallRecord] = []
    while time.monotonic() < until and not _complete(records):  # every process writes its own files
        time.sleep(1.0)
        records = read_logs(logs) if list(logs.rglob("*.parquet")) else []
    assert {r.status for r in records} == {"ok"}
    flows = {r.workflow_id for r in records}
    assert len(flows) == 8
    plans = {r.call_id for r in records if r.model == "plan"}
    assert {r.parent_id for r in records if r.model == "code"} <= plans


async def _drive(ingress: Any) -> list[float]:
    import drive_agents

    async def send(body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        answer = await ingress.complete.remote(body, headers)
        assert answer["usage"]["completion_tokens"] > 0
        return answer

    return await drive_agents.agents(send, 8, every_s=0.3)


def _wait_until_running(serve: Any, name: str) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        state = serve.status().applications.get(name)
        if state is not None and state.status == "RUNNING":
            return
        assert state is None or state.status != "DEPLOY_FAILED", state.message
        time.sleep(0.5)
    raise AssertionError(f"not running after two minutes: {serve.status()}")
