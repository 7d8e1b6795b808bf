"""CPU milliseconds of the encoder at 128 tokens, and of a whole prediction, on one thread with nothing cached.

The wall clock of a shared machine would measure the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from swarmx.predict.embed import TextEncoder
from swarmx.predict.runtime import Predictor
from swarmx.types import Call, CallRecord

TOKENS = 128


def timed(work: Callable[[int], object], times: int) -> np.ndarray:
    """CPU milliseconds of each of `times` runs, after five that are not counted."""
    out = []
    for i in range(times + 5):
        began = time.process_time()
        work(i)
        out.append(1e3 * (time.process_time() - began))
    return np.array(out[5:])


def encoder_speed(encoder: TextEncoder, directory: Path, quick: bool) -> dict[str, float]:
    """Graph alone, batch of one, 128 tokens; speedup_vs_eager against the same network in torch on one thread."""
    import onnx
    import torch

    times = 50 if quick else 300
    rng = np.random.default_rng(0)
    texts = rng.integers(1, encoder.tokenizer.get_vocab_size(), (times + 5, 1, TOKENS))
    mask = np.ones((1, TOKENS), np.float32)
    own = timed(lambda i: encoder.graph.run(None, {"ids": texts[i], "mask": mask}), times)
    graph = onnx.load(str(directory / "encoder.onnx"))
    found = {item.name: onnx.numpy_helper.to_array(item) for item in graph.graph.initializer}
    tables = [array for array in found.values() if array.dtype == np.int8 and array.ndim == 2]
    result = {"p50": float(np.quantile(own, 0.5)), "p99": float(np.quantile(own, 0.99))}
    if len(tables) != 1 or any("weight" in name for name in found):
        return result  # a transformer: its recipe measures it against the module that it exports
    from swarmx.predict.neural import TextNetwork, TokenTable

    table = TokenTable(tables[0].astype(np.float32))
    network, threads = TextNetwork(table).eval(), torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        eager = timed(lambda i: network(torch.from_numpy(texts[i]), torch.from_numpy(mask)), times)
    torch.set_num_threads(threads)
    return result | {"speedup_vs_eager": float(np.quantile(eager, 0.5) / result["p50"])}


def prediction_speed(records: Sequence[CallRecord], predictor: Predictor, quick: bool) -> dict[str, float]:
    """One call at a time, distinct prompts, text to grid; calls/s of one batch."""
    texts = sorted({record.prompt for record in records if record.prompt})[: 105 if quick else 505]
    calls = [Call(id=str(i), model=records[0].model, arrival_s=0.0, prompt=text) for i, text in enumerate(texts)]
    took = timed(lambda i: predictor.predict([calls[i]]), len(calls) - 5)
    many = [replace(call, prompt=f"{call.prompt} {i}") for i, call in enumerate(calls)]
    began = time.process_time()
    predictor.grids(many)
    seconds = time.process_time() - began
    return {"p50": float(np.quantile(took, 0.5)), "p99": float(np.quantile(took, 0.99)),
            "batch_calls_per_s": len(many) / seconds}  # fmt: skip
