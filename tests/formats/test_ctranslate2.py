"""CTranslate2 writes what torch writes, and says which part stands in the way where it cannot run a model."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from formats.small import SOURCES, TARGETS, make_run, recipe, written
from saccade.api import Run
from saccade.decode.engine import Cancelled, DecodeConfig, search_settings
from saccade.errors import ConfigError, DataError, RunError
from saccade.formats import ctranslate2 as format_
from saccade.formats.ctranslate2_engine import MIN_BATCH_SENTENCES, batch_sentences

pytest.importorskip("ctranslate2")

MODELS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"model": {"block": {"connection": "post"}}},
    "gelu, dot": {
        "model": {
            "block": {
                "feed_forward": {"activation": "gelu"},
                "self": {"score": "dot"},
                "cross": {"score": "dot"},
            }
        }
    },
    "swish, other depth": {"model": {"decoder": {"depth": 3}, "block": {"feed_forward": {"activation": "swish"}}}},
    "learned places": {"model": {"encoder": {"position": "learned"}, "decoder": {"position": "learned"}}},
    "apart": {"model": {"shared_embeddings": False}, "data": {"joint": False}},
    "unscaled": {"model": {"encoder": {"embedding": {"scaled": False}}, "decoder": {"embedding": {"scaled": False}}}},
    "linear head": {"model": {"head": "linear"}},
    "tied head with a bias": {"model": {"head": {"kind": "tied", "bias": True}}},
    "words": {"data": {"tokenizer": {"kind": "words", "size": 60}}},
    "bytes": {"data": {"tokenizer": {"kind": "bytes"}}},
}


def engine(run: Run, folder: Path, **options: Any) -> Any:
    format_.write(run, folder, **options)
    return format_.open(folder)


def search(run: Run, **changes: Any) -> DecodeConfig:
    return search_settings(run.recipe.decode, changes)


@pytest.mark.parametrize("wide", [{}, {"search": {"kind": "beam", "size": 3}}], ids=["greedy", "beam"])
def test_who_asks_for_text_gets_the_same_text(wide: dict[str, Any], tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    theirs = engine(run, tmp_path / "folder")
    for length in ({}, {"ratio": 0.3, "extra": 0}):  # cut off, too
        whole, text = (written(theirs, search(run, scores=only, **wide, **length)) for only in (True, False))
        assert [[(o.text, o.ids) for o in each] for each in text] == [[(o.text, o.ids) for o in each] for each in whole]
        assert all(math.isfinite(o.score) and o.pieces for each in whole for o in each if o.text)
        assert all(math.isnan(o.score) and not o.pieces for each in text for o in each if o.text)


@pytest.mark.parametrize("name", MODELS)
def test_greedy_outputs_are_those_of_torch(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", **MODELS[name])
    theirs = engine(run, tmp_path / "folder")
    seen = set()
    for settings in (search(run), search(run, ratio=0.3, extra=0), search(run, ratio=0.0, extra=0)):
        for ours, its in zip(written(run.engine, settings), written(theirs, settings), strict=True):
            assert [o.ids for o in its] == [o.ids for o in ours]
            assert [o.text for o in its] == [o.text for o in ours]
            assert [o.pieces for o in its] == [o.pieces for o in ours]
            assert math.isclose(its[0].log_prob, ours[0].log_prob, abs_tol=1e-3)
            assert math.isclose(its[0].score, ours[0].score, abs_tol=1e-4)
            seen.add(ours[0].ids)
    assert len({token for ids in seen for token in ids}) > 2, "outputs of no interest"


def test_a_prefix_is_forced_as_torch_forces_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    theirs, settings = engine(run, tmp_path / "folder"), search(run)
    prefixes = ["the dog", "", "a", "the cat", "the", "at", "old"]
    for ours, its in zip(
        written(run.engine, settings, prefixes=prefixes), written(theirs, settings, prefixes=prefixes), strict=True
    ):
        assert its[0].ids == ours[0].ids
        assert math.isclose(its[0].log_prob, ours[0].log_prob, abs_tol=1e-3)
    with pytest.raises(ConfigError, match="does not count the cost of a prefix"):
        written(theirs, search(run, search={"kind": "beam", "size": 2}), prefixes=prefixes)
    with pytest.raises(DataError, match="1 prefixes do not go with 7 sources"):
        written(theirs, settings, prefixes=["a"])


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_is_scored_as_torch_scores_it(penalty: float, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", by=1.0)
    settings = search(run, search={"kind": "beam", "size": 4, "best": 3, "length_penalty": penalty}, extra=40)
    sources = [source for source in SOURCES if source]
    found = written(engine(run, tmp_path / "folder"), settings, sources)
    for source, outputs in zip(sources, found, strict=True):
        assert 1 <= len(outputs) <= 3
        assert [o.score for o in outputs] == sorted((o.score for o in outputs), reverse=True)
        for output in outputs:
            forced = -forced_cost(run, source, output.ids)
            assert math.isclose(output.log_prob, forced, abs_tol=2e-3)
            assert math.isclose(output.score, forced / len(output.ids) ** penalty, abs_tol=2e-3)


def forced_cost(run: Run, source: str, ids: tuple[int, ...]) -> float:
    from saccade.data.batches import Corpus
    from saccade.tasks.translation import teacher_forced_cost

    return teacher_forced_cost(run.model, Corpus(run.codecs.source.encode([source]), [list(ids[:-1])]), 4096)[0]


def test_company_does_not_change_an_output(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    theirs = engine(run, tmp_path / "folder")
    lines = [*SOURCES, *TARGETS] * 3
    for kind in ({"kind": "greedy"}, {"kind": "beam", "size": 3}):
        settings = search(run, search=kind, batch_tokens=60)
        together = [outputs[0].ids for outputs in written(theirs, settings, lines)]
        alone = [written(theirs, settings, [line])[0][0].ids for line in lines]
        assert together == alone


def test_int8_is_smaller_and_still_writes(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"dim": 64})
    small = engine(run, tmp_path / "small", quantization="int8")
    engine(run, tmp_path / "large")
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("small", "large")]
    assert sizes[0] < sizes[1]
    assert len(written(small, search(run))) == len(SOURCES)


def test_a_line_that_is_too_long_goes_to_torch_or_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_, "CTRANSLATE2_POSITIONS", 24)
    run = make_run(tmp_path / "run")
    format_.write(run, tmp_path / "folder")
    lines = ["ein Kind", "ein Haus am See " * 5, "ein"]
    settings = search(run, extra=2)
    wanted = [outputs[0].ids for outputs in written(run.engine, settings, lines)]
    found = written(format_.open(tmp_path / "folder", lambda: run.engine), settings, lines)
    assert [outputs[0].ids for outputs in found] == wanted
    with pytest.raises(DataError, match="sentence 2: is too long"):
        written(format_.open(tmp_path / "folder"), settings, lines)


def test_nobody_waits_for_a_search_that_was_given_up(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(Cancelled):
        written(engine(run, tmp_path / "folder"), search(run), should_continue=lambda: False)


def test_weights_of_no_use_are_noticed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with torch.no_grad():
        run.model.decoder.final_norm.weight.fill_(math.nan)
    with pytest.raises(RunError, match="not finite"):
        written(engine(run, tmp_path / "folder"), search(run))


@pytest.mark.parametrize("name", ["model.bin", "saccade.json", "joint.model", "manifest.json"])
def test_a_damaged_folder_is_refused_with_its_file(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    format_.write(run, tmp_path / "folder")
    path = tmp_path / "folder" / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(RunError, match=name):
        format_.open(tmp_path / "folder")


OBSTACLES: dict[str, dict[str, Any]] = {
    'model.encoder: CTranslate2 knows no "recurrent"': {"model": {"encoder": {"kind": "recurrent", "depth": 1}}},
    'model.decoder.block.cross.score: CTranslate2 knows no "additive"': {
        "model": {"decoder": {"block": {"cross": {"score": "additive"}}}}
    },
    'model.encoder.block.self.normalizer: CTranslate2 knows no "sparsemax"': {
        "model": {"encoder": {"block": {"self": {"normalizer": "sparsemax"}}}}
    },
    "model.decoder.block.cross.heads: CTranslate2 has one number of heads": {
        "model": {"decoder": {"block": {"cross": {"heads": 4}}}}
    },
    "model.encoder.block.self.key_width: CTranslate2 divides the width": {
        "model": {"encoder": {"block": {"self": {"key_width": 5, "value_width": 8}}}}
    },
    "model.decoder.block.norm.eps: CTranslate2 has one eps": {"model": {"decoder": {"block": {"norm": {"eps": 1e-3}}}}},
    "task: CTranslate2 is for models that write": {"task": "tagging"},
}


@pytest.mark.parametrize("reason", OBSTACLES)
def test_what_stands_in_the_way_is_named(reason: str) -> None:
    options = dict(OBSTACLES[reason])
    model = options.pop("model", None)
    assert (format_.why_not(recipe(model, **options)) or "").startswith(reason)
    assert format_.why_not(recipe()) is None


@given(st.integers(1, 3000), st.integers(1, 8))
def test_no_worker_is_left_alone_with_much(sentences: int, workers: int) -> None:
    """Each batch goes to the worker that is free first; a sentence takes as long as another."""
    left, busy, batches = sentences, [0] * workers, []
    while left:
        batches.append(min(left, batch_sentences(left, sentences, workers)))
        left -= batches[-1]
        busy[busy.index(min(busy))] += batches[-1]
    assert batches == sorted(batches, reverse=True)
    assert max(busy) <= sentences / workers + MIN_BATCH_SENTENCES, "others wait for one"
    assert len(batches) >= min(workers, sentences) / 2, "most have nothing"
    assert len(batches) <= workers + sentences / MIN_BATCH_SENTENCES, "too many are too small"
