"""Imports point down, and importing the library stays cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "swarmx"
# top first; a module may import its own layer and those below
LAYERS = [
    {"cli", "commands", "__main__"},
    {"config"},
    {"adapters", "sim", "presets", "client", "journal", "shard"},
    {"options"},
    {"scheduler", "scaler", "explain", "intake", "late", "combination", "interruptions", "observers", "placing"},
    {
        "routing",
        "ordering",
        "scaling",
        "admission",
        "preemption",
        "migration",
        "fairness",
        "inheritance",
        "sharing",
        "pacing",
    }
    | {"guard", "trust", "drift", "adapt", "predict", "logs", "demand"},
    {"callgraph", "inferred_graph"}
    | {
        "state",
        "waiting",
        "usage",
        "silence",
        "engine",
        "prefix",
        "kernel",
        "kernel_walk",
        "kernel_trust",
        "kernel_book",
        "nonnegative",
        "learned",
        "reserve",
    },
    {"types", "errors", "files", "children"},
    {"quantiles"},
]
HEAVY = {
    "torch": {"predict"},
    "transformers": {"predict"},
    "sklearn": {"predict"},
    "ray": {"adapters"},
    "mlflow": {"predict", "adapt", "logs"},
    "kubernetes": set[str](),
}


def layer_of(part: str) -> int:
    for depth, names in enumerate(LAYERS):
        if part in names:
            return depth
    raise AssertionError(f"swarmx/{part} stands in no layer; put it into tests/test_layers.py")


def imports_of(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += names if node.module == "swarmx" else [node.module]
    return found


MODULES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    own = path.relative_to(ROOT).with_suffix("").parts[0]
    for name in imports_of(path):
        top, _, rest = name.partition(".")
        if top == "swarmx" and rest:
            part = rest.split(".")[0]
            if (part != "__version__" and (ROOT / part).exists()) or (ROOT / f"{part}.py").exists():
                assert layer_of(own) <= layer_of(part), f"{own} imports {part}, which stands above it"
        if top in HEAVY:
            assert own in HEAVY[top], f"{own} must not import {top}"


def test_importing_the_library_loads_nothing_heavy_and_is_quick() -> None:
    program = (
        "import sys, time; t = time.perf_counter(); import swarmx; t = time.perf_counter() - t;"
        "print(t, [m for m in ('torch', 'ray', 'mlflow', 'numba', 'sklearn', 'pyarrow') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    seconds, loaded = answer.split(" ", 1)
    assert loaded.strip() == "[]"
    assert float(seconds) < 0.3
