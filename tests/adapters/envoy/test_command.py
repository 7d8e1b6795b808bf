"""The two verbs without starting anything."""

from __future__ import annotations

from pathlib import Path

import typer
import yaml
from typer.testing import CliRunner

from swarmx.commands.kubernetes import endpoint_picker, external_scaler

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
