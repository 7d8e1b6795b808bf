"""Public logs as `CallRecord`s for the predictor benchmark; each loader says what it keeps.

The folders are not part of the project: pass the directory that holds `bfcl_multi_turn_vllm/` and `bfcl/`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq

from swarmx.types import CallRecord


def _group(query_id: str) -> str:
    """`live_*` ids are a-g-v: one g, one tool list; `multi_turn_*_k`: one k, one scenario."""
    category, _, tail = query_id.rpartition("_")
    if category.startswith("multi_turn"):
        return f"multi_turn/{tail}"
    found = re.match(r"\d+-(\d+)-\d+$", tail)
    return f"{category}/{found.group(1)}" if found else query_id


def vllm_single(folder: Path, live: bool = True, model: str = "gpt-oss-120b") -> list[CallRecord]:
    """Single calls of gpt-oss on vLLM: one record per (run, query); type is the benchmark's category."""
    prompts = {p["query_id"]: p for p in pq.read_table(folder / "bfcl_multi_turn_vllm" / "prompts.parquet").to_pylist()}
    records = []
    for run in pq.read_table(folder / "bfcl_multi_turn_vllm" / "runs.parquet").to_pylist():
        category = run["category"]
        if category.startswith("multi_turn") or run["model"] != model or category.startswith("live") != live:
            continue
        prompt = prompts.get(run["query_id"])
        if prompt is None:
            continue
        records.append(
            CallRecord(
                call_id=f"{run['run']}/{run['query_id']}", model=run["model"], arrival_s=0.0, status="ok",
                type=category, prompt=prompt["turn_prompts"][0], prompt_group=_group(run["query_id"]),
                prompt_tokens=run["total_input_tokens"], output_tokens=run["total_output_tokens"],
                dispatched_s=0.0, first_token_s=0.0, finished_s=run["total_latency_s"], device="unknown",
            )
        )  # fmt: skip
    return records


def vllm_workflows(folder: Path, model: str = "gpt-oss-120b") -> list[CallRecord]:
    """Multi-turn episodes of gpt-oss on vLLM: every step a call, its prompt the user turns known by then."""
    prompts = {p["query_id"]: p for p in pq.read_table(folder / "bfcl_multi_turn_vllm" / "prompts.parquet").to_pylist()}
    records = []
    for run in pq.read_table(folder / "bfcl_multi_turn_vllm" / "runs.parquet").to_pylist():
        prompt = prompts.get(run["query_id"])
        if not run["category"].startswith("multi_turn") or run["model"] != model or prompt is None:
            continue
        workflow, now, parent = f"{run['run']}/{run['query_id']}", 0.0, None
        for turn, (inputs, outputs, seconds) in enumerate(
            zip(run["input_tokens"], run["output_tokens"], run["latency_s"], strict=True)
        ):
            for step, (n_in, n_out, s) in enumerate(zip(inputs, outputs, seconds, strict=True)):
                call = f"{workflow}/{turn}.{step}"
                records.append(
                    CallRecord(
                        call_id=call, model=run["model"], arrival_s=now, status="ok", workflow_id=workflow,
                        parent_id=parent, workflow_arrival_s=0.0, type=run["category"],
                        prompt="\n".join(prompt["turn_prompts"][: turn + 1]), prompt_group=_group(run["query_id"]),
                        prompt_tokens=n_in, output_tokens=n_out, dispatched_s=now, first_token_s=now,
                        finished_s=now + s, device="unknown",
                    )
                )  # fmt: skip
                parent, now = call, now + s
    return records
