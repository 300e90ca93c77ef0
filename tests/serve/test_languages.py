"""The language pair of a run, the model for a request, and language detection."""

from types import SimpleNamespace
from typing import Any

import pytest

from saccade.recipe import recipe_of
from saccade.serve.detect import LanguageDetector
from saccade.serve.errors import ApiError
from saccade.serve.language_pairs import parse_run_argument
from saccade.serve.languages import language_name, language_pair_of
from saccade.serve.registry import ModelRegistry


@pytest.mark.parametrize(
    ("argument", "parsed"),
    [
        ("en-de=runs/x", (("en", "de"), "runs/x")),
        ("pt_BR-en=x", (("pt_BR", "en"), "x")),
        ("runs/x", (None, "runs/x")),
        ("runs/a=b", (None, "runs/a=b")),
        ("en-de=a=b", (("en", "de"), "a=b")),
        ("en-de", (None, "en-de")),
    ],
)
def test_language_pair_before_a_path_is_parsed(argument: str, parsed: Any) -> None:
    assert parse_run_argument(argument) == parsed


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
def test_language_pair_comes_from_the_training_data(train: dict[str, Any], pair: Any) -> None:
    assert language_pair_of(recipe_of({"data": {"train": train}})) == pair


def test_language_codes_have_english_names() -> None:
    assert language_name("de") == "German"
    assert language_name("pt_BR").startswith("Portuguese")
    assert language_name("q") == "q"


def models(*pairs: str) -> Any:
    return [SimpleNamespace(name=f"m{i}", source=pair[:2], target=pair[3:]) for i, pair in enumerate(pairs)]


def test_first_model_of_a_pair_is_used_unless_one_is_named() -> None:
    registry = ModelRegistry(models("en-de", "en-de", "de-en", "en-fr"))
    assert [m.name for m in registry.matching("en", "de")] == ["m0", "m1"]
    assert [m.name for m in registry.matching("en", "de", "m1")] == ["m1"]
    assert [m.name for m in registry.matching(None, "en")] == ["m2"]
    assert registry.languages == ["en", "de", "fr"]
    assert registry.targets_of("en") == ["de", "fr"]
    assert registry.targets_of("fr") == []


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (("zz", "de"), "language zz is not supported"),
        (("en", "en"), "en to en is not supported"),
        (("fr", "de"), "fr to de is not supported"),
        (("en", "de", "m9"), "there is no such model"),
        (("en", "de", "m1"), r"model m1 does not translate en to de; .* or leave 'model' out"),
        ((None, "de", "m1"), "model m1 does not translate any language to de"),
    ],
)
def test_unsupported_pair_or_model_is_400(requested: tuple[str, ...], message: str) -> None:
    with pytest.raises(ApiError, match=message) as error:
        ModelRegistry(models("en-de", "en-fr")).matching(*requested)
    assert error.value.status == 400


def test_language_is_detected_among_the_served_ones() -> None:
    detector = LanguageDetector(["en", "de", "fr"])
    assert detector.rank("Zwei Hunde laufen über die Wiese.", ["en", "de", "fr"])[0][0] == "de"
    assert detector.rank("Two dogs run across the meadow.", ["en", "de", "fr"])[0][0] == "en"
    ranked = detector.rank("Zwei Hunde laufen über die Wiese.", ["en", "fr"])
    assert {code for code, _ in ranked} == {"en", "fr"}
    assert all(0 <= confidence < 20 for _, confidence in ranked)


@pytest.mark.parametrize("text", ["", " ", "4", "\x00", "🦔", "a" * 100_000])
def test_any_text_gets_a_confidence_for_every_language(text: str) -> None:
    ranked = LanguageDetector(["en", "xx"]).rank(text, ["xx", "en"])
    assert sorted(code for code, _ in ranked) == ["en", "xx"]
    assert all(0 <= confidence <= 100 for _, confidence in ranked)
