"""What text encoders cost at 128 tokens on one core: python benchmarks/encoders.py [DIR ...] [--calls 300] [--json]

Each DIR holds an encoder (`swarmx.predict.encoders` makes them); without any, the shipped one is measured beside two
transformers of the Llama family with random weights, 0.5M and 5M parameters outside the table, fp32 and int8, and
beside torch eager on the same weights. Then whole predictions of the shipped model: fresh prompts, prompts that grow
by a turn, prompts that have been seen, the head alone, and latency at 50 calls/s on one core.

Times are CPU milliseconds of this process (and wall ones): other work on the machine moves those less. Latency at 50
calls/s is a queue of Poisson arrivals that are served for the measured CPU times (Lindley's recursion).
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from swarmx.predict.bundle import shipped
from swarmx.predict.embed import TextEncoder
from swarmx.predict.features import features
from swarmx.predict.runtime import Predictor
from swarmx.types import Call

TOKENS = 128
TEXT = (
    "plan the trip to seven museums in May and list what each of them costs , then book a table for 12 people near the "
    "river ; write a short letter about bees that explains why their number falls . translate it into French"
)
WORDS = TEXT.split()


def prose(rng: np.random.Generator, words: int) -> str:
    return " ".join(rng.choice(WORDS, words).tolist())


def times(work: Callable[[], object], calls: int) -> dict[str, float]:
    """CPU and wall milliseconds of one call, p50 and p99, after five that do not count."""
    for _ in range(5):
        work()
    cpu, wall = np.empty(calls), np.empty(calls)
    for i in range(calls):
        began, clock = time.process_time(), time.perf_counter()
        work()
        cpu[i], wall[i] = time.process_time() - began, time.perf_counter() - clock
    names = {"p50": (cpu, 0.5), "p99": (cpu, 0.99), "wall_p50": (wall, 0.5), "wall_p99": (wall, 0.99)}
    return {name: round(1e3 * float(np.quantile(x, q)), 4) for name, (x, q) in names.items()}


def encoder_times(directory: Path, calls: int) -> dict[str, float]:
    """Tokenising and the graph, for texts of at least 128 tokens that have not been seen."""
    encoder, rng = TextEncoder.load(directory, threads=1, cache_bytes=0), np.random.default_rng(0)
    texts = iter([prose(rng, 140) for _ in range(calls + 5)])
    return times(lambda: encoder.embed([next(texts)]), calls)


def transformers(out: Path, calls: int) -> dict[str, Any]:
    """A small and a larger variant of a Llama: torch eager, fp32 and int8 graphs."""
    import torch
    from transformers import LlamaConfig

    from swarmx.predict.bundle import read_json
    from swarmx.predict.encoders import text_network, write_encoder

    torch.set_num_threads(1)
    import gzip

    tokenizer = gzip.decompress((shipped() / "tokenizer.json.gz").read_bytes()).decode()
    vocabulary = len(json.loads(tokenizer)["model"]["vocab"]) + 64
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=576, intermediate_size=1536, num_attention_heads=9, num_key_value_heads=3,
        num_hidden_layers=30,
    )  # fmt: skip
    table = np.random.default_rng(0).normal(size=(vocabulary, 576)).astype(np.float32)
    found: dict[str, Any] = {}
    for name, params, layers in (("transformer 0.5M", 500_000, 2), ("transformer 5M", 5_000_000, 4)):
        network = text_network(table, config, params, layers).eval()
        ids, mask = torch.randint(0, 1000, (1, TOKENS)), torch.ones(1, TOKENS)
        with torch.no_grad():
            eager = times(lambda network=network, ids=ids, mask=mask: network(ids, mask), max(calls // 6, 20))
        for kind in ("fp32", "int8"):
            folder = out / f"{name} {kind}".replace(" ", "-")
            write_encoder(folder, network, tokenizer, {"name": name}, int8=kind == "int8")
            row = encoder_times(folder, max(calls // 3, 50))
            found[f"{name} {kind}"] = {
                **row, "eager_p50": eager["p50"], "speedup_vs_eager": round(eager["p50"] / row["p50"], 2),
                "width": read_json(folder / "encoder.json")["width"],
                "bytes": (folder / "encoder.onnx").stat().st_size,
            }  # fmt: skip
    return found


def table_vs_eager(calls: int) -> float:
    """CPU ms of the shipped table's mean in torch eager."""
    import torch

    from swarmx.predict.neural import TextNetwork, TokenTable

    network = TextNetwork(TokenTable(np.zeros((49_152, 96), np.float32) + 0.5)).eval()
    ids, mask = torch.randint(0, 1000, (1, TOKENS)), torch.ones(1, TOKENS)
    with torch.no_grad():
        return times(lambda: network(ids, mask), calls)["p50"]


