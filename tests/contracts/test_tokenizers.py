"""Every tokenizer gives back the text it has seen; some give back any text."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import checks
from contracts.checks import TEXTS
from contracts.variants import every_choice, filled
from saccade.config import build
from saccade.data.tokenizers import SPECIAL, TOKENIZERS, UNKNOWN, SentencePieces, Tokenizer, word_of

CHOICES = dict(every_choice(TOKENIZERS))
SEEN = "".join(sorted(set("".join(TEXTS))))
quickly = settings(max_examples=60, deadline=None)


def kind_of(label: str) -> Any:
    return build(filled(TOKENIZERS, CHOICES[label]), "tokenizer")


@cache
def learned(label: str) -> Tokenizer:
    return kind_of(label).learn(TEXTS)


@cache
def untouched(byte_fallback: bool) -> Tokenizer:
    return SentencePieces(normalizer="identity", byte_fallback=byte_fallback, size=400).learn(TEXTS)


@pytest.mark.parametrize("label", CHOICES)
def test_a_tokenizer_keeps_its_contract(label: str) -> None:
    checks.check_tokenizer(learned(label), kind_of(label).read)


@pytest.mark.parametrize("label", CHOICES)
def test_learning_twice_gives_the_same_tokenizer(label: str) -> None:
    again = kind_of(label).learn(TEXTS)
    assert again.encode(TEXTS) == learned(label).encode(TEXTS)
    assert again.size == learned(label).size


@pytest.mark.parametrize("label", CHOICES)
@given(text=st.text(max_size=30))
@quickly
def test_no_text_is_too_strange_to_encode(label: str, text: str) -> None:
    tokenizer = learned(label)
    ids = tokenizer.encode([text])[0]
    assert all(i == UNKNOWN or len(SPECIAL) <= i < tokenizer.size for i in ids)
    assert len(word_of(tokenizer.pieces(ids))) == len(ids)
    assert isinstance(tokenizer.decode(ids), str)


@pytest.mark.parametrize("label", CHOICES)
@given(words=st.lists(st.text(SEEN.replace(" ", ""), min_size=1, max_size=6), max_size=5))
@quickly
def test_a_sentence_may_be_encoded_word_by_word(label: str, words: list[str]) -> None:
    checks.check_words(learned(label), words)


@given(text=st.text(max_size=50))
@quickly
def test_bytes_give_back_any_text(text: str) -> None:
    checks.check_round_trip(learned("bytes"), text)


@given(text=st.text(alphabet=SEEN, max_size=50))
@quickly
def test_characters_give_back_any_text_of_seen_symbols(text: str) -> None:
    checks.check_round_trip(learned("characters"), text)


@given(words=st.lists(st.sampled_from(sorted({word for text in TEXTS for word in text.split()})), max_size=9))
@quickly
def test_words_give_back_any_text_of_seen_words(words: list[str]) -> None:
    checks.check_round_trip(learned("words"), " ".join(words))


@given(text=st.text(alphabet=SEEN, max_size=50))
@quickly
def test_identity_sentencepiece_gives_back_any_text_of_seen_symbols(text: str) -> None:
    checks.check_round_trip(untouched(False), text)


@given(text=st.text(alphabet=st.characters(exclude_characters="\u2581", exclude_categories=["Cs"]), max_size=50))
@quickly
def test_identity_sentencepiece_with_bytes_gives_back_any_text(text: str) -> None:
    checks.check_round_trip(untouched(True), text)


@pytest.mark.parametrize("label", CHOICES)
def test_what_was_never_seen_is_unknown_or_spelt(label: str) -> None:
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
def test_pieces_belong_to_words(pieces: list[str], numbers: list[int]) -> None:
    assert word_of(pieces) == numbers
