"""The long work of a training on Ray: texts are embedded by a pool of actors, the heads fitted in one task.

Heads are not split over tasks: their members are trained side by side in one batch, which costs little more than one of
them, and a split would draw other random numbers than one machine does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swarmx.adapters.ray_training.connecting import plain_errors
from swarmx.adapters.ray_training.luggage import pack, unpack
from swarmx.adapters.ray_training.reading import quiet_data
from swarmx.predict.bundle import ENCODER_FILES
from swarmx.predict.embed import TextEncoder
from swarmx.predict.embedding_store import EmbeddingStore, digest_of, encoder_sha
from swarmx.predict.train import Means, fit_here, threads_here

Floats = NDArray[np.float32]
BATCH = 1024  # texts that an actor is given at a time


@dataclass(frozen=True, slots=True)
class RayMeans:
    """encoders : actors that embed, each on a CPU; cpus : of the task that fits

    store : directory where embeddings are kept for the next training, on this machine; None keeps none
    """

    encoders: int = 2
    cpus: float = 1.0
    store: Path | None = None

    def means(self) -> Means:
        """What `predict.train.train` takes. Needs a connected Ray."""
        return Means(self.embed, self.fit)

    def embed(self, directory: Path, texts: Sequence[str]) -> Floats:
        """As `predict.train.embed_here`; equal texts are computed once, those of the store not at all."""
        digests = [digest_of(text) for text in texts]
        store = None if self.store is None else EmbeddingStore(self.store, encoder_sha(directory))
        known = {} if store is None else store.load(digests)
        missing = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in known}
        if missing:
            rows = self._embed(directory, list(missing.values()))
            if store is not None:
                store.add(list(missing), rows)
            known |= dict(zip(missing, rows, strict=True))
        return np.array([known[digest] for digest in digests], np.float32)

    def _embed(self, directory: Path, texts: Sequence[str]) -> Floats:
        import pyarrow as pa
        import ray

        table = pa.table({"place": range(len(texts)), "text": texts})
        encoder = ray.put(pack(directory, ENCODER_FILES))
        with plain_errors(), quiet_data():
            found = ray.data.from_arrow(table).repartition(max(1, -(-len(texts) // BATCH))).map_batches(
                Embedder, fn_constructor_args=(encoder,), batch_size=BATCH, batch_format="pyarrow", num_cpus=1,
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=max(self.encoders, 1)),
            )  # fmt: skip
            parts = [part for part in ray.get(found.to_arrow_refs()) if part.num_rows]
        places = np.concatenate([np.asarray(part["place"]) for part in parts])
        rows = np.concatenate([_matrix(part["embedding"]) for part in parts])
        out = np.empty((len(texts), rows.shape[1]), np.float32)
        out[places] = rows
        return out

    def fit(
        self, directory: Path, material: Any, config: Any, progress: Callable[[str, float], None]
    ) -> tuple[dict[str, Any], NDArray[np.float64]]:
        """As `predict.train.fit_here`, in a task with as many threads as it would have here."""
        import ray

        progress("network", 0.0)
        task = ray.remote(num_cpus=self.cpus, max_retries=1, runtime_env={"env_vars": threads_here()})(_fit)
        with plain_errors():
            files, description, logs = ray.get(task.remote(material, config))
        unpack(files, directory)
        progress("network", 1.0)
        return description, logs


class Embedder:
    """An actor of the pool; one text at a time, as `embed_here`. encoder : reference to its packed files"""

    def __init__(self, encoder: Any) -> None:
        import ray

        with tempfile.TemporaryDirectory() as place:
            self.encoder = TextEncoder.load(unpack(ray.get(encoder), Path(place)), cache_bytes=0)

    def __call__(self, batch: Any) -> Any:
        import pyarrow as pa

        rows = np.concatenate([self.encoder.embed([text]) for text in batch["text"].to_pylist()])
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel(), pa.float32()), rows.shape[1])
        return pa.table({"place": batch["place"], "embedding": vectors})


def _matrix(column: Any) -> Floats:
    flat = np.asarray(column.combine_chunks().flatten(), np.float32)
    return flat.reshape(len(column), -1)


def _fit(material: Any, config: Any) -> tuple[bytes, dict[str, Any], NDArray[np.float64]]:
    with tempfile.TemporaryDirectory() as place:
        description, logs = fit_here(Path(place), material, config, lambda what, done: None)
        return pack(Path(place)), description, logs
