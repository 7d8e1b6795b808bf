"""Words that are remembered give the ids that the whole text has, whatever the kind of tokenizer."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from swarmx.predict import words
from swarmx.predict.bundle import shipped
from swarmx.predict.words import PROBE, Words

CORPUS = [
    PROBE,
    "the quick brown fox, the lazy dog; 12 trips to Rome",
    "Über naïve façades: 東京 and 3.5 % of it's all",
] * 9
TEXTS = st.lists(
    st.sampled_from(["the", " quick", "  ", "\n", " a", " A1", "'s", ", ", "Über", " ü", "東京", " .", "\t", "trip"])
    | st.text(max_size=6),
    max_size=40,
).map("".join).map(lambda text: text.encode("utf-8", "replace").decode())  # fmt: skip


def shipped_one() -> Tokenizer:
    return Tokenizer.from_str(gzip.decompress((shipped() / "tokenizer.json.gz").read_bytes()).decode())


def byte_level() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=400, show_progress=False,
                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))  # fmt: skip
    return made


def word_piece() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=300, show_progress=False,
                             special_tokens=["[UNK]"]))  # fmt: skip
    return made


def metaspace(scheme: str) -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    made.decoder = decoders.Metaspace(prepend_scheme=scheme)
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, show_progress=False,
                             special_tokens=["<unk>"]))  # fmt: skip
    return made


def joining() -> Tokenizer:
    """Pairs of words are tokens of it, which none that is read here does: words alone have other ids."""
    made = Tokenizer(models.BPE())
    made.train_from_iterator([PROBE] * 9, trainers.BpeTrainer(vocab_size=400, show_progress=False))
    return made


KINDS = {
    "shipped": shipped_one(), "byte_level": byte_level(), "word_piece": word_piece(),
    "metaspace_always": metaspace("always"), "metaspace_first": metaspace("first"),
    "metaspace_never": metaspace("never"), "joining": joining(),
}  # fmt: skip
READERS = {name: Words(tokenizer) for name, tokenizer in KINDS.items()}  # they remember from text to text


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
def test_a_text_has_the_ids_that_its_tokenizer_gives_it(kind: str, text: str) -> None:
    assert READERS[kind].ids(text) == KINDS[kind].encode(text, add_special_tokens=False).ids


def test_which_tokenizers_are_read_word_by_word() -> None:
    assert {name for name, reader in READERS.items() if reader.apart} >= {"shipped", "byte_level", "word_piece"}
    assert not READERS["joining"].apart


def test_a_known_word_is_not_tokenised_again_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Counted:
        def encode(self, text: str, add_special_tokens: bool) -> object:
            asked.append(text)
            return KINDS["shipped"].encode(text, add_special_tokens=add_special_tokens)

    reader = Words(Counted())  # type: ignore[arg-type]
    asked.clear()
    first = reader.ids("Name seven rivers near Peru")
    assert reader.ids("Name seven rivers near Chile") == [*first[:-1], *reader.ids(" Chile")]
    assert asked == ["Name seven rivers near Peru", " Chile"]
    monkeypatch.setattr(words, "MOST", 50)
    for i in range(200):
        reader.ids(f"w{i} a{i} b{i} {'long' * 20}{i}")
    assert len(reader._known) <= 50 + 4 and max(map(len, reader._known)) <= words.LONGEST
