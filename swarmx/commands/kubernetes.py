"""`swarmx endpoint-picker`, `swarmx external-scaler` and `swarmx serve-scaler`: what runs in a cluster."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from swarmx.commands.levels import level_of
from swarmx.errors import BadInput

_EXTRA = "this needs packages that are missing; install them with: pip install 'swarmx-scheduler[k8s]'"
CONFIG = Annotated[Path, typer.Argument(help="YAML file", show_default=False)]


def endpoint_picker(
    config: CONFIG,
    check: Annotated[bool, typer.Option("--check", help="Check the file and end.")] = False,
    envoy: Annotated[bool, typer.Option("--envoy", help="Print an Envoy configuration that fits, and end.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error")] = "info",
) -> None:
    """Pick endpoints for Envoy (external processing), as the Gateway API Inference Extension defines it."""
    from swarmx.adapters.envoy.settings import read_settings

    settings = read_settings(config)
    if envoy:
        from swarmx.adapters.envoy.bootstrap import bootstrap_text

        typer.echo(bootstrap_text(settings), nl=False)
    elif check:
        typer.echo(f"{config} is good")
    else:
        try:
            from swarmx.adapters.envoy.picker import run_picker
        except ModuleNotFoundError as problem:
            raise BadInput(f"{_EXTRA} ({problem})") from None
        _run(lambda stopped: run_picker(settings, stopped), log_level)


def external_scaler(
    config: CONFIG,
    check: Annotated[bool, typer.Option("--check", help="Check the file and end.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error")] = "info",
) -> None:
    """Tell KEDA how many replicas are wanted, or set them directly."""
    from swarmx.adapters.keda.settings import read_scaler_settings

    settings = read_scaler_settings(config)
    if check:
        typer.echo(f"{config} is good")
        return
    try:
        from swarmx.adapters.keda.external import run_scaler
    except ModuleNotFoundError as problem:
        raise BadInput(f"{_EXTRA} ({problem})") from None
    _run(lambda stopped: run_scaler(settings, stopped), log_level)


def serve_scaler(
    config: CONFIG,
    check: Annotated[bool, typer.Option("--check", help="Check the file and end.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error")] = "info",
) -> None:
    """Scale Ray Serve applications from outside, through Serve's REST API."""
    from swarmx.adapters.ray_serve.external_settings import read_serve_scaler_settings

    settings = read_serve_scaler_settings(config)
    if check:
        typer.echo(f"{config} is good")
        return
    from swarmx.adapters.ray_serve.external import run_serve_scaler

    _run(lambda stopped: run_serve_scaler(settings, stopped), log_level)


def _run(work: Callable[[asyncio.Event], Awaitable[None]], log_level: str) -> None:
    """Run until SIGTERM or SIGINT, then let the work end in its own way."""
    logging.basicConfig(level=level_of(log_level), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request at info

    async def main() -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await work(stopped)

    asyncio.run(main())
