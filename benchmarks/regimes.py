"""Suites as tables of ratios to LED, or to another row, with every cell above 1.03 named.

    python benchmarks/regimes.py --suites batched,mispredict --seeds 2 --workflows 200 --out out/regimes

Outcomes are kept in the folder, so a run that was stopped goes on, and more seeds add to what is there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from swarmx.sim.suites.against_led import METRICS, NEVER_ABOVE, Against, against_led, violations
from swarmx.sim.suites.cells import FULL, LED, Cell, Plan
from swarmx.sim.suites.core import CORE_SUITES
from swarmx.sim.suites.made import Made
from swarmx.sim.suites.material import Material
from swarmx.sim.suites.outcome import Outcome
from swarmx.sim.suites.regime_map import Place, picture, places
from swarmx.sim.suites.run import run_cells

NOTHING = Material("made", (), {}, (), None, "")


def run(suite: Made, plan: Plan, folder: Path, processes: int, main_loads: bool) -> dict[Cell, Outcome]:
    """Every cell of a suite; main_loads leaves out all but the first load of a regime."""
    cells = suite.cells(NOTHING, plan)
    if main_loads:
        first = {r.name: r.loads[0] for r in suite.regimes}
        cells = [c for c in cells if c.load == first[c.regime]]
    begun, done = time.monotonic(), 0

    def say(title: str) -> None:
        nonlocal done
        done += 1
        if done % 20 == 0 or done == len(cells):
            print(f"{suite.name} {done}/{len(cells)} {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)

    return run_cells(suite, NOTHING, cells, folder, processes, say)


def table(rows: list[Against]) -> str:
    """One line per row: the six ratios, the TTFT P99, and the half-width of the workflow P99's interval."""
    lines = [
        "| regime | load | row | " + " | ".join(METRICS) + " | TTFT P99 | ± wf P99 |",
        "|---|--:|---|" + "--:|" * (len(METRICS) + 2),
    ]
    for row in rows:
        six = " | ".join(f"{c.ratio:.2f}" for c in row.six)
        last = row.six[-1]
        half = "–" if last.seeds < 2 else f"{(last.high - last.low) / 2:.2f}"
        lines.append(f"| {row.regime} | {row.load:g} | {row.name} | {six} | {row.ttft.ratio:.2f} | {half} |")
    return "\n".join(lines)


def summed(rows: list[Against]) -> str:
    """Per row name: worst of the six metrics, how many exceed the limit, geometric mean of the workflow P99."""
    lines = ["| row | worst of six | cells above 1.03 | workflow P99, geometric mean |", "|---|--:|--:|--:|"]
    for name in dict.fromkeys(r.name for r in rows):
        mine = [r for r in rows if r.name == name]
        worst = max(((c.ratio, r.regime, r.load, m) for r in mine for m, c in zip(METRICS, r.six, strict=True)))
        above = sum(c.ratio > NEVER_ABOVE for r in mine for c in r.six)
        mean = float(np.exp(np.mean([np.log(r.six[-1].ratio) for r in mine])))
        where = f"{worst[1]} {worst[2]:g}, {worst[3]}"
        lines.append(f"| {name} | {worst[0]:.2f} ({where}) | {above} of {6 * len(mine)} | {mean:.2f} |")
    return "\n".join(lines)


MARK = "<!-- what stands below is written by benchmarks/regimes.py -->"


def section(suite: Made, found: list[Against], plan: Plan) -> str:
    """A suite's part of a document."""
    named = [
        f"- {r.regime} {r.load:g} {r.name}: {metric} {c.ratio:.3f} [{c.low:.2f}, {c.high:.2f}]"
        for r, metric, c in violations([r for r in found if r.policy in ("push", "late")])
    ]
    size = f"{len(plan.seeds)} paired seeds, {round(plan.workflows * suite.share)} workflows each per 12 replicas"
    parts = [f"## {suite.name}", f"{suite.about[0].upper()}{suite.about[1:]}. {size}.", summed(found), table(found)]
    if named:
        parts += ["Cells of `push` and `late` above 1.03, point estimates with 95 % intervals:", "\n".join(named)]
    return "\n\n".join(parts) + "\n"


def write(path: Path, parts: list[str]) -> None:
    """Replace what stands below the mark; what stands above is kept."""
    head = path.read_text().split(MARK)[0] if path.exists() else f"# {path.stem.capitalize()}\n\n"
    command = "    python " + " ".join(sys.argv)
    path.write_text(f"{head}{MARK}\n\n{command}\n\n" + "\n".join(parts))


def main() -> None:
    args = parsed()
    plan = replace(FULL, seeds=tuple(range(args.seeds)), workflows=args.workflows)
    parts = []
    for name in args.suites.split(","):
        suite = CORE_SUITES[name]
        if args.policies:
            rows = tuple(args.policies.split(","))
            suite = replace(suite, policies=rows, short=rows)
        if args.regimes:
            suite = replace(suite, regimes=tuple(suite.regime(one) for one in args.regimes.split(",")))
        if args.loads:
            wanted = {float(load) for load in args.loads.split(",")}
            suite = replace(
                suite,
                regimes=tuple(replace(r, loads=tuple(x for x in r.loads if x in wanted)) for r in suite.regimes),
            )
        outcomes = run(suite, plan, args.out / "cells", args.processes, args.main_loads)
        found = against_led(outcomes, args.reference)
        parts.append(section(suite, found, plan))
        if name == "regime_map":
            drawn = places(outcomes)
            (args.out / "regime_map.svg").write_text(picture(drawn))
            parts[-1] = map_section(drawn, plan)
        (args.out / f"{name}.md").write_text(parts[-1])
        values = [{"row": r.name, "regime": r.regime, "load": r.load, "six": [c.ratio for c in r.six]} for r in found]
        (args.out / f"{name}.json").write_text(json.dumps(values))
        print(summed(found))
    if args.write:
        write(args.write, parts)


def map_section(drawn: list[Place], plan: Plan) -> str:
    """What the picture says, counted."""
    losing = sum(p.ratio.ratio > NEVER_ABOVE for p in drawn)
    gaining = sum(p.gains for p in drawn)
    size = f"{len(plan.seeds)} seeds, {round(plan.workflows * CORE_SUITES['regime_map'].share)} workflows"
    return (
        f"## regime_map\n\n![regime map](regime_map.svg)\n\nOf {len(drawn)} places ({size}) `late` gains in "
        f"{gaining}, is above the best simple policy by more than 3 % in {losing}, and makes no difference in the "
        f"others.\n"
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", default="batched,prefix,routers,mispredict,paper")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--workflows", type=int, default=FULL.workflows, help="300 and fewer are the quick plan")
    parser.add_argument("--policies", help="rows to run; default: those of each suite")
    parser.add_argument("--regimes", help="regimes to run; default: all of each suite")
    parser.add_argument("--loads", help="loads to run; default: all of each regime")
    parser.add_argument("--reference", default=LED, help="row that the others are ratios to")
    parser.add_argument("--main-loads", action="store_true", help="only the first load of each regime")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out/regimes"))
    parser.add_argument("--write", type=Path, help="document whose part below its mark is replaced")
    return parser.parse_args()


if __name__ == "__main__":
    main()
