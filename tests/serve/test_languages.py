"""Which languages a run translates, which run a request means, and which language a text is in."""

from types import SimpleNamespace
from typing import Any

import pytest

from saccade.recipe import recipe_of
from saccade.serve.detect import Detector
from saccade.serve.errors import ApiError
from saccade.serve.language_pairs import parse_run_argument
from saccade.serve.languages import language_name, pair_of
from saccade.serve.registry import ModelRegistry


@pytest.mark.parametrize(
    ("argument", "meant"),
    [
        ("en-de=runs/x", (("en", "de"), "runs/x")),
        ("pt_BR-en=x", (("pt_BR", "en"), "x")),
        ("runs/x", (None, "runs/x")),
        ("runs/a=b", (None, "runs/a=b")),
        ("en-de=a=b", (("en", "de"), "a=b")),
        ("en-de", (None, "en-de")),
    ],
)
def test_languages_can_be_typed_before_a_path(argument: str, meant: Any) -> None:
    assert parse_run_argument(argument) == meant


@pytest.mark.parametrize(
    ("train", "pair"),
    [
        ({"kind": "dates", "from": "fr", "to": "es"}, ("fr", "es")),
        ({"kind": "pairs", "src": "a/train.de.gz", "tgt": "train.en"}, ("de", "en")),
        ({"kind": "pairs", "src": "de.txt", "tgt": "en.txt"}, None),
        ({"kind": "pairs", "src": "train.src", "tgt": "train.tgt"}, None),
        ({"kind": "pairs", "src": "a.de", "tgt": "b.de"}, None),
        ({"kind": "jsonl", "file": "x", "src": "de", "tgt": "en"}, ("de", "en")),
        ({"kind": "jsonl", "file": "x"}, None),
        ({"kind": "tsv", "file": "x"}, None),
        ({"kind": "sort"}, None),
    ],
)
def test_a_recipe_says_its_languages_or_says_nothing(train: dict[str, Any], pair: Any) -> None:
    assert pair_of(recipe_of({"data": {"train": train}})) == pair


def test_languages_have_names() -> None:
    assert language_name("de") == "German"
    assert language_name("pt_BR").startswith("Portuguese")
    assert language_name("q") == "q"


def models(*pairs: str) -> Any:
    return [SimpleNamespace(name=f"m{i}", source=pair[:2], target=pair[3:]) for i, pair in enumerate(pairs)]


def test_the_first_model_of_a_pair_is_meant_unless_another_is_named() -> None:
    served = ModelRegistry(models("en-de", "en-de", "de-en", "en-fr"))
    assert [m.name for m in served.fitting("en", "de")] == ["m0", "m1"]
    assert [m.name for m in served.fitting("en", "de", "m1")] == ["m1"]
    assert [m.name for m in served.fitting(None, "en")] == ["m2"]
    assert served.languages == ["en", "de", "fr"]
    assert served.targets("en") == ["de", "fr"]
    assert served.targets("fr") == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("zz", "de"), "zz is not supported"),
        (("en", "en"), "en to en is not supported"),
        (("fr", "de"), "fr to de is not supported"),
        (("en", "de", "m9"), "there is no such model"),
    ],
)
def test_what_no_model_can_do_is_refused_with_400(asked: tuple[str, ...], said: str) -> None:
    with pytest.raises(ApiError, match=said) as refusal:
        ModelRegistry(models("en-de", "en-fr")).fitting(*asked)
    assert refusal.value.status == 400


def test_the_language_of_a_text_is_found_among_those_that_are_served() -> None:
    detector = Detector(["en", "de", "fr"])
    assert detector.rank("Zwei Hunde laufen über die Wiese.", ["en", "de", "fr"])[0][0] == "de"
    assert detector.rank("Two dogs run across the meadow.", ["en", "de", "fr"])[0][0] == "en"
    ranked = detector.rank("Zwei Hunde laufen über die Wiese.", ["en", "fr"])
    assert {code for code, _ in ranked} == {"en", "fr"}
    assert all(0 <= confidence < 20 for _, confidence in ranked)


@pytest.mark.parametrize("text", ["", " ", "4", "\x00", "🦔", "a" * 100_000])
def test_every_text_has_a_language_with_a_confidence(text: str) -> None:
    ranked = Detector(["en", "xx"]).rank(text, ["xx", "en"])
    assert sorted(code for code, _ in ranked) == ["en", "xx"]
    assert all(0 <= confidence <= 100 for _, confidence in ranked)
