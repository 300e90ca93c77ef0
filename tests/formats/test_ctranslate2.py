"""CTranslate2 gives the outputs of torch, and names the config key of a model that it cannot run."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from formats.small import SOURCES, TARGETS, make_run, outputs_of, recipe
from saccade.api import Run
from saccade.decode.engine import Cancelled, DecodeConfig, changed_decode_config
from saccade.errors import ConfigError, DataError, RunError
from saccade.formats import ctranslate2 as format_
from saccade.formats.ctranslate2_engine import MIN_BATCH_SENTENCES, next_batch_size

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
    "learned positions": {"model": {"encoder": {"position": "learned"}, "decoder": {"position": "learned"}}},
    "separate vocabularies": {"model": {"shared_embeddings": False}, "data": {"joint": False}},
    "unscaled": {"model": {"encoder": {"embedding": {"scaled": False}}, "decoder": {"embedding": {"scaled": False}}}},
    "linear head": {"model": {"head": "linear"}},
    "tied head with a bias": {"model": {"head": {"kind": "tied", "bias": True}}},
    "rms norm": {"model": {"block": {"norm": "rms"}}},
    "post-norm, rms norm with a large eps": {
        "model": {"block": {"connection": "post", "norm": {"kind": "rms", "eps": 0.3}}}
    },
    "gated": {"model": {"block": {"feed_forward": {"kind": "gated", "inner": 24}}}},
    "gated gelu, rms norm": {
        "model": {"block": {"feed_forward": {"kind": "gated", "inner": 24, "activation": "gelu"}, "norm": "rms"}}
    },
    "words": {"data": {"tokenizer": {"kind": "words", "size": 60}}},
    "bytes": {"data": {"tokenizer": {"kind": "bytes"}}},
}


def engine(run: Run, folder: Path, **options: Any) -> Any:
    format_.write(run, folder, **options)
    return format_.open(folder)


def search(run: Run, **changes: Any) -> DecodeConfig:
    return changed_decode_config(run.recipe.decode, changes)


@pytest.mark.parametrize("wide", [{}, {"search": {"kind": "beam", "size": 3}}], ids=["greedy", "beam"])
def test_outputs_without_scores_equal_those_with_scores(wide: dict[str, Any], tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    exported = engine(run, tmp_path / "folder")
    for length in ({}, {"ratio": 0.3, "extra": 0}):  # the second cuts outputs off
        scored, unscored = (
            outputs_of(exported, search(run, scores=scores, **wide, **length)) for scores in (True, False)
        )
        assert [[(o.text, o.ids) for o in outputs] for outputs in unscored] == [
            [(o.text, o.ids) for o in outputs] for outputs in scored
        ]
        assert all(math.isfinite(o.score) and o.pieces for outputs in scored for o in outputs if o.text)
        assert all(math.isnan(o.score) and not o.pieces for outputs in unscored for o in outputs if o.text)


@pytest.mark.parametrize("name", MODELS)
def test_greedy_outputs_equal_those_of_torch(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", **MODELS[name])
    exported = engine(run, tmp_path / "folder")
    seen = set()
    for settings in (search(run), search(run, ratio=0.3, extra=0), search(run, ratio=0.0, extra=0)):
        for torch_outputs, outputs in zip(
            outputs_of(run.engine, settings), outputs_of(exported, settings), strict=True
        ):
            assert [o.ids for o in outputs] == [o.ids for o in torch_outputs]
            assert [o.text for o in outputs] == [o.text for o in torch_outputs]
            assert [o.pieces for o in outputs] == [o.pieces for o in torch_outputs]
            assert math.isclose(outputs[0].log_prob, torch_outputs[0].log_prob, abs_tol=1e-3)
            assert math.isclose(outputs[0].score, torch_outputs[0].score, abs_tol=1e-4)
            seen.add(torch_outputs[0].ids)
    assert len({token for ids in seen for token in ids}) > 2, "the outputs are trivial, so nothing was tested"


def test_forced_prefixes_give_the_outputs_of_torch(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    exported, settings = engine(run, tmp_path / "folder"), search(run)
    prefixes = ["the dog", "", "a", "the cat", "the", "at", "old"]
    for torch_outputs, outputs in zip(
        outputs_of(run.engine, settings, prefixes=prefixes),
        outputs_of(exported, settings, prefixes=prefixes),
        strict=True,
    ):
        assert outputs[0].ids == torch_outputs[0].ids
        assert math.isclose(outputs[0].log_prob, torch_outputs[0].log_prob, abs_tol=1e-3)


def test_prefixes_with_beam_search_or_of_another_number_than_sources_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    exported = engine(run, tmp_path / "folder")
    prefixes = ["the dog", "", "a", "the cat", "the", "at", "old"]
    with pytest.raises(ConfigError, match="does not score a prefix"):
        outputs_of(exported, search(run, search={"kind": "beam", "size": 2}), prefixes=prefixes)
    with pytest.raises(DataError, match="got 1 prefixes for 7 sources"):
        outputs_of(exported, search(run), prefixes=["a"])


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_beam_outputs_have_their_teacher_forced_scores(penalty: float, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", by=1.0)
    settings = search(run, search={"kind": "beam", "size": 4, "best": 3, "length_penalty": penalty}, extra=40)
    sources = [source for source in SOURCES if source]
    results = outputs_of(engine(run, tmp_path / "folder"), settings, sources)
    for source, outputs in zip(sources, results, strict=True):
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


def test_output_does_not_depend_on_the_other_lines(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    exported = engine(run, tmp_path / "folder")
    lines = [*SOURCES, *TARGETS] * 3
    for kind in ({"kind": "greedy"}, {"kind": "beam", "size": 3}):
        settings = search(run, search=kind, batch_tokens=60)
        batched = [outputs[0].ids for outputs in outputs_of(exported, settings, lines)]
        single = [outputs_of(exported, settings, [line])[0][0].ids for line in lines]
        assert batched == single


def test_int8_is_smaller_and_translates(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"dim": 64})
    small = engine(run, tmp_path / "small", quantization="int8")
    engine(run, tmp_path / "large")
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("small", "large")]
    assert sizes[0] < sizes[1]
    assert len(outputs_of(small, search(run))) == len(SOURCES)


def test_too_long_line_goes_to_the_fallback_engine_or_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(format_, "CTRANSLATE2_POSITIONS", 24)
    run = make_run(tmp_path / "run")
    format_.write(run, tmp_path / "folder")
    lines = ["ein Kind", "ein Haus am See " * 5, "ein"]
    settings = search(run, extra=2)
    expected = [outputs[0].ids for outputs in outputs_of(run.engine, settings, lines)]
    results = outputs_of(format_.open(tmp_path / "folder", lambda: run.engine), settings, lines)
    assert [outputs[0].ids for outputs in results] == expected
    with pytest.raises(DataError, match="sentence 2: it or its longest possible output exceeds the 24 source"):
        outputs_of(format_.open(tmp_path / "folder"), settings, lines)


def test_cancelled_search_raises_cancelled(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(Cancelled):
        outputs_of(engine(run, tmp_path / "folder"), search(run), should_continue=lambda: False)


def test_output_that_is_not_finite_is_an_error(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with torch.no_grad():
        run.model.decoder.final_norm.weight.fill_(math.nan)
    with pytest.raises(RunError, match="output is NaN or infinite"):
        outputs_of(engine(run, tmp_path / "folder"), search(run))


@pytest.mark.parametrize("name", ["model.bin", "saccade.json", "joint.model", "manifest.json"])
def test_damaged_file_is_refused_by_name(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    format_.write(run, tmp_path / "folder")
    path = tmp_path / "folder" / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(RunError, match=name):
        format_.open(tmp_path / "folder")


OBSTACLES: dict[str, dict[str, Any]] = {
    "model.encoder.exceptions: CTranslate2 has the same block in all layers": {
        "model": {"encoder": {"exceptions": [{"at": [1], "norm": {"eps": 1e-4}}]}}
    },
    'model.encoder: CTranslate2 does not support "recurrent"': {
        "model": {"encoder": {"kind": "recurrent", "depth": 1}}
    },
    'model.decoder.block.cross.score: CTranslate2 does not support "additive"': {
        "model": {"decoder": {"block": {"cross": {"score": "additive"}}}}
    },
    'model.encoder.block.self.normalizer: CTranslate2 does not support "sparsemax"': {
        "model": {"encoder": {"block": {"self": {"normalizer": "sparsemax"}}}}
    },
    "model.decoder.block.cross.heads: CTranslate2 has one number of heads": {
        "model": {"decoder": {"block": {"cross": {"heads": 4}}}}
    },
    "model.encoder.block.self.key_width: CTranslate2 always uses model.dim / heads": {
        "model": {"encoder": {"block": {"self": {"key_width": 5, "value_width": 8}}}}
    },
    "model.decoder.block.norm.eps: CTranslate2 has one eps": {"model": {"decoder": {"block": {"norm": {"eps": 1e-3}}}}},
    "task: CTranslate2 needs a model with a decoder": {"task": "tagging"},
}


@pytest.mark.parametrize("reason", OBSTACLES)
def test_unsupported_config_key_is_named(reason: str) -> None:
    options = dict(OBSTACLES[reason])
    model = options.pop("model", None)
    assert (format_.why_not(recipe(model, **options)) or "").startswith(reason)
    assert format_.why_not(recipe()) is None


@given(st.integers(1, 3000), st.integers(1, 8))
def test_batch_sizes_keep_all_workers_busy_until_the_end(sentences: int, workers: int) -> None:
    """Each batch goes to the worker that is free first; all sentences take equally long."""
    remaining, busy, batches = sentences, [0] * workers, []
    while remaining:
        batches.append(min(remaining, next_batch_size(remaining, sentences, workers)))
        remaining -= batches[-1]
        busy[busy.index(min(busy))] += batches[-1]
    assert batches == sorted(batches, reverse=True)
    assert max(busy) <= sentences / workers + MIN_BATCH_SENTENCES, "the other workers wait for one"
    assert len(batches) >= min(workers, sentences) / 2, "most workers have no batch"
    assert len(batches) <= workers + sentences / MIN_BATCH_SENTENCES, "too many batches are too small"
