"""What vLLM, SGLang and llama.cpp say of their load, read from their Prometheus metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator

from swarmx.adapters.gateway.replica import Observed

RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred")
KV_SHARE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",
)
CACHE_INFO = "vllm:cache_config_info"
KV_CAPACITY = ("sglang:max_total_num_tokens",)
_line = re.compile(r"^([a-zA-Z_:][\w:]*)(\{.*\})?\s+([-+\w.]+)(?:\s+\d+)?$")
_label = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of every line of a Prometheus exposition that concerns load; others are skipped."""
    for line in text.splitlines():
        if not line.startswith(("vllm:", "sglang:", "llamacpp:")):
            continue
        match = _line.match(line)
        if match is None:
            continue
        try:
            value = float(match.group(3))
        except ValueError:
            continue
        yield match.group(1), dict(_label.findall(match.group(2) or "")), value


def read_metrics(text: str, last: Observed, ours: int, now: float) -> Observed | None:
    """A fresh observation, None when the text has none. Several engines behind one address are added up.

    ours : calls that this gateway had there, the most while the metrics were on their way

    Slots are learned from a queue: while calls wait, as many run as can.
    """
    running = waiting = 0.0
    shares: list[float] = []
    capacity, known = last.kv_capacity_tokens, False
    for name, labels, value in samples(text):
        if name in RUNNING:
            running, known = running + value, True
        elif name in WAITING:
            waiting += value
        elif name in KV_SHARE:
            shares.append(value)
        elif name in KV_CAPACITY:
            capacity = int(value)
        elif name == CACHE_INFO:
            capacity = _capacity(labels) or capacity
    if not known:
        return None
    slots = last.slots
    if waiting > 0 and running > 0:
        slots = int(running) if slots is None else max(1, round(0.5 * slots + 0.5 * running))
    share = max(shares, default=0.0)
    others = max(0, int(running + waiting) - ours)
    return Observed(now, int(running), int(waiting), others, share, capacity, last.context_tokens, slots)


def _capacity(labels: dict[str, str]) -> int | None:
    blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
    return int(blocks) * int(size) if blocks.isdigit() and size.isdigit() and int(blocks) * int(size) > 0 else None
