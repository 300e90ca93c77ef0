"""The contract of a tokenizer."""

import itertools
from collections.abc import Callable, Sequence

from saccade.data import tokenizers
from saccade.data.tokenizers import END, PAD, SPECIAL, START, UNKNOWN, Tokenizer

# case-folded and composed already, so that every normalizer leaves them as they are
TEXTS = ["the cat sat on the mat", "grüne äpfel aus köln", "a b c d e", "日本語 テキスト", "3.14 is not 22/7", "x"] * 5


def check_tokenizer(tokenizer: Tokenizer, read: Callable[[bytes], Tokenizer]) -> None:
    """Training text survives a round trip, special tokens have their fixed ids, and a tokenizer read from its file is
    the same. The tokenizer was learned from `TEXTS`."""
    specials = [PAD, UNKNOWN, START, END]
    assert specials == [0, 1, 2, 3]
    assert tuple(tokenizer.pieces(specials)) == SPECIAL
    assert tokenizer.encode([]) == []
    assert tokenizer.encode([""]) == [[]]
    assert tokenizer.decode([PAD, START, END]) == ""
    copy = read(tokenizer.dump())
    assert copy.size == tokenizer.size
    encoded = tokenizer.encode(TEXTS)
    assert copy.encode(TEXTS) == encoded
    for text, ids in zip(TEXTS, encoded, strict=True):
        assert all(len(SPECIAL) <= i < tokenizer.size for i in ids), "training text has unknown tokens"
        check_round_trip(tokenizer, text)
        assert tokenizer.decode([START, *ids, END, PAD]) == text, "special tokens appear in the decoded text"
        assert copy.decode(ids) == text
        pieces = tokenizer.pieces(ids)
        assert len(pieces) == len(ids)
        check_word_of(pieces, len(text.split()))
        check_encode_words(tokenizer, text.split())


def check_encode_words(tokenizer: Tokenizer, words: list[str]) -> None:
    """Encoding word by word gives the ids of the whole sentence, so the word of each token is known."""
    by_word = tokenizer.encode_words(words)
    assert len(by_word) == len(words)
    assert [i for ids in by_word for i in ids] == tokenizer.encode([" ".join(words)])[0]


def check_round_trip(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text


def check_word_of(pieces: Sequence[str], words: int) -> None:
    numbers = tokenizers.word_of(pieces)
    assert len(numbers) == len(pieces)
    assert all(b - a in (0, 1) for a, b in itertools.pairwise(numbers)), "the word numbers are not consecutive"
    assert not numbers or (numbers[0], numbers[-1] + 1) == (0, words), f"{numbers[-1] + 1} words, not {words}"
