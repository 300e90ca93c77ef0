"""Text into sentences and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.serve.sentences import split

ENDS_AND_GAPS = st.text(st.sampled_from("aB4. ,!?…\n\t\r\u2028\u00a0。\"'(Dr"), max_size=60)
TEXTS = st.one_of(st.text(max_size=200), ENDS_AND_GAPS)


@given(TEXTS)
def test_what_was_split_joins_to_the_same_text(text: str) -> None:
    pieces = split(text)
    assert pieces.joined(pieces.sentences) == text


@given(TEXTS, st.integers(1, 5))
def test_what_was_cut_joins_to_the_same_text_and_fits(text: str, longest: int) -> None:
    pieces = split(text, lambda sentence: len(sentence) <= longest)
    assert pieces.joined(pieces.sentences) == text
    assert all(len(sentence) <= longest for sentence in pieces.sentences)


@given(TEXTS)
def test_a_sentence_is_bare_and_on_one_line(text: str) -> None:
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
def test_sentences_are_told_apart(text: str, sentences: tuple[str, ...]) -> None:
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
def test_what_belongs_together_stays_whole(text: str) -> None:
    assert split(text).sentences == (text,)


def test_white_space_and_line_breaks_stay_where_they_were() -> None:
    pieces = split("  One.  Two.\r\n\n\tThree. ")
    assert pieces.joined([sentence.upper() for sentence in pieces.sentences]) == "  ONE.  TWO.\r\n\n\tTHREE. "


def test_a_long_sentence_is_cut_at_a_clause_before_a_space() -> None:
    text = "one two three four, five six seven eight"
    assert split(text, lambda s: len(s) <= 25).sentences == ("one two three four,", "five six seven eight")
    assert split(text.replace(",", ""), lambda s: len(s) <= 25).sentences == (
        "one two three four",
        "five six seven eight",
    )


def test_what_has_no_space_is_cut_but_not_between_a_letter_and_its_accent() -> None:
    text = "e\u0301" * 8
    assert split(text, lambda s: len(s) <= 6).sentences == ("e\u0301" * 2,) * 4
    assert split("e\u0301" * 7, lambda s: len(s) <= 8).sentences == ("e\u0301" * 4, "e\u0301" * 3)


@pytest.mark.parametrize("unit", [" ", "\u00a0", ".", "!", ". ", "a.", "\n", ". a", ".)", "。", ",", "4. "])
def test_no_text_takes_more_than_a_few_looks_at_each_character(unit: str) -> None:
    """A time-out of the whole suite would be the only sign of a slow pattern; 200,000 characters make it plain."""
    text = "a" + unit * 200_000 + "b"
    pieces = split(text)
    assert pieces.joined(pieces.sentences) == text
