"""`swarmx serve`, `mock-replica`, `explain` and `config check`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swarmx.commands.levels import level_of
from swarmx.errors import BadInput

if TYPE_CHECKING:
    from swarmx.config import Config

config_app = typer.Typer(help="Check configurations.", no_args_is_help=True)

ConfigPath = Annotated[Path, typer.Argument(help="The YAML file.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_EXTRA = "this needs the gateway's packages; install them with: pip install 'swarmx-scheduler[gateway]'"


def serve(
    config: Annotated[Path | None, typer.Argument(help="The YAML file.", show_default=False)] = None,
    new_key: Annotated[
        str | None, typer.Option(metavar="TENANT", help="Print a new API key for a tenant, and leave.")
    ] = None,
    new_admin_token: Annotated[bool, typer.Option(help="Print a new administration token, and leave.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the OpenAI-compatible gateway until SIGTERM or Ctrl-C; it drains before it leaves."""
    if new_key is not None and new_admin_token:
        raise BadInput("--new-key and --new-admin-token print one secret each; ask for one of them")
    if new_key is not None or new_admin_token:
        _print_key(new_key)
        return
    if config is None:
        raise BadInput("serve needs a configuration file: swarmx serve CONFIG.yaml")
    settings = _load(config).gateway()
    logging.basicConfig(level=level_of(log_level), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    from swarmx.adapters.gateway.gateway import Gateway

    async def main() -> None:
        await Gateway(settings).serve()

    _allow_many_files()
    _run(main)


def mock_replica(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the first replica; the others follow.")] = 9100,
    speeds: Annotated[str, typer.Option(help="One replica per number.")] = "1,1,0.6,0.35",
    slots: Annotated[int, typer.Option(help="Calls that one replica runs at once.")] = 4,
    token_s: Annotated[float, typer.Option(help="a: seconds per token.")] = 0.004,
    batch_s: Annotated[float, typer.Option(help="b: seconds per token and running call.")] = 0.0004,
    kv_s: Annotated[float, typer.Option(help="c: seconds per token and KV token in use.")] = 0.0,
    prefill_s: Annotated[float, typer.Option(help="p: seconds per uncached prompt token.")] = 2e-5,
    kv_tokens: Annotated[int, typer.Option(help="KV memory of one replica, in tokens.")] = 100_000,
    context: Annotated[int, typer.Option(help="Longest prompt and answer.")] = 32_768,
    prefix_block: Annotated[
        int, typer.Option(min=0, help="Tokens of a prefix-cache block; 0 turns the cache off.")
    ] = 16,
    mean_tokens: Annotated[float, typer.Option(min=1, help="Mean length of answers.")] = 80.0,
    cv: Annotated[float, typer.Option(min=0, help="Their coefficient of variation.")] = 2.0,
    rho2: Annotated[
        float, typer.Option(min=0, max=1, help="Share of their log variance that the prompt's words explain.")
    ] = 0.7,
    seed: Annotated[int, typer.Option(help="Another seed is another hidden rule.")] = 0,
    model: Annotated[str, typer.Option(help="Name of the model.")] = "mock",
    instant: Annotated[bool, typer.Option(help="Answer at once.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Run emulated replicas with OpenAI's API and vLLM's metrics; lengths follow from the prompt by a hidden rule."""
    from swarmx.engine import EngineConstants
    from swarmx.sim.cluster import ReplicaSpec

    service = EngineConstants(token_s, batch_s, kv_s, prefill_s)
    try:
        from swarmx.adapters.mock_replica import HiddenRule, MockOptions, serve_mocks

        specs = [
            ReplicaSpec(
                f"r{i}", device=f"x{s}", slots=slots, speed=float(s), service=service, context_tokens=context,
                kv_capacity_tokens=kv_tokens, block_tokens=prefix_block,
            )
            for i, s in enumerate(speeds.split(","))
        ]  # fmt: skip
    except ImportError:
        raise BadInput(_EXTRA) from None
    except ValueError as problem:
        raise BadInput(f"no such replicas can be emulated (--speeds {speeds}): {problem}") from None
    if port + len(specs) - 1 > 65535:
        raise BadInput(
            f"--port {port} leaves no ports for {len(specs)} replicas; begin at {65536 - len(specs)} at most"
        )
    options = MockOptions(model, HiddenRule(mean_tokens, cv, rho2, seed), instant, longest_tokens=context)

    _allow_many_files()

    async def main() -> None:
        try:
            await serve_mocks(specs, options, host, port)
        except OSError as problem:
            raise BadInput(f"cannot listen on {host}:{port} and those after it ({problem}); name other ports") from None
        print(f"{len(specs)} replicas on {host}:{port}..{port + len(specs) - 1}", flush=True)
        await asyncio.Event().wait()

    _run(main)


def explain(
    wanted: Annotated[
        str,
        typer.Argument(metavar="ID|FILE", help="Id of a receipt (x-swarmx-decision), call or pool; or a file."),
    ],
    logs: Annotated[
        Path | None, typer.Option("--log", help="Log directory of a gateway, or a file of receipts.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Administration address of a running gateway.")] = None,
    token_env: Annotated[str, typer.Option(help="Environment variable with its token.")] = "SWARMX_ADMIN_TOKEN",
    as_json: AsJson = False,
) -> None:
    """Say why a call was started where it was and what else there was to choose, or why a pool was scaled."""
    from swarmx.commands.explained import ask_gateway, print_receipts, read_receipts

    if logs is None and url is None and Path(wanted).is_file():
        print_receipts(read_receipts(Path(wanted)), as_json)
        return
    if (logs is None) == (url is None):
        raise BadInput("explain needs a file of receipts, or one of --log DIRECTORY and --url http://HOST:PORT")
    if logs is not None and logs.is_file():
        receipts = read_receipts(logs, wanted)
    elif logs is not None:
        if not logs.is_dir():
            raise BadInput(f"--log {logs}: no such file or directory")
        from swarmx.adapters.gateway.receipts import find_receipt

        receipts = find_receipt(logs, wanted)
    else:
        receipts = ask_gateway(str(url), wanted, token_env)
    if not receipts:
        raise BadInput(f"no receipt, call or pool {wanted!r} there")
    print_receipts(receipts, as_json)


@config_app.command("check")
def config_check(config: ConfigPath, as_json: AsJson = False) -> None:
    """Read a configuration and say what it means; exit 2 with one sentence when it is wrong."""
    loaded = _load(config)
    if as_json:
        print(json.dumps(loaded.model_dump(mode="json"), indent=2))
        return
    for name, pool in loaded.model_pools.items():
        how = (pool.scheduler or loaded.scheduler).preset
        where = ", ".join(r.name for r in pool.replicas) or (pool.discover.kind if pool.discover else "none yet")
        print(f"pool {name}: {how} over {where}")
    print(f"mode {loaded.mode}, predictor {loaded.predictor.kind}, log {loaded.log.directory or 'off'}")


def _load(path: Path) -> Config:
    try:
        from swarmx.config import load_config
    except ImportError as problem:
        raise BadInput(f"{_EXTRA} ({problem})") from None
    return load_config(path)


def _print_key(tenant: str | None) -> None:
    from swarmx.adapters.gateway.access import new_key

    key, hashed = new_key()
    print(f"key (shown once): {key}")
    if tenant is None:
        print(f"server:\n  admin: {{token_sha256: {hashed}}}")
    else:
        print(f"server:\n  keys:\n    - {{tenant: {tenant}, sha256: {hashed}}}")


def _allow_many_files() -> None:
    """As many open files as the system lets this process have: a streamed call holds two connections for minutes."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run on uvloop where it is installed."""
    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run
    with contextlib.suppress(ImportError):
        from uvloop import run
    with contextlib.suppress(KeyboardInterrupt):
        run(main())
