"""The predictor that runs: numpy, tokenizers and onnxruntime, no torch, no clock, never an exception.

network on embedding, counts, n-grams  ->  calibration  ->  QuantileGrid       source "neural"
... for a model that its log lacks     ->  widened by how much models differ     source "borrowed"
fails for a call, or there is none     ->  quantiles of its type               source "per_type"
its type is unknown                    ->  quantiles of everything             source "pool_mean"
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.predict.baselines import GroupQuantiles
from swarmx.predict.borrow import widened
from swarmx.predict.bundle import read_json, read_manifest
from swarmx.predict.cache import ByteCache, digest
from swarmx.predict.calibrate import Calibration, ordered
from swarmx.predict.embed import TextEncoder, session
from swarmx.predict.features import Features, Memory, features
from swarmx.predict.targets import CALLS, TOKENS, WORK
from swarmx.predict.text import clip, text_of
from swarmx.predict.tools import without_tools
from swarmx.quantiles import LEVELS, QuantileGrid
from swarmx.types import Call, CallRecord, Prediction, Source

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

log = logging.getLogger(__name__)
Array = NDArray[np.float64]
BATCH = 256


@dataclass(frozen=True, slots=True)
class Grids:
    """Predictions of N calls as arrays: values (N, T, K) in natural units, sources (N,), targets T names."""

    targets: tuple[str, ...]
    values: Array
    sources: tuple[Source, ...]

    def of(self, target: str) -> Array:
        """(N, K) of one target. Raises ValueError when it was not learned."""
        return self.values[:, self.targets.index(target)]


class Predictor:
    """Quantiles of a call's tokens, downstream calls and remaining work. Build it with `load`.

    manifest : of the model directory; fallback : per target, quantiles per type
    encoder, heads : None when the model has learned from no text
    """

    def __init__(
        self, manifest: dict[str, Any], fallback: dict[str, GroupQuantiles],
        encoder: TextEncoder | None, heads: InferenceSession | None, cache_bytes: int = 32 << 20,
    ) -> None:  # fmt: skip
        self.manifest, self.fallback, self.encoder, self.heads = manifest, fallback, encoder, heads
        self.memory = Memory(cache_bytes)
        self.answers: ByteCache[Array] = ByteCache(cache_bytes // 4)
        self.targets: tuple[str, ...] = tuple(manifest["targets"])
        self.version: str = manifest["version"]
        self._types = {name: i + 1 for i, name in enumerate(manifest["types"])}
        self._models = {name: i + 1 for i, name in enumerate(manifest["models"])}
        self._unknown = int(len(self._models) == 1)  # what one model has taught holds for any name; else their mixture
        self._inputs = set() if heads is None else {item.name for item in heads.get_inputs()}
        self._grams: int | None = manifest.get("grams")  # the most frequent ones, where it was trained on no more
        self._spread = manifest.get("model_spread", {})  # of each target's log between the log's models
        moved = manifest.get("model_offset") or {}  # of each target, with type and without, of each model
        self._offset = np.array([moved[name] for name in self.targets]) if moved else None  # (T, 2, models + 1)
        self._counts = _width(heads, "counts")  # a model reads the counts that existed when it was trained
        self._embedding = _width(heads, "embedding")  # and how near tools are only where its log had any
        # log values beyond four times the largest ever seen are not believed
        self._ceiling = np.log1p(4 * np.array(manifest["largest"], dtype=float) + 4)
        self._calibration = [
            [Calibration.of_json(mode) for mode in manifest["calibration"][target]] if heads is not None else []
            for target in self.targets
        ]

    @classmethod
    def load(
        cls, directory: str | Path, threads: int = 1, cache_bytes: int = 32 << 20, gpu_bytes: int | None = None
    ) -> Predictor:
        """Read a directory that `swarmx train` wrote, checking every file against the manifest; runs no code from it.

        threads : of one prediction; cache_bytes : bound of each of the caches: of embeddings, of what was
            read of a text, and (a quarter of it) of answers to calls that come again, as retries and samples do
        gpu_bytes : the encoder runs on a GPU and takes at most this much of its memory
        Raises BadInput when a file is missing, altered or unusable.
        """
        directory = Path(directory)
        manifest = read_manifest(directory)
        tables = read_json(directory / "fallback.json")
        text = "heads.onnx" in manifest["files"]
        try:
            fallback = {target: GroupQuantiles.of_json(tables[target]) for target in manifest["targets"]}
            return cls(
                manifest,
                fallback,
                TextEncoder.load(directory, threads, cache_bytes, gpu_bytes)
                if "encoder.onnx" in manifest["files"]
                else None,
                session(directory / "heads.onnx", threads) if text else None,
                cache_bytes,
            )
        except BadInput:
            raise
        except (KeyError, TypeError, ValueError) as problem:
            raise BadInput(f"{directory} is not a usable model ({problem!r}); train it again") from None

    def predict(self, calls: Sequence[Call]) -> list[Prediction]:
        """One prediction per call, whatever the calls hold.

        Values above four times the largest one ever trained on are lowered to that; tokens are at most the call's
        max_tokens.
        """
        return self.told(calls, self.grids(calls))

    def told(self, calls: Sequence[Call], grids: Grids) -> list[Prediction]:
        """Predictions from this model's grids of the calls."""
        return [self._prediction(call, grids, i) for i, call in enumerate(calls)]

    def fallback_for(self, calls: Sequence[Call]) -> list[Prediction]:
        """The tier below the network for every call: quantiles of its type, else of everything; takes microseconds."""
        values, sources = self._by_type(calls)
        return self.told(calls, Grids(self.targets, self._capped(values, calls), tuple(sources)))

    def grids(self, calls: Sequence[Call | CallRecord]) -> Grids:
        """The same as arrays, quicker for thousands of calls; also takes finished calls."""
        values = np.empty((len(calls), len(self.targets), len(LEVELS)))
        sources: list[Source] = []
        for start in range(0, len(calls), BATCH):
            part = calls[start : start + BATCH]
            values[start : start + len(part)], found = self._recalled(part)
            sources.extend(found)
        return Grids(self.targets, self._capped(values, calls), tuple(sources))

    def _capped(self, values: Array, calls: Sequence[Call | CallRecord]) -> Array:
        """The same, tokens at most each call's max_tokens; in place."""
        caps = np.array([_cap(call) for call in calls]).reshape(-1, 1)
        tokens = self.targets.index(TOKENS)
        values[:, tokens] = np.minimum(values[:, tokens], caps)
        return values

    def _recalled(self, calls: Sequence[Call | CallRecord]) -> tuple[Array, list[Source]]:
        """Calls that have been answered before from memory, the others by `_batch`."""
        if self.heads is None:
            return self._by_type(calls)
        keys = [_key(call) for call in calls]
        rows = [None if key is None else self.answers.get(key) for key in keys]
        values = np.empty((len(calls), len(self.targets), len(LEVELS)))
        sources: list[Source] = ["neural"] * len(calls)
        fresh = [i for i, row in enumerate(rows) if row is None]
        if fresh:
            values[fresh], found = self._batch([calls[i] for i in fresh])
            for i, source in zip(fresh, found, strict=True):
                sources[i] = source
                if source == "neural" and (key := keys[i]) is not None:
                    self.answers.put(key, values[i].copy(), values[i].nbytes)
        for i, row in enumerate(rows):
            if row is not None:
                values[i] = row
        return values, sources

    def _batch(self, calls: Sequence[Call | CallRecord]) -> tuple[Array, list[Source]]:
        """Network where it answers, one call at a time when a batch fails, quantiles of the type for the rest."""
        if self.heads is None:
            return self._by_type(calls)
        try:
            values = self._neural(calls)
        except Exception as problem:  # a call must be routed whatever the libraries below raise
            if len(calls) > 1:
                parts = [self._batch([call]) for call in calls]
                return np.concatenate([part for part, _ in parts]), [source for _, found in parts for source in found]
            log.warning("prediction failed, falling back to quantiles of the type: %r", problem)
            return self._by_type(calls)
        own = [not self._spread or call.model in self._models for call in calls]
        sources: list[Source] = ["neural" if known else "borrowed" for known in own]
        bad = np.flatnonzero(~np.isfinite(values).all(axis=(1, 2))).tolist()
        if bad:
            values[bad], found = self._by_type([calls[i] for i in bad])
            for i, source in zip(bad, found, strict=True):
                sources[i] = source
        return values, sources

    def _neural(self, calls: Sequence[Call | CallRecord]) -> Array:
        found = features(calls, self.memory)
        n = len(calls)
        embedding = self.encoder.of(found) if self.encoder else np.zeros((n, 0), np.float32)
        return self.from_features(found, embedding)

    def from_features(self, found: Features, embedding: NDArray[np.float32]) -> Array:
        """The network's quantiles (N, T, K), calibrated, in natural units, without the cap of max_tokens.

        embedding : (N, E) of the calls by this model's encoder
        Raises BadInput when the model has no network, and what onnxruntime raises when a feature does not fit it.
        """
        if self.heads is None:
            raise BadInput("the model has learned from no text; train it on a log with prompts")
        parts = [
            self._run(found.rows(slice(at, at + BATCH)), embedding[at : at + BATCH])
            for at in range(0, max(len(found.labels), 1), BATCH)
        ]
        return np.concatenate(parts)

    def _run(self, found: Features, embedding: NDArray[np.float32]) -> Array:
        """One batch of `from_features`."""
        assert self.heads is not None
        types = np.array([self._types.get(kind, 0) for kind, _ in found.labels], np.int64).reshape(-1)
        models = np.array([self._models.get(model, self._unknown) for _, model in found.labels], np.int64).reshape(-1)
        feed = {
            "embedding": embedding[:, : self._embedding], "counts": found.counts[:, : self._counts], "type_id": types,
            "model_id": models,
            "gram_ids": found.gram_ids[:, : self._grams].astype(np.int64, copy=False),
            "gram_weights": found.gram_weights[:, : self._grams],
        }  # fmt: skip
        logs = self.heads.run(None, {name: value for name, value in feed.items() if name in self._inputs})[0]
        logs = np.asarray(logs, dtype=np.float64)  # (N, T, K)
        unknown = (models == 0) & bool(self._spread)
        for mode, rows in enumerate((types > 0, types == 0)):  # calibrated for calls with type and for those without
            if rows.any():
                if self._offset is not None:
                    logs[rows] += self._offset[:, mode, models[rows]].T[..., None]
                for t, modes in enumerate(self._calibration):
                    logs[rows, t] = modes[mode].apply(logs[rows, t])
        if unknown.any():
            for t, target in enumerate(self.targets):
                logs[unknown, t] = widened(logs[unknown, t], self._spread[target])
        logs = ordered(np.clip(logs, 0.0, self._ceiling[:, None]).reshape(-1, len(LEVELS))).reshape(logs.shape)
        values: Array = np.expm1(logs)
        return values

    def _by_type(self, calls: Sequence[Call | CallRecord]) -> tuple[Array, list[Source]]:
        kinds = [call.type if isinstance(call.type, str) else None for call in calls]
        values = np.stack([self.fallback[target].values(kinds) for target in self.targets], axis=1)
        known = self.fallback[TOKENS].groups
        return values, ["per_type" if kind in known else "pool_mean" for kind in kinds]

    def _prediction(self, call: Call, grids: Grids, i: int) -> Prediction:
        by_target = {name: QuantileGrid(LEVELS, grids.values[i, t]) for t, name in enumerate(self.targets)}
        prediction = Prediction(by_target[TOKENS], grids.sources[i], model_version=self.version)
        if WORK not in by_target:
            return prediction
        downstream = {name[len(CALLS) :]: grid for name, grid in by_target.items() if name.startswith(CALLS)}
        return replace(prediction, downstream=downstream, remaining_tokens=by_target[WORK])


def _key(call: Call | CallRecord) -> bytes | None:
    """What the network's answer depends on, as a digest; None where the call is too odd to have one.

    Of a long prompt that is its ends and its length; hashing all of a conversation took longer than reading a new turn.
    """
    try:
        whole = text_of(call.prompt)
        tools, asked = without_tools(whole)
        about = (call.type, call.model, call.parent_id is None, call.prompt_tokens, len(whole), len(asked))
        return digest((tools, clip(asked), repr(about)))
    except Exception:  # `_batch` meets the same oddity and falls back
        return None


def _width(graph: InferenceSession | None, name: str) -> int | None:
    """Columns of an input, None when it has none of that name or any number of them."""
    shapes = {} if graph is None else {item.name: item.shape for item in graph.get_inputs()}
    columns = shapes.get(name, [None])[-1]
    return columns if isinstance(columns, int) else None


def _cap(call: Call | CallRecord) -> float:
    limit = call.max_tokens
    return float(limit) if isinstance(limit, int | float) and limit >= 0 else np.inf
