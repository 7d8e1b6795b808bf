"""`swarmx <verb>`: exit 0 when all went well, 1 when a check failed, 2 for bad input with one clear sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from swarmx.commands import adapt, bench, evaluate, kubernetes, logs, predict, record, replay, serve, train
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


VERBS: tuple[Callable[..., None], ...] = (
    evaluate.demo,
    evaluate.evaluate,
    evaluate.policies,
    train.train,
    predict.predict,
    adapt.adapt,
    serve.serve,
    serve.mock_replica,
    serve.explain,
    replay.replay,
    kubernetes.endpoint_picker,
    kubernetes.external_scaler,
    kubernetes.serve_scaler,
    bench.bench,
)
for verb in VERBS:
    app.command(verb.__name__.replace("_", "-"))(verb)
logs.log_app.command("record", epilog=record.RECORD_EPILOG)(record.record_)
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
