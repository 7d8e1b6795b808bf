"""`swarmx <verb>`: exit 0 when all went well, 1 when a check failed, 2 for bad input with one clear sentence."""

from __future__ import annotations

import sys

import typer

from swarmx.errors import BadInput

app = typer.Typer(
    name="swarmx",
    help="Learned, distribution-aware, workflow-aware scheduling for agentic LLM serving.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root() -> None:
    """Learned, distribution-aware, workflow-aware scheduling for agentic LLM serving."""


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except BadInput as problem:
        print(f"swarmx: {problem}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
