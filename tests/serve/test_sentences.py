"""Sentence splitting, and joining to the same text."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.serve.sentences import SplitText, split_sentences

ENDS_AND_GAPS = st.text(st.sampled_from("aB4. ,!?…\n\t\r\u2028\u00a0。\"'(Dr"), max_size=60)
TEXTS = st.one_of(st.text(max_size=200), ENDS_AND_GAPS)


def split(text: str, max_characters: int = sys.maxsize) -> SplitText:
    """Split a text; each character counts as a token."""
    return split_sentences(text, len, max_characters)


@given(TEXTS)
def test_joining_the_sentences_restores_the_text(text: str) -> None:
    parts = split(text)
    assert parts.joined(parts.sentences) == text


@given(TEXTS, st.integers(1, 5))
def test_cut_sentences_fit_and_join_to_the_same_text(text: str, longest: int) -> None:
    parts = split(text, longest)
    assert parts.joined(parts.sentences) == text
    assert all(len(sentence) <= longest for sentence in parts.sentences)
    assert parts.token_counts == tuple(map(len, parts.sentences))


@given(TEXTS)
def test_sentence_is_one_line_without_surrounding_white_space(text: str) -> None:
    for sentence in split(text).sentences:
        assert sentence
        assert sentence == sentence.strip()
        assert len(sentence.splitlines()) == 1
        assert "\t" not in sentence


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two.", ("One.", "Two.")),
        ("One!  Two?\n\n Three", ("One!", "Two?", "Three")),
        ("a\tb", ("a", "b")),
        ("He left. 3 men came.", ("He left.", "3 men came.")),
        ("“Yes.” He left.", ("“Yes.”", "He left.")),
        ("„Ja.“ Er ging.", ("„Ja.“", "Er ging.")),
        ("Well... Then he left.", ("Well...", "Then he left.")),
        ("Es war 1999. Danach kam er.", ("Es war 1999.", "Danach kam er.")),
        ("He said no. Then he left.", ("He said no.", "Then he left.")),
        ("你好。再见！", ("你好。", "再见！")),
    ],
)
def test_sentences_are_separated(text: str, sentences: tuple[str, ...]) -> None:
    assert split(text).sentences == sentences


@pytest.mark.parametrize(
    "text",
    [
        "Dienstag, 4. März 2031",
        "Zum 100. Geburtstag kamen alle.",
        "J. S. Bach wrote it.",
        "The U.S. Army came.",
        "Dr. Smith and Prof. Jones met.",
        "Das sind z. B. Äpfel.",
        "See No. 5 and Fig. 3 there.",
        "Version 2.0 is out",
        "It was, etc. and so on.",
        "“What?” he asked.",
        "one sentence without an end",
    ],
)
def test_full_stop_inside_a_sentence_does_not_split_it(text: str) -> None:
    assert split(text).sentences == (text,)


def test_white_space_and_line_breaks_are_kept() -> None:
    parts = split("  One.  Two.\r\n\n\tThree. ")
    assert parts.joined([sentence.upper() for sentence in parts.sentences]) == "  ONE.  TWO.\r\n\n\tTHREE. "


def test_long_sentence_is_cut_at_a_clause_rather_than_a_space() -> None:
    text = "one two three four, five six seven eight"
    assert split(text, 25).sentences == ("one two three four,", "five six seven eight")
    assert split(text.replace(",", ""), 25).sentences == (
        "one two three four",
        "five six seven eight",
    )


def test_long_word_is_cut_but_not_between_a_letter_and_its_accent() -> None:
    text = "e\u0301" * 8
    assert split(text, 6).sentences == ("e\u0301" * 2,) * 4
    assert split("e\u0301" * 7, 8).sentences == ("e\u0301" * 4, "e\u0301" * 3)


@pytest.mark.parametrize("unit", [" ", "\u00a0", ".", "!", ". ", "a.", "\n", ". a", ".)", "。", ",", "4. "])
def test_splitting_takes_linear_time(unit: str) -> None:
    """With 200,000 characters, quadratic time would run into the timeout of the test suite."""
    text = "a" + unit * 200_000 + "b"
    parts = split(text)
    assert parts.joined(parts.sentences) == text
