"""Translation metrics equal those of sacreBLEU, and the published scores of WMT17 systems."""

import os
from pathlib import Path

import pytest
import sacrebleu

from saccade.errors import DataError
from saccade.lines import file_lines
from saccade.metrics.pairs import paired
from saccade.metrics.translation import bleu, chrf, exact_match, score

REFERENCES = [
    "The cat sat on the mat.",
    "Es regnet heute, aber morgen scheint die Sonne.",
    'He said: "It is 3.50 € (or so)."',
    "Über die Straße ging ein kleiner Hund",
    "Yes.",
]
HYPOTHESES = [
    "The Cat sat on the mat.",
    "Es regnet heute, doch morgen scheint die Sonne.",
    'He says: "It is 3.50 € or so."',
    "Über die Straße ging ein kleiner Hund",
    "No.",
]


def test_scores_equal_sacrebleu():
    scores = score(HYPOTHESES, REFERENCES)
    assert scores.bleu == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores.chrf == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert scores.bleu_lowercase == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=True).score
    assert scores.bleu == bleu(HYPOTHESES, REFERENCES)
    assert scores.chrf == chrf(HYPOTHESES, REFERENCES)
    assert scores.sentences == 5
    assert 0 < scores.bleu < scores.bleu_lowercase < 100


def test_lowercased_bleu_equals_bleu_of_lowercased_text():
    lower = [[text.lower() for text in texts] for texts in (HYPOTHESES, REFERENCES)]
    assert score(HYPOTHESES, REFERENCES).bleu_lowercase == pytest.approx(bleu(*lower))


def test_signatures_describe_the_metrics():
    signatures = score(HYPOTHESES, REFERENCES).signatures
    version = f"version:{sacrebleu.__version__}"
    assert all(version in signature for signature in signatures.values())
    assert "nrefs:1|" in signatures["bleu"]
    assert "case:mixed|eff:no|tok:13a|smooth:exp" in signatures["bleu"]
    assert "case:lc|eff:no|tok:13a|smooth:exp" in signatures["bleu_lowercase"]
    assert "nc:6|nw:0" in signatures["chrf"]
    assert "bs:1000" in signatures["bleu"]


def test_intervals_contain_the_scores_and_are_deterministic():
    first, second = score(HYPOTHESES, REFERENCES), score(HYPOTHESES, REFERENCES)
    assert first == second
    for name in ("bleu", "chrf", "bleu_lowercase"):
        low, high = first.interval[name]
        assert low < high
        assert low <= getattr(first, name) <= high


def test_exact_match_counts_identical_lines():
    assert score(HYPOTHESES, REFERENCES).exact_match == 20.0
    assert exact_match(["a", "b ", "C", "d"], ["a", "b", "c", "d"]) == 50.0
    assert exact_match([], []) == 0.0


def test_perfect_translation_scores_100():
    scores = score(REFERENCES, REFERENCES)
    assert (scores.exact_match, round(scores.bleu, 6), round(scores.chrf, 6)) == (100.0, 100.0, 100.0)


def test_interval_of_a_single_sentence_has_width_0():
    scores = score(HYPOTHESES[1:2], REFERENCES[1:2])
    assert scores.bleu == sacrebleu.corpus_bleu(HYPOTHESES[1:2], [REFERENCES[1:2]]).score
    assert scores.interval["bleu"] == [scores.bleu, scores.bleu]
    assert scores.sentences == 1


def test_empty_translations_score_0():
    scores = score(["", "", ""], ["a b c d", "e", "f g"])
    assert (scores.bleu, scores.chrf, scores.exact_match) == (0.0, 0.0, 0.0)


def test_interval_exists_if_some_translations_score_0():
    scores = score(["a b c d", "", ""], ["a b c d", "x", "y"])
    low, high = scores.interval["chrf"]
    assert low < scores.chrf < high


def test_plain_scores_are_json_values():
    plain = score(HYPOTHESES, REFERENCES).plain()
    keys = {"bleu", "chrf", "bleu_lowercase", "exact_match", "sentences", "signatures", "interval"}
    assert plain.keys() == keys
    assert {type(plain[key]) for key in ("bleu", "chrf", "bleu_lowercase", "exact_match")} == {float}
    assert all(type(end) is float for ends in plain["interval"].values() for end in ends)


def test_scoring_no_sentences_is_an_error():
    with pytest.raises(DataError, match="nothing to score"):
        score([], [])


@pytest.mark.parametrize(("more", "less"), [(5, 4), (4, 5)])
def test_unequal_lengths_are_an_error(more: int, less: int):
    with pytest.raises(DataError, match=f"there are {more} translations, but {less} references"):
        score(HYPOTHESES[:more], REFERENCES[:less])


def test_sources_and_references_of_unequal_length_are_an_error():
    assert paired(["a"], ["b"], "s", "r") == [("a", "b")]
    with pytest.raises(DataError, match="s: has 2 lines, but r has 1"):
        paired(["a", "b"], ["c"], "s", "r")


PUBLISHED = {
    "C-3MA.4959": 22.67,
    "FBK.4870": 26.33,
    "KIT.4950": 26.08,
    "SYSTRAN.4847": 26.71,
    "uedin-nmt.4722": 28.30,
    "online-A.0": 20.80,
}


@pytest.fixture(scope="session")
def wmt17() -> Path:
    folder = Path(os.environ.get("SACCADE_DATA", "/nowhere")) / "wmt17_ende"
    if not folder.is_dir():
        pytest.skip("SACCADE_DATA names no folder with wmt17_ende in it")
    return folder


@pytest.mark.parametrize("system", PUBLISHED)  # online-A begins with a byte order mark
def test_bleu_equals_the_published_score(system: str, wmt17: Path):
    references = list(file_lines(str(wmt17 / "reference.de.gz")))
    hypotheses = list(file_lines(str(wmt17 / f"newstest2017.{system}.en-de.de.gz")))
    assert len(references) == len(hypotheses) == 3004
    assert bleu(hypotheses, references) == pytest.approx(PUBLISHED[system], abs=0.01)


def test_evaluate_command_prints_the_published_score(wmt17: Path, capsys: pytest.CaptureFixture[str]):
    import json

    from saccade.cli import main

    hypotheses = wmt17 / "newstest2017.uedin-nmt.4722.en-de.de.gz"
    assert main(["evaluate", "--hyp", str(hypotheses), "--ref", str(wmt17 / "reference.de.gz"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["bleu"] == pytest.approx(28.30, abs=0.01)
    low, high = scores["interval"]["bleu"]
    assert low < 28.30 < high
    assert high - low < 2
