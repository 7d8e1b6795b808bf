"""`swarmx bench NAME`: the measurements behind the documented figures, each a module of benchmarks/ in the checkout."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import swarmx
from swarmx.errors import BadInput

HOME = Path(swarmx.__file__).parents[1] / "benchmarks"


def bench(
    name: Annotated[str, typer.Argument(help="What to measure; `swarmx bench list` names what there is.")],
    quick: Annotated[bool, typer.Option(help="Fewer repetitions and seeds, under a minute where possible.")] = False,
    data: Annotated[str | None, typer.Option(help="Data set, for benchmarks that have several.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON alone.")] = False,
) -> None:
    """Run one benchmark: decision, simulator, predictor, ordering, adaptation, scaling, gateway, peers, ray, picker."""
    known = sorted(path.stem for path in HOME.glob("*.py") if not path.stem.startswith("_") and _has_run(path))
    if name == "list":
        print("\n".join(known))
        return
    if name not in known:
        raise BadInput(f"unknown benchmark {name!r}; {HOME} has {', '.join(known) or 'none: run from a checkout'}")
    run = _run_of(name)
    if data is not None and "data" not in inspect.signature(run).parameters:
        raise BadInput(f"the benchmark {name!r} has one data set; leave --data out")
    options: dict[str, Any] = {"quick": quick} | ({} if data is None else {"data": data})
    result = run(**options)
    print(json.dumps(result, indent=None if as_json else 2))


def _has_run(path: Path) -> bool:
    """Whether a module has a `run(quick, ...)`; the others are started by themselves."""
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return any(f.name == "run" and "quick" in [given.arg for given in f.args.args] for f in functions)


def _run_of(name: str) -> Callable[..., dict[str, Any]]:
    """The `run(quick, ...)` of a benchmark module."""
    spec = importlib.util.spec_from_file_location(f"swarmx_bench_{name}", HOME / f"{name}.py")
    if spec is None or spec.loader is None:
        raise BadInput(f"{HOME / name}.py cannot be loaded")
    sys.path.insert(0, str(HOME))  # where its helpers are
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    run: Callable[..., dict[str, Any]] = module.run
    return run
