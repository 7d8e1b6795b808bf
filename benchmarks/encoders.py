"""What text encoders cost at 128 tokens on one core: python benchmarks/encoders.py [DIR ...] [--calls 300] [--json]

Each DIR holds an encoder (`swarmx.predict.encoders` makes them); without any, the shipped one is measured beside two
transformers of the Llama family with random weights, 0.5M and 5M parameters outside the table, and MiniLM where it is
installed, fp32 and int8, and beside torch eager on the same weights. `graph_p50` is the ONNX graph on 128 token ids,
which is what eager is held against; p50 has the tokenising in it. Then whole predictions of the shipped model: fresh
prompts, prompts that grow by a turn, that have been seen, the head alone, and latency at 50 calls/s on one core.

Times are CPU milliseconds of this process (and wall ones): other work on the machine moves those less. Latency at 50
calls/s is a queue of Poisson arrivals that are served for the measured CPU times (Lindley's recursion).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from swarmx.predict.bundle import shipped
from swarmx.predict.embed import TextEncoder
from swarmx.predict.features import Features, features
from swarmx.predict.runtime import Predictor
from swarmx.predict.text import clip
from swarmx.predict.tools import with_tools
from swarmx.types import Call

TOKENS = 128
TEXT = (
    "plan the trip to seven museums in May and list what each of them costs , then book a table for 12 people near the "
    "river ; write a short letter about bees that explains why their number falls . translate it into French"
)
WORDS = TEXT.split()


def prose(rng: np.random.Generator, words: int) -> str:
    return " ".join(rng.choice(WORDS, words).tolist())


def times(work: Callable[..., object], calls: int, given: Callable[[], object] | None = None) -> dict[str, float]:
    """CPU and wall milliseconds of one call, p50 and p99, after five that do not count.

    given : makes what each call works on, which is not timed
    """
    cpu, wall = np.empty(calls + 5), np.empty(calls + 5)
    for i in range(calls + 5):
        arguments = () if given is None else (given(),)
        began, clock = time.process_time(), time.perf_counter()
        work(*arguments)
        cpu[i], wall[i] = time.process_time() - began, time.perf_counter() - clock
    names = {"p50": (cpu, 0.5), "p99": (cpu, 0.99), "wall_p50": (wall, 0.5), "wall_p99": (wall, 0.99)}
    return {name: round(1e3 * float(np.quantile(x[5:], q)), 4) for name, (x, q) in names.items()}


def encoder_times(directory: Path, calls: int) -> dict[str, float]:
    """Tokenising and the graph, for texts of at least 128 tokens that have not been seen; the graph alone."""
    encoder, rng = TextEncoder.load(directory, threads=1, cache_bytes=0), np.random.default_rng(0)
    ids, mask = rng.integers(1, 1000, (1, TOKENS)), np.ones((1, TOKENS), np.float32)
    whole = times(encoder.embed, calls, lambda: [prose(rng, 140)])
    return whole | {"graph_p50": times(lambda: encoder.graph.run(None, {"ids": ids, "mask": mask}), calls)["p50"]}


def eager_times(network: Any, calls: int) -> float:
    """CPU ms p50 of the torch module on 128 token ids, one thread."""
    import torch

    torch.set_num_threads(1)
    ids, mask = torch.randint(0, 1000, (1, TOKENS)), torch.ones(1, TOKENS)
    with torch.no_grad():
        return times(lambda: network(ids, mask), calls)["p50"]


def both_kinds(out: Path, name: str, network: Any, tokenizer: str, calls: int) -> dict[str, Any]:
    """fp32 and int8 graphs of one network beside torch eager."""
    from swarmx.predict.encoders import write_encoder

    eager, found = eager_times(network, max(calls // 6, 20)), {}
    for kind in ("fp32", "int8"):
        folder = out / f"{name} {kind}".replace(" ", "-")
        write_encoder(folder, network, tokenizer, {"name": name}, int8=kind == "int8")
        row = encoder_times(folder, max(calls // 3, 50))
        found[f"{name} {kind}"] = {
            **row, "eager_p50": eager, "speedup_vs_eager": round(eager / row["graph_p50"], 2),
            "width": network.width, "bytes": (folder / "encoder.onnx").stat().st_size,
        }  # fmt: skip
    return found


def transformers(out: Path, calls: int) -> dict[str, Any]:
    """A small and a larger variant of a Llama."""
    from transformers import LlamaConfig

    from swarmx.predict.encoders import text_network

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
        found |= both_kinds(out, name, network, tokenizer, calls)
    return found


def minilm(out: Path, calls: int) -> dict[str, Any]:
    """MiniLM as `swarmx train --encoder minilm` makes it; nothing where its package is not installed."""
    from transformers import AutoModel

    from swarmx.errors import BadInput
    from swarmx.predict.encoders import SentenceNetwork, minilm_folder, write_minilm

    try:
        model = AutoModel.from_pretrained(str(minilm_folder()), attn_implementation="eager").eval()
    except BadInput:
        return {}
    eager, found = eager_times(SentenceNetwork(model, int(model.config.hidden_size)), max(calls // 10, 20)), {}
    for kind in ("fp32", "int8"):
        write_minilm(out / kind, int8=kind == "int8")
        row = encoder_times(out / kind, max(calls // 6, 30))
        row |= {"eager_p50": eager, "speedup_vs_eager": round(eager / row["graph_p50"], 2)}
        found[f"minilm {kind}"] = row | tool_times(out / kind, max(calls // 6, 30))
    return found


def tool_times(directory: Path, calls: int) -> dict[str, float]:
    """CPU ms p50 of a known text with one tool that has not been seen, of some 30 words, and with four known ones."""
    encoder, rng = TextEncoder.load(directory, threads=1), np.random.default_rng(3)

    def beside(tools: list[dict[str, Any]]) -> Features:
        return features([Call("c", "m", 0.0, with_tools("user: Book a table near the river.", tools))])

    def tool() -> dict[str, Any]:
        what = {"type": "object", "properties": {word: {"type": "string"} for word in prose(rng, 8).split()}}
        return {"type": "function", "function": {"name": "book", "description": prose(rng, 24), "parameters": what}}

    known = beside([tool() for _ in range(4)])
    new = times(encoder.of, calls, lambda: beside([tool()]))["p50"]
    return {"new_tool_p50": new, "known_tools_p50": times(encoder.of, calls, lambda: known)["p50"]}


def table_vs_eager(calls: int) -> float:
    """CPU ms of the shipped table's mean in torch eager."""
    from swarmx.predict.neural import TextNetwork, TokenTable

    return eager_times(TextNetwork(TokenTable(np.zeros((49_152, 96), np.float32) + 0.5)).eval(), calls)


