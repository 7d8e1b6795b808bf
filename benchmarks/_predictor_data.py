"""Public logs as `CallRecord`s for the predictor benchmark; each loader says what it keeps.

The logs are not part of the project. A name may be followed by `:DIR`, the directory that holds `bfcl/` and
`bfcl_multi_turn_vllm/`; else the environment variable SWARMX_PUBLIC_LOGS names it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from swarmx.errors import BadInput
from swarmx.predict.tools import with_tools
from swarmx.types import CallRecord

ROOT = Path(__file__).resolve().parent.parent
BFCL_ENDPOINTS = (
    "claude-3-opus-20240229", "claude-3-5-sonnet-20240620", "gpt-4o-2024-08-06", "gpt-4o-2024-08-06-FC",
    "gpt-3.5-turbo-0125", "mistral-large-2402-FC-Any", "gemini-1.5-pro-preview-0514", "open-mistral-nemo-2407",
)  # fmt: skip


def load(source: str) -> list[CallRecord]:
    """Records of the log that ships, of a Parquet log, or of a public one. Raises BadInput when it is not there."""
    name, _, folder = source.partition(":")
    loaders: dict[str, Callable[[Path], list[CallRecord]]] = {
        "bfcl": bfcl,
        "bfcl_multi_turn_vllm": vllm_single,
        "bfcl_multi_turn_vllm_calls": lambda folder: vllm_single(folder, live=None),
        "bfcl_multi_turn_vllm_steps": vllm_roots,
        "bfcl_multi_turn_vllm_turn": lambda folder: vllm_roots(folder, turn=True),
    }
    if name in loaders:
        return loaders[name](_home(name, folder))
    from swarmx.logs.table import read_log

    return read_log(ROOT / "data" / "execution_log.parquet" if source == "shipped" else Path(source))


def scored(source: str, call: CallRecord) -> bool:
    """Whether a log's call is one that is asked about; the others are learned from alone."""
    return not source.startswith("bfcl_multi_turn_vllm_calls") or str(call.type).startswith("live")


def _home(name: str, folder: str) -> Path:
    places = [Path(folder)] if folder else [Path(os.environ.get("SWARMX_PUBLIC_LOGS", ROOT.parent / "shared" / "data"))]
    for place in places:
        if (place / ("bfcl_multi_turn_vllm" if name.startswith("bfcl_multi_turn_vllm") else name)).is_dir():
            return place
    raise BadInput(f"{places[0]} holds no {name}; give {name}:DIR, or its directory in SWARMX_PUBLIC_LOGS")


class Links:
    """Groups of rows that share anything: the smallest sets closed under every link."""

    def __init__(self) -> None:
        self.above: dict[str, str] = {}

    def of(self, key: str) -> str:
        above = self.above.setdefault(key, key)
        while above != self.above[above]:
            self.above[key] = above = self.above[above]
        return above

    def link(self, keys: Iterable[str]) -> None:
        first, *rest = (self.of(key) for key in keys)
        for other in rest:
            self.above[self.of(other)] = self.of(first)


def _name(query_id: str) -> str:
    """`live_*` ids are a-g-v: one g, one tool list; `multi_turn_*_k`: one k, one scenario."""
    category, _, tail = query_id.rpartition("_")
    if category.startswith("multi_turn"):
        return f"multi_turn/{tail}"
    found = re.match(r"\d+-(\d+)-\d+$", tail)
    return f"{category}/{found.group(1)}" if found else query_id


def _groups(prompts: Sequence[Mapping[str, Any]], text: str) -> dict[str, str]:
    """Group of each query: those that share a name, a text or a list of tools are one. text : its field"""
    links = Links()
    for prompt in prompts:
        query = str(prompt["query_id"])
        keys = [f"name {_name(query)}", f"text {prompt[text]}"]
        if len(prompt["functions_json"] or "") > 2:
            keys.append(f"tools {prompt['functions_json']}")
        links.link(keys)
    return {str(prompt["query_id"]): links.of(f"name {_name(str(prompt['query_id']))}")[:60] for prompt in prompts}


def _vllm(folder: Path, model: str) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    home = folder / "bfcl_multi_turn_vllm"
    prompts = {p["query_id"]: p for p in pq.read_table(home / "prompts.parquet").to_pylist()}
    runs = pq.read_table(home / "runs.parquet").to_pylist()
    return prompts, [run for run in runs if run["model"] == model and run["query_id"] in prompts]


def _asked(prompt: Mapping[str, Any]) -> str:
    """First user text with the tools in front, as an adapter gives a request."""
    import json

    tools = json.loads(prompt["functions_json"] or "[]") or [{"name": name} for name in prompt["involved_classes"]]
    asked = with_tools(prompt["turn_prompts"][0], tools)
    assert isinstance(asked, str)
    return asked


