"""`swarmx <verb>`: exit 0 when all went well, 1 when a check failed, 2 for bad input with one clear sentence."""

from __future__ import annotations

import sys

import typer

from swarmx.commands import bench, evaluate, kubernetes, logs, record, serve, train
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


for verb in (evaluate.demo, evaluate.evaluate, evaluate.policies, train.train, train.predict):
    app.command()(verb)
for verb in (serve.serve, serve.mock_replica, serve.explain, kubernetes.endpoint_picker, bench.bench):
    app.command(verb.__name__.replace("_", "-"))(verb)
logs.log_app.command("record")(record.record_)
app.add_typer(logs.log_app, name="log")
app.add_typer(serve.config_app, name="config")


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except BadInput as problem:
        print(f"swarmx: {problem}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
