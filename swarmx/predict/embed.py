"""Text -> embedding at run time: tokenizer, head and tail of the tokens, one ONNX graph, a cache bounded by bytes."""

from __future__ import annotations

import gzip
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.predict.bundle import read_json
from swarmx.predict.text import clip

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

Floats = NDArray[np.float32]
BATCH = 64  # texts of like length in one run of the graph


def session(path: Path, threads: int = 1) -> InferenceSession:
    """An onnxruntime session on the CPU with so many threads. Raises BadInput when the graph is unusable."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # onnxruntime raises its own kinds, none of them documented
        raise BadInput(f"{path} is not a usable ONNX graph ({problem}); train the model again") from None


class EmbeddingCache:
    """Least recently used embeddings, keyed by a digest of the text; drops the oldest beyond `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._rows: OrderedDict[bytes, Floats] = OrderedDict()

    def get(self, key: bytes) -> Floats | None:
        row = self._rows.get(key)
        if row is not None:
            self._rows.move_to_end(key)
        return row

    def put(self, key: bytes, row: Floats) -> None:
        size = row.nbytes + 200  # key, array header and table entry
        if key in self._rows or size > self.limit_bytes:
            return
        self._rows[key] = row
        self.used_bytes += size
        while self.used_bytes > self.limit_bytes:
            _, old = self._rows.popitem(last=False)
            self.used_bytes -= old.nbytes + 200


class TextEncoder:
    """What `encoder.onnx` computes of a text.

    width : E; head, tail : tokens kept of each end of a longer text
    """

    def __init__(
        self, graph: InferenceSession, tokenizer: Tokenizer, width: int, head: int, tail: int, cache_bytes: int
    ) -> None:
        self.graph, self.tokenizer = graph, tokenizer
        self.width, self.head, self.tail = width, head, tail
        self.cache = EmbeddingCache(cache_bytes)

    @classmethod
    def load(cls, directory: Path, threads: int = 1, cache_bytes: int = 32 << 20) -> TextEncoder:
        """Read `encoder.json`, `encoder.onnx` and `tokenizer.json.gz`. Raises BadInput when one is unusable."""
        from tokenizers import Tokenizer

        about = read_json(directory / "encoder.json")
        try:
            width, head, tail = (int(about[key]) for key in ("width", "head_tokens", "tail_tokens"))
        except (KeyError, TypeError, ValueError):
            raise BadInput(f"{directory / 'encoder.json'} needs width, head_tokens and tail_tokens") from None
        path = directory / "tokenizer.json.gz"
        try:
            tokenizer = Tokenizer.from_str(gzip.decompress(path.read_bytes()).decode())
        except Exception as problem:  # the tokenizers library raises bare Exception
            raise BadInput(f"{path} is not a usable tokenizer ({problem}); copy it again or train again") from None
        return cls(session(directory / "encoder.onnx", threads), tokenizer, width, head, tail, cache_bytes)

    def ids(self, text: str) -> list[int]:
        """Token ids of the text's head and tail."""
        found: list[int] = self.tokenizer.encode(clip(text), add_special_tokens=False).ids
        return found if len(found) <= self.head + self.tail else found[: self.head] + found[-self.tail :]

    def embed(self, texts: Sequence[str]) -> Floats:
        """Embeddings, (N, width); equal texts are computed once, known ones not at all."""
        keys = [hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest() for text in texts]
        rows: dict[bytes, Floats] = {}
        missing: dict[bytes, list[int]] = {}
        for key, text in zip(keys, texts, strict=True):
            if key in rows or key in missing:
                continue
            row = self.cache.get(key)
            if row is None:
                missing[key] = self.ids(text)
            else:
                rows[key] = row
        waiting = sorted(missing, key=lambda key: len(missing[key]))
        for start in range(0, len(waiting), BATCH):
            part = waiting[start : start + BATCH]
            for key, row in zip(part, self._run([missing[key] for key in part]), strict=True):
                rows[key] = row
                self.cache.put(key, row)
        return np.array([rows[key] for key in keys], np.float32).reshape(len(keys), self.width)

    def _run(self, batch: list[list[int]]) -> Any:
        longest = max(1, *map(len, batch)) if batch else 1
        ids = np.zeros((len(batch), longest), np.int64)
        mask = np.zeros((len(batch), longest), np.float32)
        for i, row in enumerate(batch):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        return self.graph.run(None, {"ids": ids, "mask": mask})[0]