def vllm_single(folder: Path, live: bool | None = True, model: str = "gpt-oss-120b") -> list[CallRecord]:
    """Single calls of gpt-oss on vLLM, with None live and others: one record per (run, query); type is the category."""
    prompts, runs = _vllm(folder, model)
    wanted = [run for run in runs if live is None or run["category"].startswith("live") == live]
    wanted = [run for run in wanted if not run["category"].startswith("multi_turn")]
    chosen = [
        prompts[query] | {"text": prompts[query]["turn_prompts"][0]} for query in {r["query_id"]: 0 for r in wanted}
    ]
    group, asked = _groups(chosen, "text"), {str(p["query_id"]): _asked(p) for p in chosen}
    return [
        CallRecord(
            call_id=f"{run['run']}/{run['query_id']}", model=run["model"], arrival_s=0.0, status="ok",
            type=run["category"], prompt=asked[run["query_id"]], prompt_group=group[run["query_id"]],
            prompt_tokens=run["total_input_tokens"], output_tokens=run["total_output_tokens"],
            dispatched_s=0.0, first_token_s=0.0, finished_s=run["total_latency_s"], device="unknown",
        )
        for run in wanted
    ]  # fmt: skip


def vllm_roots(folder: Path, model: str = "gpt-oss-120b", turn: bool = False) -> list[CallRecord]:
    """The first call of each multi-turn episode, with the first turn's text alone; what is counted in place of output
    tokens is the calls of the whole episode, the target of a workflow's root; with `turn`, those until the user speaks
    again. How often the user will speak is not in the first text, and decides most of the episode's length."""
    prompts, runs = _vllm(folder, model)
    wanted = [run for run in runs if run["category"].startswith("multi_turn")]
    return [
        CallRecord(
            call_id=f"{run['run']}/{run['query_id']}", model=run["model"], arrival_s=0.0, status="ok",
            type=run["category"], prompt=_asked(prompts[run["query_id"]]), prompt_group=_name(run["query_id"]),
            prompt_tokens=run["input_tokens"][0][0], output_tokens=run["steps_per_turn"][0] if turn else run["n_steps"],
            dispatched_s=0.0, first_token_s=0.0, finished_s=run["total_latency_s"], device="unknown",
        )
        for run in wanted
    ]  # fmt: skip


def vllm_workflows(folder: Path, model: str = "gpt-oss-120b") -> list[CallRecord]:
    """Multi-turn episodes of gpt-oss on vLLM: every step a call, its prompt the user turns known by then."""
    prompts, runs = _vllm(folder, model)
    records = []
    for run in runs:
        if not run["category"].startswith("multi_turn"):
            continue
        prompt = prompts[run["query_id"]]
        workflow, now, parent = f"{run['run']}/{run['query_id']}", 0.0, None
        steps = zip(run["input_tokens"], run["output_tokens"], run["latency_s"], strict=True)
        for turn, (inputs, outputs, seconds) in enumerate(steps):
            for step, (n_in, n_out, s) in enumerate(zip(inputs, outputs, seconds, strict=True)):
                call = f"{workflow}/{turn}.{step}"
                records.append(
                    CallRecord(
                        call_id=call, model=run["model"], arrival_s=now, status="ok", workflow_id=workflow,
                        parent_id=parent, workflow_arrival_s=0.0, type=run["category"],
                        prompt="\n".join(prompt["turn_prompts"][: turn + 1]), prompt_group=_name(run["query_id"]),
                        prompt_tokens=n_in, output_tokens=n_out, dispatched_s=now, first_token_s=now,
                        finished_s=now + s, device="unknown",
                    )
                )  # fmt: skip
                parent, now = call, now + s
    return records


def bfcl(folder: Path, endpoints: Sequence[str] | None = BFCL_ENDPOINTS) -> list[CallRecord]:
    """Single function calls of the leaderboard's endpoints, each query's latest run; type is the category.

    endpoints : wanted, those that are not in the folder are passed over; None for all
    """
    home = folder / "bfcl"
    prompts = {p["query_id"]: p for p in pq.read_table(home / "single_turn_prompts.parquet").to_pylist()}
    group = _groups(list(prompts.values()), "prompt")
    asked = {q: _asked(p | {"turn_prompts": [p["prompt"]], "involved_classes": []}) for q, p in prompts.items()}
    latest: dict[tuple[str, str], dict[str, Any]] = {}
    for run in pq.read_table(home / "single_turn_runs.parquet").to_pylist():
        if run["query_id"] not in prompts or (endpoints is not None and run["model"] not in endpoints):
            continue
        key = run["model"], run["query_id"]
        if key not in latest or run["run_date"] > latest[key]["run_date"]:
            latest[key] = run
    return [
        CallRecord(
            call_id=f"{run['model']}/{run['query_id']}", model=run["model"], arrival_s=0.0, status="ok",
            type=run["category"], prompt=asked[run["query_id"]], prompt_group=group[run["query_id"]],
            prompt_tokens=run["input_tokens"], output_tokens=run["output_tokens"],
            dispatched_s=0.0, first_token_s=0.0, finished_s=run["latency_s"], device=run["model"],
        )
        for run in latest.values()
    ]  # fmt: skip