def whole_predictions(calls: int) -> dict[str, Any]:
    """Fresh, growing and seen prompts of 128 tokens and more, the head alone, 50 calls/s."""
    predictor, rng = Predictor.load(shipped(), threads=1), np.random.default_rng(1)
    assert predictor.encoder is not None
    embed, model = predictor.encoder.embed, predictor.manifest["models"][0]

    def call(words: int) -> list[Call]:
        return [Call("c", model, 0.0, prose(rng, words), parent_id="p")]

    seen = call(140)
    read = features(seen), embed(features(seen).texts)
    growing = _growing(model, rng), _growing(model, rng), _growing(model, rng)
    batch = times(predictor.predict, calls // 6, lambda: [call(140)[0] for _ in range(16)])
    return {
        "fresh 128 tokens": times(predictor.predict, calls, lambda: call(140)),
        "seen prompt": times(lambda: predictor.predict(seen), calls),
        "head with calibration": times(lambda: predictor.from_features(*read), calls),
        "growing conversation of 1,500 words": times(predictor.predict, calls, lambda: next(growing[0])),
        "its features alone": times(lambda one: features(one, predictor.memory), calls, lambda: next(growing[1])),
        "its embedding alone": times(embed, calls, lambda: [clip(str(next(growing[2])[0].prompt))]),
        "its last turn alone": times(predictor.predict, calls, lambda: call(80)),
        "embedding of a turn": times(embed, calls, lambda: [prose(rng, 80)]),
        "batch of 16, each": {name: round(ms / 16, 4) for name, ms in batch.items()},
        "at 50 calls/s": _queued(predictor, [call(140)[0] for _ in range(calls)], 50.0),
    }


def _growing(model: str, rng: np.random.Generator) -> Iterator[list[Call]]:
    """One conversation that grows by a turn each time; its first 1,500 words are new only once."""
    text = prose(rng, 1500)
    while True:
        text += f"\nassistant: {prose(rng, 60)}\nuser: {prose(rng, 20)}"
        yield [Call("c", model, 0.0, text, parent_id="p")]


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
        eager, row = table_vs_eager(calls), encoder_times(shipped(), calls)
        found["default"] = {**row, "eager_p50": eager, "speedup_vs_eager": round(eager / row["graph_p50"], 2)}
        with tempfile.TemporaryDirectory() as folder:
            found |= transformers(Path(folder), calls) | minilm(Path(folder), calls)
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
