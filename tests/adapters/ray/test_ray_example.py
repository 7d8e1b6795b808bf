"""The example runs: three models, an ingress, agents whose calls carry workflow headers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from swarmx.adapters.ray_serve.messages import NAMESPACE, owner_name
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
        ingress = ray_serve.get_deployment_handle("ingress", "agents")
        asyncio.run(_drive(ingress, 1))
        _wait_until_routed("agents", application["autoscaling_policy"]["policy_kwargs"]["deployments"])
        took, flows = asyncio.run(_drive(ingress, 8))
        assert len(took) == 8 and 0 < min(took) <= max(took) < 60
        deployments = ray_serve.status().applications["agents"].deployments
        targets = {name: sum(deployments[name].replica_states.values()) for name in ("plan", "code", "summarise")}
        assert sum(targets.values()) <= 8 + 3  # the budget, and what is leaving
        _check_records(tmp_path, flows)
    finally:
        ray_serve.delete("agents")


def _complete(records: list[CallRecord]) -> bool:
    plans = {r.call_id for r in records if r.model == "plan"}
    causes = {r.parent_id for r in records if r.model == "code"}
    return sum(r.model == "summarise" for r in records) >= 8 and causes <= plans


def _check_records(logs: Path, flows: set[str]) -> None:
    """Every call of the agents is recorded, with its workflow and what it waited for."""
    until = time.monotonic() + 30
    records: list[CallRecord] = []
    while time.monotonic() < until and not _complete(records):  # every process writes its own files
        time.sleep(1.0)
        every = read_logs(logs) if list(logs.rglob("*.parquet")) else []
        records = [r for r in every if r.workflow_id in flows]
    assert {r.status for r in records} == {"ok"}
    assert {r.workflow_id for r in records} == flows
    plans = {r.call_id for r in records if r.model == "plan"}
    assert {r.parent_id for r in records if r.model == "code"} <= plans


async def _drive(ingress: Any, count: int) -> tuple[list[float], set[str]]:
    """Seconds that each agent took, and the ids of their workflows."""
    import drive_agents

    flows = set()

    async def send(body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        flows.add(headers["x-swarmx-workflow-id"])
        answer = await ingress.complete.remote(body, headers)
        assert answer["usage"]["completion_tokens"] > 0
        return answer

    return await drive_agents.agents(send, count, every_s=0.3), flows


def _wait_until_routed(app: str, deployments: Iterable[str]) -> None:
    """A handle's first calls go where Serve sends them, and are not recorded, while its router compiles and loads."""
    import ray

    until = time.monotonic() + 120
    for name in deployments:
        while True:
            with suppress(ValueError):
                ray.get_actor(owner_name(app, name), namespace=NAMESPACE)
                break
            assert time.monotonic() < until, f"no queue owner of {name}"
            time.sleep(0.2)


def _wait_until_running(serve: Any, name: str) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        state = serve.status().applications.get(name)
        if state is not None and state.status == "RUNNING":
            return
        assert state is None or state.status != "DEPLOY_FAILED", state.message
        time.sleep(0.5)
    raise AssertionError(f"not running after two minutes: {serve.status()}")
