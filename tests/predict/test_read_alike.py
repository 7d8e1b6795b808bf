"""What is read of a call depends on the call alone: not on the process, and not on what was made of it before."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

from swarmx.predict.features import BUCKETS, features
from swarmx.predict.fit_linear import hashed
from swarmx.types import CallRecord

COUNTED = """
import json, random
from swarmx.predict.tools import tool_counts
words = "weather city river market train ticket hotel flight museum garden bridge station".split()
rng, found = random.Random(0), []
for _ in range(400):
    tools = [{"name": " ".join(rng.sample(words, 2)), "description": " ".join(rng.sample(words, 5))} for _ in range(6)]
    found.append(tool_counts(json.dumps(tools), " ".join(rng.sample(words, 9))).tolist())
print(json.dumps(found))
"""


def test_tools_are_counted_alike_whatever_the_order_of_sets() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", COUNTED], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_hashing_leaves_the_n_grams_of_a_call_as_they_were() -> None:
    texts = ["the cat sat on the mat and the dog on the cat", "what is the capital of France", "one"]
    calls = [
        CallRecord(call_id=str(i), model="m", arrival_s=0.0, status="ok", prompt=text) for i, text in enumerate(texts)
    ]
    found = features(calls)
    ids = np.random.default_rng(0).permuted(found.gram_ids, axis=1)
    before = ids.copy()
    first = hashed(ids, found.gram_weights)
    assert np.array_equal(ids, before)
    assert first.shape == (3, BUCKETS)
    assert (first != hashed(ids, found.gram_weights)).nnz == 0
