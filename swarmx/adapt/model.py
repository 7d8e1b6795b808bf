"""A model version as the loop sees it: quantiles of finished calls' tokens from stored features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from swarmx.adapt.example import Example, examples_of, features_of
from swarmx.drift import Reference
from swarmx.errors import BadInput
from swarmx.predict.bundle import read_json
from swarmx.predict.runtime import Predictor
from swarmx.predict.targets import TOKENS
from swarmx.quantiles import LEVELS
from swarmx.types import CallRecord

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Finished:
    """A call that ended well. encoder : hash of the encoder that made the example's embedding"""

    record: CallRecord
    example: Example
    encoder: str

    @property
    def says_something(self) -> bool:
        """Whether there is more to hold a model against than the call's type."""
        told = self.record.prediction_source == "neural" and self.record.predicted_tokens is not None
        return self.example.can_teach or bool(self.record.prompt) or told


class Model(Protocol):
    """directory : where it lies; reference : its losses at training time, None when that is not known

    models : target models that it has learned from; can_learn : it has an encoder, so that heads can be trained for it
    """

    version: str
    directory: Path
    reference: Reference | None
    models: frozenset[str]
    can_learn: bool

    def read(self, records: Sequence[CallRecord], seq: int) -> list[Finished]:
        """Those that ended well, with their features; `seq` is the first one's place in the stream."""
        ...

    def tokens(self, finished: Sequence[Finished]) -> Array:
        """(N, K) quantiles of output tokens on `LEVELS`, at most max_tokens."""
        ...


class StoredModel:
    """A directory that `swarmx train` or a retraining wrote."""

    def __init__(self, predictor: Predictor, directory: Path, reference: Reference | None) -> None:
        self.predictor, self.directory, self.reference = predictor, directory, reference
        self.version = predictor.version
        self.models = frozenset(predictor.manifest["models"])
        self.encoder = str(predictor.manifest["files"].get("encoder.onnx", ""))
        self.can_learn = predictor.encoder is not None

    @classmethod
    def load(cls, directory: Path) -> StoredModel:
        """Raises BadInput when the directory holds no whole model."""
        predictor = Predictor.load(directory)
        reference = None
        if "drift.json" in predictor.manifest["files"]:
            try:
                reference = Reference.from_json(read_json(directory / "drift.json"))
            except (KeyError, TypeError, ValueError) as problem:
                raise BadInput(
                    f"{directory / 'drift.json'} is not usable ({problem!r}); train the model again"
                ) from None
        return cls(predictor, directory, reference)

    def read(self, records: Sequence[CallRecord], seq: int) -> list[Finished]:
        done = [record for record in records if record.status == "ok"]
        encoder = self.predictor.encoder
        if encoder is None:
            return [Finished(record, _labels(record, seq + i), "") for i, record in enumerate(done)]
        examples = examples_of(done, encoder, self.encoder, seq)
        return [Finished(record, example, self.encoder) for record, example in zip(done, examples, strict=True)]

    def tokens(self, finished: Sequence[Finished]) -> Array:
        """From the stored features where they are by the same encoder, else from the prompt, else as the server said,
        else by type."""
        out = self.predictor.fallback[TOKENS].values([one.record.type for one in finished])
        for i, one in enumerate(finished):
            said = one.record.predicted_tokens
            if said is not None and len(said) == len(LEVELS) and one.record.prediction_source == "neural":
                out[i] = np.maximum.accumulate(said)
        neural = self.predictor.heads is not None
        stored = [i for i, one in enumerate(finished) if neural and one.example.can_teach and self._same(one)]
        if stored:
            values = self.predictor.from_features(*features_of([finished[i].example for i in stored]))
            out[stored] = values[:, self.predictor.targets.index(TOKENS)]
        read = [i for i, one in enumerate(finished) if neural and not self._same(one) and one.record.prompt]
        if read:
            out[read] = self.predictor.grids([finished[i].record for i in read]).of(TOKENS)
        caps = np.array([one.example.max_tokens for one in finished]).reshape(-1, 1)
        capped: Array = np.minimum(out, caps)
        return capped

    def _same(self, one: Finished) -> bool:
        return one.encoder == self.encoder


def _labels(record: CallRecord, seq: int) -> Example:
    """An example that says nothing of the text."""
    from swarmx.drift import group_of

    at = record.arrival_s if record.finished_s is None else record.finished_s
    most = np.inf if record.max_tokens is None else float(record.max_tokens)
    kind, model, device = group_of(record)
    return Example(
        seq, at, model, record.type or "", device, "", "", b"", b"", b"", float(record.output_tokens), most, kind
    )
