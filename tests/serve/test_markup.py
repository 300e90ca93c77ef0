"""HTML: tags are kept, texts are translated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.serve.markup import Markup


def translated_to_upper_case(source: str) -> str:
    markup = Markup(source)
    return markup.joined([text.upper() for text in markup.texts])


@pytest.mark.parametrize(
    ("source", "translated"),
    [
        ("<p>one <b class='x'>two</b></p>", "<p>ONE <b class='x'>TWO</b></p>"),
        ("a &lt;b&gt; &amp; c", "A &lt;B&gt; &amp; C"),
        ("<br/>a<!-- b --><?c d?>", "<br/>A<!-- b --><?c d?>"),
        ("<script>a < b && c</script>d", "<script>a < b && c</script>D"),
        ("<code>a &lt; b</code> c", "<code>a &lt; b</code> C"),
        ("<!DOCTYPE html>a", "<!DOCTYPE html>A"),
        ("no tags", "NO TAGS"),
        ("<PRE>a<b>c</b></PRE>d", "<PRE>a<b>c</b></PRE>D"),
        ("<!-- a", "<!-- a"),
        ("1 < 2", "1 &lt; 2"),
        ("<p title='a>b'> </p>c", "<p title='a>b'> </p>C"),
        ("", ""),
    ],
)
def test_texts_are_translated_and_tags_are_kept(source: str, translated: str) -> None:
    assert translated_to_upper_case(source) == translated


def test_translation_is_escaped() -> None:
    markup = Markup("<p>x</p>")
    assert markup.joined(["<img src=x onerror=alert(1)>"]) == "<p>&lt;img src=x onerror=alert(1)&gt;</p>"


@given(st.text(st.sampled_from("<>/!-?&;[]ab \"'="), max_size=40))
def test_any_broken_html_is_accepted(source: str) -> None:
    markup = Markup(source)
    markup.joined(markup.texts)


@pytest.mark.parametrize("unit", ["<a ", "<a/", "<a b='", "<!--", "<", "<a>", "&", "&amp", "<pre>", "<a \"'", "</"])
def test_parsing_takes_linear_time(unit: str) -> None:
    """With 200,000 characters, quadratic time would run into the timeout of the test suite."""
    markup = Markup(unit * (200_000 // len(unit)))
    markup.joined(markup.texts)


@given(st.text(st.sampled_from("<>/!-?&;[]ab \"'="), max_size=40))
def test_joining_the_same_texts_restores_the_source(source: str) -> None:
    markup = Markup(source.replace("&", "").replace(">", ""))
    assert markup.joined(markup.texts).replace("&lt;", "<") == source.replace("&", "").replace(">", "")