def whole_predictions(calls: int) -> dict[str, Any]:
    """Fresh, growing and seen prompts of 128 tokens and more, the head alone, 50 calls/s.

    Making a fresh prompt is in its time, 0.02 ms.
    """
    predictor, rng = Predictor.load(shipped(), threads=1), np.random.default_rng(1)
    model = predictor.manifest["models"][0]

    def call(text: str) -> Call:
        return Call("c", model, 0.0, text, parent_id="p")

    fresh = (call(prose(rng, 140)) for _ in count())
    seen = call(prose(rng, 140))
    found = features([seen])
    assert predictor.encoder is not None
    embedding = predictor.encoder.embed(found.texts)
    out = {
        "fresh 128 tokens": times(lambda: predictor.predict([next(fresh)]), calls),
        "seen prompt": times(lambda: predictor.predict([seen]), calls),
        "head with calibration": times(lambda: predictor.from_features(found, embedding), calls),
        "growing conversation of 1,500 words": times(_growing(predictor, call, rng), calls),
        "batch of 16, each": {
            name: round(ms / 16, 4)
            for name, ms in times(lambda: predictor.predict([next(fresh) for _ in range(16)]), calls // 6).items()
        },
    }
    out["at 50 calls/s"] = _queued(predictor, [next(fresh) for _ in range(calls)], 50.0)
    return out


def _growing(predictor: Predictor, call: Callable[[str], Call], rng: np.random.Generator) -> Callable[[], object]:
    def prompts() -> Iterator[str]:
        while True:
            text = prose(rng, 1500)
            for _ in range(8):
                text += f"\nassistant: {prose(rng, 60)}\nuser: {prose(rng, 20)}"
                yield text

    texts = prompts()
    return lambda: predictor.predict([call(next(texts))])


def _queued(predictor: Predictor, calls: list[Call], rate: float) -> dict[str, float]:
    rng, wait, sojourn = np.random.default_rng(2), 0.0, []
    for one in calls:
        began = time.process_time()
        predictor.predict([one])
        served = time.process_time() - began
        sojourn.append(wait + served)
        wait = max(wait + served - float(rng.exponential(1 / rate)), 0.0)
    return {"p50": round(1e3 * float(np.median(sojourn)), 3), "p99": round(1e3 * float(np.quantile(sojourn, 0.99)), 3)}


def run(directories: list[Path], calls: int = 300) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for directory in directories:
        found[directory.name] = encoder_times(directory, calls)
    if not directories:
        eager = table_vs_eager(calls)
        row = encoder_times(shipped(), calls)
        ids = {"eager_p50": eager, "note": "the p50 has the tokenising in it, eager has not"}
        found["default"] = {**row, **ids}
        with tempfile.TemporaryDirectory() as folder:
            found |= transformers(Path(folder), calls)
    found["predictions of the shipped model"] = whole_predictions(calls)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("directories", nargs="*", type=Path)
    options.add_argument("--calls", type=int, default=300)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    found = run(chosen.directories, chosen.calls)
    print(json.dumps(found) if chosen.json else json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
