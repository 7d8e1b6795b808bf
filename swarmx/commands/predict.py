"""`swarmx predict`: what a model expects of a prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from swarmx.errors import BadInput


def predict(
    model: Annotated[
        Path | None, typer.Argument(help="Model directory; default: the shipped one.", show_default=False)
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Option("--prompt", "-p", help="May be given several times.", show_default=False)
    ] = None,
    type: Annotated[str | None, typer.Option(help="The call's type, where known.", show_default=False)] = None,
    target_model: Annotated[
        str | None, typer.Option(help="Model that would answer; default: the log's first.", show_default=False)
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option(help="Device kinds to show; default: the log's.", show_default=False)
    ] = None,
    running: Annotated[
        list[int] | None, typer.Option(help="Calls already running there; default: 0 and 3.", show_default=False)
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Also draw it into this file.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a model expects of a prompt: quantiles of every target, seconds on every device, what comes next, why.

    Without --prompt the prompt is read from standard input.
    """
    import sys

    from swarmx.files import check_file
    from swarmx.predict.bundle import read_manifest, shipped
    from swarmx.predict.expectation import RUNNING, expectations
    from swarmx.predict.show import draw_expectations, print_expectation
    from swarmx.types import Call

    if any(n < 0 for n in running or []):
        raise BadInput(f"--running counts calls, got {min(running or [])}; give 0 or more")
    if png is not None:
        check_file(png)
    directory = model or shipped()
    known = read_manifest(directory)["models"]
    wanted = target_model or (known[0] if known else "")
    texts = prompt or [sys.stdin.read()]
    calls = [Call(f"prompt {i + 1}", wanted, 0.0, text, type=type) for i, text in enumerate(texts)]
    found = expectations(directory, calls, tuple(device or ()), tuple(running or RUNNING))
    if as_json:
        print(json.dumps([one.as_json() for one in found]))
    else:
        for one in found:
            print_expectation(one)
    if png:
        draw_expectations(found, png)
