"""The two verbs without starting anything."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from swarmx.adapters.envoy.picker import run_picker
from swarmx.adapters.envoy.settings import PickerSettings
from swarmx.commands.kubernetes import endpoint_picker, external_scaler
from swarmx.errors import BadInput

DEPLOY = Path(__file__).parents[3] / "deploy"


def _app() -> typer.Typer:
    app = typer.Typer()
    app.command()(endpoint_picker)
    app.command()(external_scaler)
    return app


def test_configurations_are_checked_and_an_envoy_configuration_is_printed() -> None:
    run = CliRunner().invoke
    picker = str(DEPLOY / "envoy" / "picker.yaml")
    assert "is good" in run(_app(), ["endpoint-picker", picker, "--check"]).output
    scaler = str(DEPLOY / "kubernetes" / "scaler-config.yaml")
    assert "is good" in run(_app(), ["external-scaler", scaler, "--check"]).output
    printed = yaml.safe_load(run(_app(), ["endpoint-picker", picker, "--envoy"]).output)
    assert set(printed) == {"admin", "static_resources"}


@pytest.mark.parametrize(("runs", "own"), [({}, True), ({"runs": "thread"}, False), ({"runs": "process"}, True)])
def test_a_picker_predicts_in_a_process_of_its_own_unless_told_otherwise(runs: dict[str, str], own: bool) -> None:
    predictor = {"kind": "local", "path": "/models/one", **runs}
    data = {"model": "m", "replicas": [{"url": "http://127.0.0.1:1"}], "predictor": predictor}
    assert PickerSettings.model_validate(data).predictor.own_process == own


def test_a_picker_that_cannot_follow_its_endpoints_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    near = {"listen": "127.0.0.1:0", "metrics_listen": "127.0.0.1:0", "notice_s": 0, "drain_s": 0}
    pool = {"kind": "inference_pool", "name": "llama"}
    settings = PickerSettings.model_validate({"model": "m", "discover": pool, **near})

    async def run() -> None:
        async with asyncio.timeout(60):
            await run_picker(settings, asyncio.Event())

    with pytest.raises(BadInput, match="must run in a Kubernetes pod"):
        asyncio.run(run())
