"""Prompts that repeat: agent sessions whose prompt grows, and a recorded conversation trace where it is at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from swarmx.sim.suites.cells import LED
from swarmx.sim.suites.made import HET, HOM, Made, Regime
from swarmx.sim.synthetic import Sessions, Sizes, agents
from swarmx.sim.workload import SimCall, SimWorkflow

TRACES = Path(__file__).parents[4] / "shared" / "data" / "arrivals"  # a folder of public traces beside the checkout
TRACE_BLOCK = 512
SHAPE = Sessions()
# on average 8,600 tokens in and 182 out, as published of Mooncake's tool and agent trace
TOOLS = Sessions(system_tokens=5000, input_tokens=620.0)
SHORT_ANSWERS = Sizes(mean_tokens=182.0)


@cache
def trace(path: Path) -> tuple[SimWorkflow, ...]:
    """Calls of a Mooncake conversation trace as single-call workflows, prompts hashed in blocks of 512 tokens."""
    from pyarrow.parquet import read_table

    rows = read_table(path).to_pylist()
    return tuple(
        SimWorkflow(
            f"m{i}", 0.0,
            (
                SimCall(
                    "call", float(max(row["output_tokens"], 1)), type="chat", prompt_tokens=row["input_tokens"],
                    prefix_blocks=tuple(row["hash_ids"][: row["input_tokens"] // TRACE_BLOCK]), group="chat",
                    median_tokens=float(max(row["output_tokens"], 1)), sigma=0.0,
                ),
            ),
            kind="conversation",
        )
        for i, row in enumerate(rows)
    )  # fmt: skip


def conversation(n: int, sizes: Sizes, rng: np.random.Generator, path: Path = TRACES) -> list[SimWorkflow]:
    """n consecutive calls of the trace from a random place on. `sizes` is not used: lengths are the recorded ones."""
    every = trace(path)
    first = int(rng.integers(max(len(every) - n, 1)))
    return list(every[first : first + n])


def regimes(folder: Path = TRACES) -> tuple[Regime, ...]:
    """Chatting and tool-calling agents always; the conversation where its trace lies in the folder.

    Load counts every prompt in full. With what LED happens to find in caches, it is full at about 1.2 with the chatting
    agents and 1.7 with the others.
    """
    made = Regime("agents_hom", (0.8, 1.1), HOM, 32, 64_000, make=agents, block_tokens=SHAPE.block_tokens)
    make_tools = partial(agents, shape=TOOLS)
    tools = Regime(
        "tools_hom", (1.1, 0.8, 1.5), HOM, 32, 512_000, SHORT_ANSWERS, make=make_tools, block_tokens=TOOLS.block_tokens
    )
    found: list[Regime] = [
        made, replace(made, name="agents_het", speeds=HET), tools, replace(tools, name="tools_het", speeds=HET)
    ]  # fmt: skip
    path = folder / "mooncake_conversation.parquet"
    if path.exists():
        make = partial(conversation, path=path)
        hom = Regime("mooncake_hom", (0.8, 1.0), HOM, 32, 512_000, make=make, block_tokens=TRACE_BLOCK, per_workflow=8)
        found += [hom, replace(hom, name="mooncake_het", speeds=HET)]
    return tuple(found)


def suite_of(found: Sequence[Regime]) -> Made:
    return Made(
        "prefix",
        "growing prompts of agent sessions, and a conversation trace where present: prefix caches of engines",
        tuple(found),
        (
            "power_of_two", "round_robin", LED, "cache_aware", "prefix_affinity", "session_affinity", "llmd_predicted",
            "least_expected", "push", "late", "late_2p", "late_half",
        ),
        (LED, "cache_aware", "late", "late_2p"),
        arms=("calibrated", "none"),
        share=0.5,
    )  # fmt: skip


PREFIX = suite_of(regimes())
