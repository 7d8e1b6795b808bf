"""What the loop keeps of a finished call: numbers that a head can learn from, and no text.

An example holds the text's embedding, counts and hashed n-grams in half precision (about a kilobyte in all), a digest
by which equal texts are told, the labels, and what was observed. The workflow's targets are known later than the
tokens: see `workflows.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from swarmx.drift import Group
from swarmx.drift import group_of as drift_group
from swarmx.predict.embed import TextEncoder
from swarmx.predict.features import BUCKETS, COUNTS, GRAMS, Features, features
from swarmx.predict.split import group_of
from swarmx.predict.targets import CALLS, TOKENS, WORK, Targets
from swarmx.types import CallRecord

OBJECT_BYTES = 420  # of the Python objects that hold one example, beside their contents
HALF = np.dtype("<f2")


@dataclass(frozen=True, slots=True)
class Example:
    """One finished call.

    seq : its place in the stream; finished_s : on the log's clock; prompt_group, text : digests; equal where equal
    embedding, counts : (E,), (F,) fp16 as bytes, embedding empty without text; grams : bucket (uint16) and weight
        (fp16) of each n-gram, first all buckets, as bytes
    kind : what it is watched as, its type where it has one, see `swarmx.drift.group_of`
    work, calls : output tokens and calls (model, number) of the workflow still to come; None until the workflow is over
    """

    seq: int
    finished_s: float
    model: str
    type: str
    device: str
    prompt_group: str
    text: str
    embedding: bytes
    counts: bytes
    grams: bytes
    tokens: float
    max_tokens: float = np.inf
    kind: str = ""
    work: float | None = None
    calls: tuple[tuple[str, int], ...] = ()

    @property
    def group(self) -> Group:
        """Under which the drift monitor and the online calibration know it."""
        return self.kind, self.model, self.device

    @property
    def size_bytes(self) -> int:
        """Memory that it holds, strings and numbers included."""
        strings = len(self.prompt_group) + len(self.text)
        return OBJECT_BYTES + len(self.embedding) + len(self.counts) + len(self.grams) + strings

    @property
    def can_teach(self) -> bool:
        """Whether it says anything about its text; a record stored without prompt and embedding does not."""
        return bool(self.embedding)


def examples_of(records: Sequence[CallRecord], encoder: TextEncoder, encoder_sha: str, seq: int) -> list[Example]:
    """Examples of calls that ended well, the others left out; `seq` is the first one's place in the stream.

    A record with its prompt is embedded; one with an embedding by the same encoder (`encoder_sha`) is taken as it is,
    without counts and n-grams; any other carries labels alone.
    """
    done = [record for record in records if record.status == "ok"]
    found = features(done)
    written = [bool(record.prompt) for record in done]
    embedding = encoder.of(found.take(np.flatnonzero(written)))
    rows = iter(embedding.astype(HALF))
    out = []
    for i, record in enumerate(done):
        vector, counts, grams = b"", b"", b""
        if written[i]:
            vector, counts, grams = next(rows).tobytes(), found.counts[i].astype(HALF).tobytes(), _packed(found, i)
        elif record.embedding and record.encoder_sha == encoder_sha and len(record.embedding) == 2 * encoder.columns:
            vector, counts = record.embedding, np.zeros(len(COUNTS), HALF).tobytes()
        out.append(
            Example(
                seq=seq + i, finished_s=record.arrival_s if record.finished_s is None else record.finished_s,
                model=record.model, type=record.type or "", device=record.device or "",
                prompt_group=_digest(group_of(record)),
                text=_digest(found.texts[i] or record.prompt_hash or str(seq + i)),
                embedding=vector, counts=counts, grams=grams, tokens=float(record.output_tokens),
                max_tokens=np.inf if record.max_tokens is None else float(record.max_tokens),
                kind=drift_group(record)[0],
            )
        )  # fmt: skip
    return out


def _packed(found: Features, i: int) -> bytes:
    kept = found.gram_weights[i] > 0
    ids, weights = found.gram_ids[i][kept].astype("<u2"), found.gram_weights[i][kept].astype(HALF)
    return bytes(ids.tobytes() + weights.tobytes())


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def features_of(examples: Sequence[Example], most: int = GRAMS) -> tuple[Features, NDArray[np.float32]]:
    """Features and embeddings (N, E) as the head takes them; every example must be able to teach.

    most : n-grams of each, the most frequent ones
    """
    n, widest = len(examples), min(max((len(e.grams) // 4 for e in examples), default=0), most) or 1
    ids, weights = np.zeros((n, widest), np.int32), np.zeros((n, widest), np.float32)
    for i, example in enumerate(examples):
        there = len(example.grams) // 4
        grams = min(there, widest)
        ids[i, :grams] = np.frombuffer(example.grams, "<u2", grams)
        weights[i, :grams] = np.frombuffer(example.grams, HALF, grams, 2 * there)
    size = HALF.itemsize * len(COUNTS)  # an example of an older version holds fewer: those it lacks are zero
    counts = np.frombuffer(b"".join(e.counts.ljust(size, b"\0") for e in examples), HALF).astype(np.float32)
    counts = counts.reshape(n, len(COUNTS))
    embedding = np.frombuffer(b"".join(e.embedding for e in examples), HALF).astype(np.float32).reshape(n, -1)
    labels = tuple((e.type, e.model) for e in examples)
    return Features(counts, ids, weights, labels, tuple(e.text for e in examples), ("",) * n), embedding


def targets_of(examples: Sequence[Example]) -> Targets:
    """Targets as `predict.targets.targets` names them; what a call that is still open would cause counts as nothing."""
    models = sorted({model for example in examples for model, _ in example.calls})
    names = (TOKENS, WORK, *(CALLS + model for model in models)) if models else (TOKENS,)
    values = np.zeros((len(examples), len(names)))
    for i, example in enumerate(examples):
        values[i, 0] = example.tokens
        if models:
            values[i, 1] = example.work or 0.0
            for model, number in example.calls:
                values[i, 2 + models.index(model)] = number
    return Targets(names, values)


def without_text(record: CallRecord) -> CallRecord:
    """The record with nothing of the prompt; what waits for its workflow to end is kept like this."""
    return replace(record, prompt=None, embedding=None, predicted_tokens=None)


assert BUCKETS <= 2**16  # buckets are stored in two bytes
