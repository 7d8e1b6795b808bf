"""Embeddings kept on disk between trainings: Parquet files of text digests and vectors, one directory per encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.files import replacing
from swarmx.predict.bundle import ENCODER_FILES, sha256
from swarmx.predict.text import clip

Floats = NDArray[np.float32]


def encoder_sha(directory: Path) -> str:
    """Names the encoder of a model directory, 16 hex digits; another one gives other embeddings."""
    return hashlib.sha256("".join(sha256(directory / name) for name in ENCODER_FILES).encode()).hexdigest()[:16]


def digest_of(text: str) -> bytes:
    """Of a text as the encoder sees it."""
    return hashlib.blake2b(clip(text).encode("utf-8", "replace"), digest_size=16).digest()


class EmbeddingStore:
    """directory : of all encoders; encoder : as `encoder_sha` names it. Files are only added, never changed."""

    def __init__(self, directory: Path, encoder: str) -> None:
        self.place = directory / encoder

    def load(self, wanted: Sequence[bytes]) -> dict[bytes, Floats]:
        """Digest -> embedding (E,) of those that are there. Raises BadInput for a damaged file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        needed, found = set(wanted), dict[bytes, Floats]()
        for file in sorted(self.place.glob("*.parquet")):
            try:
                table = pq.read_table(file, page_checksum_verification=True)
                digests, vectors = table["digest"].to_pylist(), table["embedding"].combine_chunks()
                rows = np.asarray(vectors.flatten(), np.float32).reshape(len(digests), -1)
            except (OSError, KeyError, ValueError, pa.ArrowException) as problem:
                raise BadInput(f"{file} is no file of embeddings ({problem}); delete it") from None
            found |= {d: row for d, row in zip(digests, rows, strict=True) if d in needed}
        return found

    def add(self, digests: Sequence[bytes], rows: Floats) -> None:
        """Keep embeddings, (N, E), in a new file."""
        if not len(digests):
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel(), pa.float32()), rows.shape[1])
        table = pa.table({"digest": pa.array(digests, pa.binary(16)), "embedding": vectors})
        name = hashlib.blake2b(b"".join(digests), digest_size=8).hexdigest()
        self.place.mkdir(parents=True, exist_ok=True)
        with replacing(self.place / f"{name}.parquet") as temporary:
            pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
