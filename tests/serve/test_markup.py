"""HTML: tags stay, texts are translated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.serve.markup import Markup


def shouted(source: str) -> str:
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
def test_texts_are_translated_and_tags_are_not(source: str, translated: str) -> None:
    assert shouted(source) == translated


def test_a_translation_cannot_become_a_tag() -> None:
    markup = Markup("<p>x</p>")
    assert markup.joined(["<img src=x onerror=alert(1)>"]) == "<p>&lt;img src=x onerror=alert(1)&gt;</p>"


@given(st.text(st.sampled_from("<>/!-?&;[]ab \"'="), max_size=40))
def test_no_html_is_too_broken(source: str) -> None:
    markup = Markup(source)
    markup.joined(markup.texts)


@pytest.mark.parametrize("unit", ["<a ", "<a/", "<a b='", "<!--", "<", "<a>", "&", "&amp", "<pre>", "<a \"'", "</"])
def test_no_html_is_looked_at_again_and_again(unit: str) -> None:
    """Nothing but a time-out would show a slow pattern: 200,000 characters make it plain."""
    markup = Markup(unit * (200_000 // len(unit)))
    markup.joined(markup.texts)


@given(st.text(st.sampled_from("<>/!-?&;[]ab \"'="), max_size=40))
def test_what_is_not_escaped_comes_back_as_it_was(source: str) -> None:
    markup = Markup(source.replace("&", "").replace(">", ""))
    assert markup.joined(markup.texts).replace("&lt;", "<") == source.replace("&", "").replace(">", "")
