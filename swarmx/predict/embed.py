"""Text -> embedding at run time: tokenizer, head and tail of the tokens, one ONNX graph, a cache bounded by bytes."""

from __future__ import annotations

import gzip
from array import array
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from swarmx.errors import BadInput
from swarmx.predict.bundle import read_json
from swarmx.predict.cache import ByteCache, digest
from swarmx.predict.nearness import NEAR, embedded
from swarmx.predict.text import clip
from swarmx.predict.words import SEAM, Words

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

    from swarmx.predict.features import Features

Floats = NDArray[np.float32]
GPU = "CUDAExecutionProvider"
BATCH = 64  # texts of like length in one run of the graph
SPANS = (5, 12)  # characters read for each token wanted of an end; where they are too few, the whole text is tokenised
WITHIN = 200  # characters behind a span in which a place to cut is looked for


def session(path: Path, threads: int = 1, gpu_bytes: int | None = None) -> InferenceSession:
    """An onnxruntime session on the CPU with so many threads, or on a GPU of which it takes at most `gpu_bytes`.

    Raises BadInput when the graph is unusable, or there is no GPU to run on.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=_providers(gpu_bytes))
    except BadInput:
        raise
    except Exception as problem:  # onnxruntime raises its own kinds, none of them documented
        raise BadInput(f"{path} is not a usable ONNX graph ({problem}); train the model again") from None


def _providers(gpu_bytes: int | None) -> list[str | tuple[str, dict[str, str]]]:
    import onnxruntime

    if gpu_bytes is None:
        return ["CPUExecutionProvider"]
    if GPU not in onnxruntime.get_available_providers():
        raise BadInput(
            f"this onnxruntime has {', '.join(onnxruntime.get_available_providers())} and no {GPU}; install "
            "onnxruntime-gpu in its place, or leave gpu_bytes out"
        )
    limits = {"gpu_mem_limit": str(gpu_bytes), "arena_extend_strategy": "kSameAsRequested"}
    return [(GPU, limits), "CPUExecutionProvider"]


def _cut(text: str, near: int) -> int:
    """A place at or a little after `near` where a token surely ends; `near` itself where there is none."""
    found = SEAM.search(text, near, near + WITHIN)
    return found.start() if found else near


class TextEncoder:
    """What `encoder.onnx` computes of a text, whatever kind of encoder it is (`encoders` makes them).

    width : E; head, tail : tokens kept of each end of a longer text
    marks : ids put before and after the kept tokens, for encoders that were trained so
    tools : whether it also tells how near a call's tools are to its text
    """

    def __init__(
        self, graph: InferenceSession, tokenizer: Tokenizer, width: int, head: int, tail: int, cache_bytes: int,
        marks: tuple[list[int], list[int]] = ([], []), tools: bool = False,
    ) -> None:  # fmt: skip
        self.graph, self.tokenizer, self.marks, self.tools = graph, tokenizer, marks, tools
        self.words = Words(tokenizer)
        self.width, self.head, self.tail = width, head, tail
        self.cache: ByteCache[Floats] = ByteCache(cache_bytes)
        self._heads: ByteCache[list[int]] = ByteCache(cache_bytes // 8)

    @classmethod
    def load(
        cls, directory: Path, threads: int = 1, cache_bytes: int = 32 << 20, gpu_bytes: int | None = None
    ) -> TextEncoder:
        """Read `encoder.json`, `encoder.onnx` and `tokenizer.json.gz`. Raises BadInput when one is unusable.

        gpu_bytes : run on a GPU, taking at most this much of its memory
        """
        from tokenizers import Tokenizer

        about = read_json(directory / "encoder.json")
        try:
            width, head, tail = (int(about[key]) for key in ("width", "head_tokens", "tail_tokens"))
            before, after = ([int(about[key])] if key in about else [] for key in ("first_id", "last_id"))
        except (KeyError, TypeError, ValueError):
            raise BadInput(f"{directory / 'encoder.json'} needs width, head_tokens and tail_tokens") from None
        path = directory / "tokenizer.json.gz"
        try:
            tokenizer = Tokenizer.from_str(gzip.decompress(path.read_bytes()).decode())
        except Exception as problem:  # the tokenizers library raises bare Exception
            raise BadInput(f"{path} is not a usable tokenizer ({problem}); copy it again or train again") from None
        graph = session(directory / "encoder.onnx", threads, gpu_bytes)
        return cls(graph, tokenizer, width, head, tail, cache_bytes, (before, after), bool(about.get("tools")))

    @property
    def columns(self) -> int:
        """Of `of`."""
        return self.width + NEAR * self.tools

    def of(self, found: Features) -> Floats:
        """What a head is given of calls, (N, columns): their texts' embeddings, and how near their tools are."""
        return embedded(found, self.embed, self.tools)

    def ids(self, text: str) -> list[int]:
        """Token ids of the text's head and tail; of a long text only the ends are tokenised, and a head that has been
        seen not again, as the prompts of a conversation all begin alike.

        A text without spaces is cut anywhere, so that a token at the cut may differ from the whole text's.
        """
        text = clip(text)
        spans = [span for span in SPANS if len(text) > span * (self.head + self.tail) + 2 * WITHIN]  # ends do not meet
        start, end = self._head_ids(text, spans), self._tail_ids(text, spans)
        if start is not None and end is not None:
            return start + end
        found = self.words.ids(text)
        return found if len(found) <= self.head + self.tail else found[: self.head] + found[len(found) - self.tail :]

    def _head_ids(self, text: str, spans: Sequence[int]) -> list[int] | None:
        """None where none of the spans holds enough tokens."""
        for span in spans:
            piece = text[: _cut(text, span * self.head)]
            key = digest((piece,))
            found = self._heads.get(key)
            if found is None:
                found = self.words.ids(piece)[: self.head]
                self._heads.put(key, found, 40 * len(found))
            if len(found) == self.head:
                return found
        return None

    def _tail_ids(self, text: str, spans: Sequence[int]) -> list[int] | None:
        """None where none of the spans holds enough tokens."""
        for span in spans:
            found = self.words.ids(text[_cut(text, len(text) - span * self.tail) :])
            if len(found) >= self.tail:
                return found[len(found) - self.tail :]
        return None

    def embed(self, texts: Sequence[str]) -> Floats:
        """Embeddings, (N, width); what is known of a text, or of its two ends, is not computed again.

        A transformer's states do not add up over parts of a text, so what is kept is the result for the tokens that it
        sees: texts that differ in the middle alone share one.
        """
        keys = [digest((text,)) for text in texts]
        rows: dict[bytes, Floats] = {}
        waiting: dict[bytes, tuple[list[int], list[bytes]]] = {}  # digest of tokens -> those, texts that end so
        for key, text in dict(zip(keys, texts, strict=True)).items():
            row = self.cache.get(key)
            if row is None:
                ids = self.ids(text)
                ends = blake2b(array("I", ids), digest_size=16).digest()
                row = self.cache.get(ends)
                if row is None:
                    waiting.setdefault(ends, (ids, []))[1].append(key)
                    continue
                self.cache.put(key, row, row.nbytes)
            rows[key] = row
        order = sorted(waiting, key=lambda ends: len(waiting[ends][0]))
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            for ends, found in zip(part, self._run([waiting[ends][0] for ends in part]), strict=True):
                row = found.copy()  # not the whole batch
                for key in (ends, *waiting[ends][1]):
                    rows[key] = row
                    self.cache.put(key, row, row.nbytes)
        return np.array([rows[key] for key in keys], np.float32).reshape(len(keys), self.width)

    def _run(self, batch: list[list[int]]) -> Any:
        batch = [[*self.marks[0], *row, *self.marks[1]] for row in batch] if any(self.marks) else batch
        longest = max(1, *map(len, batch)) if batch else 1
        ids = np.zeros((len(batch), longest), np.int64)
        mask = np.zeros((len(batch), longest), np.float32)
        for i, row in enumerate(batch):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        return self.graph.run(None, {"ids": ids, "mask": mask})[0]
