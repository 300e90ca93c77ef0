"""Every tokenizer decodes training text unchanged; some decode any text unchanged."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.checks.tokenizers import TEXTS, check_encode_words, check_round_trip, check_tokenizer
from contracts.variants import every_choice, filled
from saccade.config import build
from saccade.data.tokenizers import SPECIAL, TOKENIZERS, UNKNOWN, SentencePieceKind, Tokenizer, word_of

CHOICES = dict(every_choice(TOKENIZERS))
TRAINING_CHARACTERS = "".join(sorted(set("".join(TEXTS))))
few_examples = settings(max_examples=60, deadline=None)


def kind_of(label: str) -> Any:
    return build(filled(TOKENIZERS, CHOICES[label]), "tokenizer")


@cache
def learned(label: str) -> Tokenizer:
    return kind_of(label).learn(TEXTS)


@cache
def without_normalization(byte_fallback: bool) -> Tokenizer:
    return SentencePieceKind(normalizer="identity", byte_fallback=byte_fallback, size=400).learn(TEXTS)


@pytest.mark.parametrize("label", CHOICES)
def test_tokenizer_satisfies_contract(label: str) -> None:
    check_tokenizer(learned(label), kind_of(label).read)


@pytest.mark.parametrize("label", CHOICES)
def test_learning_is_deterministic(label: str) -> None:
    again = kind_of(label).learn(TEXTS)
    assert again.encode(TEXTS) == learned(label).encode(TEXTS)
    assert again.size == learned(label).size


@pytest.mark.parametrize("label", CHOICES)
@given(text=st.text(max_size=30))
@few_examples
def test_any_text_can_be_encoded(label: str, text: str) -> None:
    tokenizer = learned(label)
    ids = tokenizer.encode([text])[0]
    assert all(i == UNKNOWN or len(SPECIAL) <= i < tokenizer.size for i in ids)
    assert len(word_of(tokenizer.pieces(ids))) == len(ids)
    assert isinstance(tokenizer.decode(ids), str)


@pytest.mark.parametrize("label", CHOICES)
@given(words=st.lists(st.text(TRAINING_CHARACTERS.replace(" ", ""), min_size=1, max_size=6), max_size=5))
@few_examples
def test_encoding_words_equals_encoding_the_sentence(label: str, words: list[str]) -> None:
    check_encode_words(learned(label), words)


@given(text=st.text(max_size=50))
@few_examples
def test_bytes_round_trip_any_text(text: str) -> None:
    check_round_trip(learned("bytes"), text)


@given(text=st.text(alphabet=TRAINING_CHARACTERS, max_size=50))
@few_examples
def test_characters_round_trip_text_of_training_characters(text: str) -> None:
    check_round_trip(learned("characters"), text)


@given(words=st.lists(st.sampled_from(sorted({word for text in TEXTS for word in text.split()})), max_size=9))
@few_examples
def test_words_round_trip_text_of_training_words(words: list[str]) -> None:
    check_round_trip(learned("words"), " ".join(words))


@given(text=st.text(alphabet=TRAINING_CHARACTERS, max_size=50))
@few_examples
def test_sentencepiece_without_normalization_round_trips_text_of_training_characters(text: str) -> None:
    check_round_trip(without_normalization(False), text)


@given(text=st.text(alphabet=st.characters(exclude_characters="\u2581", exclude_categories=["Cs"]), max_size=50))
@few_examples
def test_sentencepiece_with_byte_fallback_round_trips_any_text(text: str) -> None:
    check_round_trip(without_normalization(True), text)


@pytest.mark.parametrize("label", CHOICES)
def test_new_character_is_unknown_or_encoded_as_bytes(label: str) -> None:
    tokenizer = learned(label)
    ids = tokenizer.encode(["Ω"])[0]
    assert ids
    assert UNKNOWN in ids or tokenizer.decode(ids) == "Ω"


@pytest.mark.parametrize(
    ("pieces", "numbers"),
    [
        ([], []),
        ([" Haus", "tür", " auf", "</s>"], [0, 0, 1, 2]),
        (["<s>", " a", "b", " c"], [0, 1, 1, 2]),
        (["Haus", "tür"], [0, 0]),
        ([" a", "<unk>", "b", "</s>"], [0, 1, 2, 3]),
    ],
)
def test_word_of_numbers_the_words_of_pieces(pieces: list[str], numbers: list[int]) -> None:
    assert word_of(pieces) == numbers
