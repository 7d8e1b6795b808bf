"""Runs Vidur's own replica scheduler on given requests. For the Python that has Vidur; `fidelity.py --vidur` calls it.

Reads {"requests": [[arrival s, prompt tokens, output tokens], ...], "constants": [a, b, c, p], "slots", "kv_tokens",
"chunk_tokens"} from standard input and writes {"ttft_s": [...], "latency_s": [...]}, in the order of the requests, to
the file named first.
Vidur's wheel has no profiles of devices, so the time of a batch is given: a + b·n + c·(KV tokens) for the decoding
requests and p seconds per prompt token; what is compared is queueing, batching, memory and preemption.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def main(answer: str) -> None:
    asked = json.load(sys.stdin)
    a, b, c, p = asked["constants"]
    from vidur.config import SimulationConfig
    from vidur.entities import Request
    from vidur.execution_time_predictor import ExecutionTimePredictorRegistry
    from vidur.metrics import MetricsStore
    from vidur.request_generator import RequestGeneratorRegistry
    from vidur.simulator import Simulator

    class Given:
        """Stands in for a trained predictor of execution times."""

        def get_execution_time(self, batch: Any, stage: int) -> Any:
            decoding = sum(1 for q in batch.num_q_tokens if q == 1)
            prompts = sum(q for q in batch.num_q_tokens if q > 1)
            held = sum(kv for q, kv in zip(batch.num_q_tokens, batch.num_kv_tokens, strict=True) if q == 1)
            seconds = p * prompts + ((a + b * decoding + c * held) if decoding else 0.0)
            return SimpleNamespace(total_time=seconds, model_time=seconds)

    block = 16
    requests = [Request(t, max(int(x), 2), max(int(y), 1)) for t, x, y in asked["requests"]]
    ExecutionTimePredictorRegistry.get = classmethod(lambda cls, *args, **named: Given())
    RequestGeneratorRegistry.get = classmethod(lambda cls, *args, **named: SimpleNamespace(generate=lambda: requests))
    for name in [n for n in vars(MetricsStore) if n.startswith("on_")]:
        setattr(MetricsStore, name, lambda self, *args, **named: None)
    MetricsStore.plot = lambda self: None
    with tempfile.TemporaryDirectory() as folder:
        sys.argv = [
            "vidur",
            "--metrics_config_output_dir",
            folder,
            "--cluster_config_num_replicas",
            "1",
            "--replica_scheduler_config_type",
            "vllm",
            "--vllm_scheduler_config_batch_size_cap",
            str(asked["slots"]),
            "--vllm_scheduler_config_max_tokens_in_batch",
            str(asked["chunk_tokens"]),
            "--replica_config_num_pipeline_stages",
            "1",
            "--replica_config_tensor_parallel_size",
            "1",
            "--no-metrics_config_enable_chrome_trace",
            "--cache_config_block_size",
            str(block),
            "--cache_config_num_blocks",
            str(asked["kv_tokens"] // block),
        ]
        Simulator(SimulationConfig.create_from_cli_args()).run()
    found = {
        "ttft_s": [r.prefill_completed_at - r.arrived_at for r in requests],
        "latency_s": [r.completed_at - r.arrived_at for r in requests],
    }
    Path(answer).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
