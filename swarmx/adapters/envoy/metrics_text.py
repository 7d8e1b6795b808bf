"""What a model server's metrics page says of its load: vLLM, SGLang and llama.cpp names, nothing else is read.

A page comes from another machine and may be anything: values that cannot be true are not taken.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred")
KV_SHARE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",
)
KV_TOKENS = ("sglang:max_total_num_tokens",)
CACHE_INFO = "vllm:cache_config_info"
MOST_CALLS = 1_000_000
_WANTED = (*RUNNING, *WAITING, *KV_SHARE, *KV_TOKENS, CACHE_INFO)
_SAMPLE = re.compile(rf"\n({'|'.join(_WANTED)})(?:\{{(.*)\}})?[ \t]+(\S+)")  # name, labels, value
_LABEL = re.compile(r'(block_size|num_gpu_blocks)="(\d{1,12})"')


@dataclass(frozen=True, slots=True)
class Load:
    """kv_share in [0, 1]; kv_capacity_tokens None when the page does not say"""

    running: int
    waiting: int
    kv_share: float = 0.0
    kv_capacity_tokens: int | None = None


def read_load(text: str) -> Load | None:
    """The load that a metrics page reports, summed over its engines; None without a believable number of calls."""
    sums: dict[str, float] = {}
    capacity = 0
    for match in _SAMPLE.finditer("\n" + text):
        value = _number(match[3])
        if value is None:
            return None
        if match[1] == CACHE_INFO:
            labels = {key: int(number) for key, number in _LABEL.findall(match[2] or "")}
            capacity += labels.get("block_size", 0) * labels.get("num_gpu_blocks", 0)
        elif match[1] in KV_SHARE:
            sums[match[1]] = max(sums.get(match[1], 0.0), value)
        else:
            sums[match[1]] = sums.get(match[1], 0.0) + value
    running, waiting = _first(sums, RUNNING), _first(sums, WAITING)
    if running is None or running > MOST_CALLS or (waiting or 0) > MOST_CALLS:
        return None
    capacity = capacity or int(_first(sums, KV_TOKENS) or 0)
    return Load(int(running), int(waiting or 0), min(_first(sums, KV_SHARE) or 0.0, 1.0), capacity or None)


def _first(sums: dict[str, float], names: tuple[str, ...]) -> float | None:
    return next((sums[name] for name in names if name in sums), None)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
