"""`swarmx predict`: everything a model expects of a prompt, in the terminal, as JSON and as a picture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from swarmx.cli import app
from swarmx.errors import BadInput
from swarmx.predict.bundle import shipped
from swarmx.predict.expectation import Expectation, expectations
from swarmx.predict.show import BAR, draw_expectations, strip
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.types import Call


@pytest.fixture(scope="module")
def found(trained: Path) -> list[Expectation]:
    calls = [
        Call("plan", "m", 0.0, "List the main facts about bees.", type="list"),
        Call("word", "m", 0.0, "Name a colour for tea."),
    ]
    return expectations(trained, calls)


def test_every_device_of_the_log_is_shown_idle_and_busy(found: list[Expectation]) -> None:
    shown = [(on.device, on.running, on.source) for on in found[0].devices]
    assert shown == [("cpu", 0, "neural"), ("cpu", 3, "neural")]


def test_a_list_takes_longer_than_a_word(found: list[Expectation]) -> None:
    assert found[0].devices[0].seconds.at(0.5) > 1.5 * found[1].devices[0].seconds.at(0.5)


def test_a_call_of_a_known_type_shows_what_comes_next(found: list[Expectation]) -> None:
    assert found[0].outlook is not None and found[1].outlook is None
    told = json.loads(json.dumps(found[0].as_json()))
    assert told["next"] and 0 <= told["none_next"] <= 1 and len(told["seconds"][0]["values"]) == len(LEVELS)


def test_an_unknown_device_is_shown_as_borrowed(trained: Path) -> None:
    done = CliRunner().invoke(
        app, ["predict", str(trained), "-p", "Hi.", "--device", "tpu", "--running", "1", "--target-model", "m"]
    )  # fmt: skip
    assert done.exit_code == 0 and "tpu +1, unknown:" in done.output and "borrowed" in done.output


def test_the_picture_has_a_panel_for_each_question(found: list[Expectation], tmp_path: Path) -> None:
    draw_expectations(found, tmp_path / "all.png")
    draw_expectations([Expectation(found[0].call, found[0].prediction, found[0].reason)], tmp_path / "some.png")
    widths = [int.from_bytes((tmp_path / name).read_bytes()[16:20], "big") for name in ("all.png", "some.png")]
    assert widths[0] > widths[1] > 500  # pixels, from the PNG header


def test_dollars_and_marks_in_a_prompt_are_shown_as_they_are(trained: Path, tmp_path: Path) -> None:
    call = Call("p", "m", 0.0, "Is [bold]$5 or $6[/] \x00 more? " + "鯨" * 300)
    draw_expectations(expectations(trained, [call]), tmp_path / "p.png")
    done = CliRunner().invoke(app, ["predict", str(trained), "-p", str(call.prompt)])
    assert done.exit_code == 0 and "[bold]$5 or $6[/]" in done.output


def test_fewer_than_no_calls_cannot_run() -> None:
    done = CliRunner().invoke(app, ["predict", "-p", "x", "--running", "-1"])
    assert isinstance(done.exception, BadInput) and "-1" in str(done.exception)


def test_a_model_without_devices_shows_the_rest() -> None:
    files = json.loads((shipped() / "manifest.json").read_text())["files"]
    [one] = expectations(shipped(), [Call("p", "m", 0.0, "Hi.")])
    assert bool(one.devices) == ("seconds.json" in files) and one.prediction.tokens.values[-1] > 0


def test_a_strip_is_as_wide_as_its_axis_and_marks_the_median() -> None:
    for values in (np.zeros(len(LEVELS)), np.linspace(1, 5, len(LEVELS)), np.geomspace(1, 1e6, len(LEVELS))):
        for top in (1e-9, 3.0, 1e9):
            drawn = strip(QuantileGrid(LEVELS, values), top)
            assert len(drawn) == BAR and drawn.count("●") == 1
