"""Embeddings kept on disk."""

from pathlib import Path

import numpy as np
import pytest

from swarmx.errors import BadInput
from swarmx.predict.bundle import shipped
from swarmx.predict.embedding_store import EmbeddingStore, digest_of, encoder_sha


def test_what_was_kept_is_found_again_and_nothing_else(tmp_path: Path) -> None:
    store, texts = EmbeddingStore(tmp_path, "e"), ["one", "two", "three"]
    digests = [digest_of(text) for text in texts]
    rows = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    assert store.load(digests) == {}
    store.add(digests[:2], rows[:2])
    store.add(digests[2:], rows[2:])
    store.add([], rows[:0])
    found = EmbeddingStore(tmp_path, "e").load([digests[2], digests[0], digest_of("four")])
    assert found.keys() == {digests[0], digests[2]}
    assert all((found[digests[i]] == rows[i]).all() for i in (0, 2))
    assert EmbeddingStore(tmp_path, "another encoder").load(digests) == {}


def test_equal_texts_have_one_digest_and_encoders_have_names() -> None:
    assert digest_of("a text") == digest_of("a text") != digest_of("another")
    assert encoder_sha(shipped()) == encoder_sha(shipped())


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    store = EmbeddingStore(tmp_path, "e")
    store.add([digest_of("one")], np.ones((1, 5), np.float32))
    (file,) = (tmp_path / "e").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(BadInput, match=file.name):
        store.load([digest_of("one")])
