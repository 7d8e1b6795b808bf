"""`swarmx log import|describe|check`: foreign files to logs, and what a log is good for."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

log_app = typer.Typer(help="Make, describe and check execution logs.", no_args_is_help=True)

LogPath = Annotated[
    Path,
    typer.Argument(help="A Parquet file as data/SCHEMA.md describes it, or a directory of them.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

IMPORT_EPILOG = """Examples:

swarmx log import calls.csv --map arrival_s=started:iso --map finished_s=+latency:ms --map output_tokens=completion
--map prompt=text --set model=llama-3-8b --out log.parquet

swarmx log import requests.jsonl --map arrival_s=ts:ns --map output_tokens=usage.completion_tokens --map
prompt_tokens=usage.prompt_tokens --map model=model --map workflow_id=session --out log.parquet

swarmx log import spans.json --format otel --out log.parquet
"""


@log_app.command("import", epilog=IMPORT_EPILOG)
def import_(
    source: Annotated[Path | None, typer.Argument(help="The file to read.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Log to write.", show_default=False)] = None,
    format: Annotated[str, typer.Option("--format", "-f", help="Source format; see --formats.")] = "columns",
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=PATH[:UNIT]",
            help="Where a field stands: a column, or keys joined by dots. UNIT of a time: s, ms, us, ns, iso. "
            "+PATH is a duration since arrival_s, -PATH (for arrival_s) one before finished_s.",
        ),
    ] = None,
    constants: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Value where the source has none.")
    ] = None,
    prompts: Annotated[
        Literal["keep", "hash", "drop"], typer.Option("--prompts", help="What to do with the text.")
    ] = "keep",
    estimate_tokens: Annotated[
        bool, typer.Option("--estimate-tokens", help="Count a token per 4 characters where the source counts none.")
    ] = False,
    formats: Annotated[bool, typer.Option("--formats", help="List the source formats and leave.")] = False,
    as_json: AsJson = False,
) -> None:
    """Turn a file of another format into a log. The earliest arrival becomes second 0; nothing else is changed.

    Fields and units: data/SCHEMA.md.
    """
    from swarmx.commands.log_tables import print_formats, print_imported
    from swarmx.errors import BadInput
    from swarmx.files import check_file
    from swarmx.logs.importing import import_log
    from swarmx.logs.options import ImportOptions, parse_constants, parse_map
    from swarmx.logs.table import write_log

    if formats:
        print_formats(as_json)
        return
    if source is None or out is None:
        raise BadInput("swarmx log import needs a SOURCE and --out LOG")
    check_file(out)
    options = ImportOptions(parse_map(columns or []), parse_constants(constants or []), estimate_tokens)
    imported = import_log(source, format, options, prompts)
    write_log(imported.records, out, imported.about)
    print_imported(imported, out, as_json)


@log_app.command("describe", epilog="Example: swarmx log describe log.parquet --json | jq .output_tokens")
def describe_(log: LogPath, as_json: AsJson = False) -> None:
    """Show what a log holds: load, lengths, latencies, workflow shapes, gaps, and what can be learned from it."""
    from swarmx.commands.log_tables import print_description
    from swarmx.logs.describe import describe
    from swarmx.logs.many import about_logs, read_logs

    description, about = describe(read_logs(log)), about_logs(log)
    if as_json:
        typer.echo(json.dumps({"log": str(log), "about": about, **asdict(description)}, indent=2))
    else:
        print_description(description, about, log)


@log_app.command("check", epilog="Example: swarmx log check log.parquet && swarmx train log.parquet --out model")
def check_(log: LogPath, as_json: AsJson = False) -> None:
    """Check a log for what would mislead. Exits with 1 when a check fails, with 2 when the file is no valid log."""
    from swarmx.commands.log_tables import print_checks
    from swarmx.logs.check import check_log
    from swarmx.logs.many import read_logs

    checks = check_log(read_logs(log))
    if as_json:
        typer.echo(json.dumps({"log": str(log), "checks": [asdict(c) for c in checks]}, indent=2))
    else:
        print_checks(checks)
    if any(c.outcome == "failed" for c in checks):
        raise typer.Exit(1)
