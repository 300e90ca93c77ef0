"""onnxruntime gives the results of torch for all sizes; the folder is complete and contains no paths of this machine;
unsupported models and damaged files are refused in one line."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import jaxtyping
import onnx
import pytest
import torch
from torch import Tensor, nn

from contracts.checks.common import perturbed
from saccade.api import Run, load
from saccade.config import Choice, python_layer, resolve
from saccade.data.batches import Padded
from saccade.data.codecs import Codecs
from saccade.data.tokenizers import WordKind
from saccade.decode.engine import Cancelled, DecodeConfig, in_order
from saccade.errors import DataError, RunError, SaccadeError
from saccade.formats import onnx as format_onnx
from saccade.formats.exported import read_exported
from saccade.formats.onnx_graphs import graphs
from saccade.models.assemble import DECODERS, ENCODERS, assemble
from saccade.parts import cells, connections, contexts, heads, normalizers, pools, positions, readouts, scores
from saccade.parts.mixers import MIXERS
from saccade.places import Places, select
from saccade.recipe import Recipe, recipe_of
from saccade.runs.folder import RunFolder
from saccade.runs.weights import write_checkpoint

HEADS = {"kind": "multi_head", "heads": 2}
BLOCK = {"self": HEADS, "feed_forward": {"inner": 11}}
STACKED = {"depth": 1, "block": BLOCK}
LEARNED = {"position": {"kind": "learned", "longest": 40}}


def stacked(**block: Any) -> dict[str, Any]:
    return STACKED | {"block": BLOCK | block}


def stacked_decoder(**block: Any) -> dict[str, Any]:
    return stacked(**{"cross": HEADS} | block)


def recurrent(**options: Any) -> dict[str, Any]:
    return {"kind": "recurrent"} | options


# Together they contain every kind of every part: see test_cases_contain_every_kind.
CASES: dict[str, dict[str, Any]] = {
    "pre-norm": {"encoder": STACKED, "decoder": stacked_decoder() | {"depth": 2}},
    "post-norm-learned-untied-hard-sparsemax": {
        "encoder": stacked(connection="post", self=HEADS | {"normalizer": "sparsemax"}) | LEARNED,
        "decoder": stacked_decoder(
            connection="post", self={"kind": "unprojected", "score": "additive"}, cross=HEADS | {"normalizer": "hard"}
        )
        | LEARNED,
        "head": "linear",
        "shared_embeddings": False,
    },
    "relative": {"encoder": stacked() | {"position": "t5"}, "decoder": stacked_decoder() | {"position": "rotary"}},
    "gru-additive-before": {
        "encoder": recurrent(cell="gru"),
        "decoder": recurrent(cell="gru", cross={"kind": "unprojected", "score": "additive"}),
    },
    "lstm-dot-after-fed": {
        "encoder": recurrent(cell="lstm", depth=2, bidirectional=False, pool="mean"),
        "decoder": recurrent(
            cell="lstm",
            depth=2,
            cross={"kind": "unprojected", "score": "dot"},
            attend="after",
            input_feeding=True,
            readout="attentional",
        ),
    },
    "tanh-coverage": {
        "encoder": recurrent(cell="tanh", depth=2, pool="max"),
        "decoder": recurrent(cell="tanh", cross={"kind": "unprojected", "score": "multiplicative", "coverage": True}),
    },
    "every-step": {
        "encoder": stacked(self=HEADS | {"score": "reduced_rank"}) | {"pool": "first", "position": "none"},
        "decoder": recurrent(cross="every_step", readout="plain"),
    },
    "at-start": {"encoder": recurrent(), "decoder": recurrent(cross="at_start")},
}
QUICK = {"pre-norm"}


def random_run(tree: dict[str, Any], path: Path, seed: int = 1) -> Run:
    """A run with random weights."""
    shared = tree.get("shared_embeddings", True)
    recipe = recipe_in(tree)
    source = WordKind().learn(["a b c d e f g h i"])
    target = source if shared else WordKind().learn(["a b c d e f g h i j k l m"])
    torch.manual_seed(seed)
    model = perturbed(assemble(recipe.model, source.input, target.size))
    RunFolder(path).store(recipe, {}, Codecs(source, target))
    write_checkpoint(path / "checkpoints" / "step-0000001", model, {}, None)
    return load(path)


def recipe_in(tree: dict[str, Any]) -> Recipe:
    data = {"tokenizer": "words", "longest": 30, "joint": tree.get("shared_embeddings", True)}
    return recipe_of({"model": tree | {"dim": 22}, "data": data})


@pytest.fixture(scope="module", autouse=True)
def without_shape_checks() -> Iterator[None]:
    """Shape checks are off, because sizes are symbolic while a graph is traced."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@dataclass(frozen=True)
class Case:
    run: Run
    folder: Path


@pytest.fixture(scope="module")
def export(without_shape_checks: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Each case is exported once, because an export takes seconds."""

    @cache
    def exported(name: str) -> Case:
        path = tmp_path_factory.mktemp("onnx")
        run, folder = random_run(CASES[name], path / "run"), path / "out"
        format_onnx.write(run, folder)
        return Case(run, folder)

    return exported


@pytest.fixture(params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES])
def case(request: pytest.FixtureRequest, export: Callable[[str], Case]) -> Case:
    return export(request.param)


@pytest.fixture
def exported(export: Callable[[str], Case]) -> Case:
    """One case for tests that do not depend on the kind of model."""
    return export("at-start")


def decode(search: Any, **keys: Any) -> DecodeConfig:
    return resolve(DecodeConfig, [python_layer({"search": search, "extra": 5, "ratio": 1.0, **keys})]).config


# ── the same results ──────────────────────────────────────────────────────────────────────────────


def kinds(value: Any) -> Iterator[str]:
    if isinstance(value, Choice):
        yield value.kind
        for option in value.options.values():
            yield from kinds(option)


def test_cases_contain_every_kind() -> None:
    recipes = [recipe_in(tree).model for tree in CASES.values()]
    covered = {kind for model in recipes for part in (model.encoder, model.decoder, model.head) for kind in kinds(part)}
    tables = [
        *(ENCODERS, DECODERS, MIXERS, cells.CELLS, connections.CONNECTIONS, contexts.CONTEXTS, heads.HEADS),
        *(normalizers.NORMALIZERS, pools.POOLS, positions.POSITIONS, readouts.READOUTS, scores.SCORES),
    ]
    assert {kind for table in tables for kind in table} <= covered


def sources(rows: int, length: int, seed: int) -> Padded:
    """Sources of random lengths; at least one has the full length."""
    torch.manual_seed(seed)
    lengths = torch.randint(1, length + 1, (rows,))
    lengths[-1] = length
    keep = torch.arange(length) < lengths[:, None]
    return Padded(torch.randint(4, 13, (rows, length)).masked_fill(~keep, 0), None if bool(keep.all()) else keep)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "length", "beam"), [(1, 1, 1), (1, 7, 4), (4, 6, 1), (5, 9, 3)])
def test_beam_search_steps_have_the_log_probs_of_torch(case: Case, rows: int, length: int, beam: int) -> None:
    model = case.run.model
    assert model.decoder is not None
    source = sources(rows, length, seed=rows)
    with torch.inference_mode(), format_onnx.open(case.folder).session() as onnx_model:
        expected = model.decoder.start(model.encoder.encode(source.values, source.keep), rows)
        state: Any = onnx_model.start(onnx_model.encode(source), rows)
        spread = torch.arange(rows).repeat_interleave(beam)
        expected, state = select(expected, spread), select(state, spread)
        for step in range(4):
            tokens = torch.randint(4, 13, (expected["progress"].at.shape[0],))
            hidden, expected = model.decoder.step(tokens[:, None], expected)
            log_probs, state = onnx_model.step(tokens, state)
            assert_close(log_probs, model.head.log_probs(hidden[:, -1]), step)
            stay = torch.arange(rows)[1:] if step == 2 and rows > 1 else torch.arange(rows)  # a sentence is finished
            moved = (stay[:, None] * beam + torch.randint(0, beam, (len(stay), beam))).flatten()
            expected, state = select(expected, moved, stay), select(state, moved, stay)
            rows = len(stay)


def assert_close(actual: Tensor, expected: Tensor, step: int) -> None:
    assert actual.shape == expected.shape
    assert float((actual - expected).abs().max()) < 2e-5, f"at step {step}"


LINES = ["a b c a", "", "c", "i h g f e d c b a", "b b", "e f", "a i a i a i"]


@pytest.mark.parametrize("search", ["greedy", {"kind": "beam", "size": 3, "best": 2}], ids=["greedy", "beam"])
@pytest.mark.parametrize("batch_tokens", [1, 4096])
def test_outputs_equal_those_of_torch(case: Case, search: Any, batch_tokens: int) -> None:
    settings = decode(search, batch_tokens=batch_tokens)
    for prefixes in (None, ["a", "", "b c", "d", "", "", "e"]):
        expected = list(in_order(case.run.engine.generate(LINES, settings, prefixes)))
        results = list(in_order(format_onnx.open(case.folder).generate(LINES, settings, prefixes)))
        assert [[o.ids for o in outputs] for outputs in results] == [[o.ids for o in outputs] for outputs in expected]
        for one, same in zip(chain.from_iterable(results), chain.from_iterable(expected), strict=True):
            assert one.text == same.text
            assert abs(one.log_prob - same.log_prob) < 1e-4


def test_positions_beyond_the_initial_sinusoid_table_equal_torch(case: Case) -> None:
    """torch's table grows; the graph computes the sinusoids instead."""
    if case.run.model.encoder.longest is not None:
        pytest.skip("learned positions have a maximum length")
    line = " ".join("abcdefghi"[i % 9] for i in range(300))
    settings = decode("greedy", ratio=0.0, extra=2)
    expected = list(case.run.engine.generate([line], settings))
    assert [o.ids for o in expected[0][1]] == [
        o.ids for o in next(format_onnx.open(case.folder).generate([line], settings))[1]
    ]


@pytest.mark.slow
def test_more_positions_than_learned_are_an_error(export: Callable[[str], Case]) -> None:
    engine = format_onnx.open(export("post-norm-learned-untied-hard-sparsemax").folder)
    with pytest.raises(SaccadeError, match="the source has 46 tokens, past the 40 learned positions"):
        list(engine.generate(["a " * 45], decode("greedy")))
    outputs = next(engine.generate(["a " * 39], decode("greedy", ratio=9.0)))[1]
    assert len(outputs[0].ids) <= 40


# ── the engine's contract ─────────────────────────────────────────────────────────────────────────


def test_parallel_batches_give_the_same_outputs(exported: Case) -> None:
    settings = decode("greedy", batch_tokens=1)
    engine = format_onnx.open(exported.folder)
    sequential = list(in_order(engine.generate(LINES, settings)))
    torch.set_num_threads(2)
    try:
        assert list(in_order(engine.generate(LINES, settings))) == sequential
    finally:
        torch.set_num_threads(1)


def test_cancelled_search_raises_cancelled(exported: Case) -> None:
    with pytest.raises(Cancelled):
        list(format_onnx.open(exported.folder).generate(["a b"], decode("greedy"), should_continue=lambda: False))


def test_wrong_number_of_prefixes_is_refused(exported: Case) -> None:
    with pytest.raises(DataError, match="got 2 prefixes for 1 sources"):
        list(format_onnx.open(exported.folder).generate(["a b"], decode("greedy"), ["a", "b"]))


def test_search_settings_are_exported(exported: Case) -> None:
    assert read_exported(exported.folder).config.decode == exported.run.recipe.decode


# ── the folder ────────────────────────────────────────────────────────────────────────────────────


def test_graphs_have_standard_operators_and_no_paths_of_this_machine(case: Case) -> None:
    for name in ("encoder.onnx", "step.onnx"):
        graph = onnx.load(case.folder / name)
        assert [(entry.domain, entry.version) for entry in graph.opset_import if entry.domain == ""] == [("", 18)]
        assert {node.domain for node in graph.graph.node} <= {""}
        assert not any(node.metadata_props or node.doc_string for node in graph.graph.node)
        data = (case.folder / name).read_bytes()
        for text in (b".py", str(Path.home()).encode() + b"/", str(Path(__file__).parents[2]).encode()):
            assert text not in data


@pytest.mark.slow
def test_export_is_deterministic_and_large_weights_go_into_separate_files(
    exported: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_graphs = graphs(exported.run.model)  # once for both exports
    monkeypatch.setattr(format_onnx, "graphs", lambda _: both_graphs)
    format_onnx.write(exported.run, tmp_path / "again")
    for path in exported.folder.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name
    monkeypatch.setattr(format_onnx, "MAX_INLINE_WEIGHTS", 100)
    format_onnx.write(exported.run, tmp_path / "large")
    assert {"encoder.onnx.data", "step.onnx.data"} <= {path.name for path in (tmp_path / "large").iterdir()}
    settings = decode("greedy")
    expected = list(in_order(format_onnx.open(exported.folder).generate(LINES, settings)))
    assert list(in_order(format_onnx.open(tmp_path / "large").generate(LINES, settings))) == expected


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def test_model_without_decoder_is_refused(tmp_path: Path) -> None:
    model = {"dim": 22, "head": "linear", "encoder": STACKED}
    recipe = recipe_of({"task": "tagging", "data": {"tokenizer": "words"}, "model": model})
    reason = format_onnx.why_not(recipe)
    assert reason is not None
    assert reason.startswith('task: "tagging" has no decoder')
    assert format_onnx.why_not(recipe_in(CASES["pre-norm"])) is None
    run = random_run(CASES["at-start"], tmp_path / "run")
    run.recipe = recipe
    with pytest.raises(RunError, match=r"cannot be exported to ONNX: task: "):
        format_onnx.write(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Looped(nn.Module):
    """A readout that cannot be exported, because the number of iterations depends on the values."""

    def forward(self, state: Tensor, context: Tensor, token: Tensor) -> Tensor:
        while float(state.sum()) > 1e9:
            state = state / 2
        return state


def test_part_that_cannot_be_exported_is_named(tmp_path: Path) -> None:
    run = random_run(CASES["at-start"], tmp_path / "run")
    run.model.decoder.readout = Looped()  # type: ignore[union-attr]
    with pytest.raises(RunError, match=r"^torch\.onnx cannot convert decoder\.readout \(Looped\): ") as caught:
        format_onnx.write(run, tmp_path / "out")
    assert "\n" not in str(caught.value)


class ScaledByLength(nn.Module):
    """A feed-forward that reads the upper bound of the positions, which is a Python number."""

    def forward(self, x: Tensor, places: Places) -> Tensor:
        return x * (1 + 0.02 * places.end)


class UnpaddedFeedForward(nn.Module):
    """A feed-forward that computes something else for a batch without padding."""

    def forward(self, x: Tensor, places: Places) -> Tensor:
        return x if places.padded else 1.1 * x


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "side"), [(ScaledByLength, "decoder"), (UnpaddedFeedForward, "encoder")], ids=["end", "padded"]
)
def test_part_that_reads_a_python_value_of_the_places_is_refused(
    part: type[nn.Module], side: str, tmp_path: Path
) -> None:
    run = random_run(CASES["pre-norm"], tmp_path / "run")
    run.model.get_submodule(f"{side}.layers.0").feed_forward = part()
    assert format_onnx.why_not(run.recipe) is None
    with pytest.raises(RunError, match=r"^the ONNX graphs do not compute what the model computes: the log-prob"):
        format_onnx.write(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["encoder.onnx", "step.onnx", "saccade.json", "joint.model"])
def test_damaged_file_is_refused(exported: Case, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(exported.folder, folder)
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(RunError, match=rf"{name}: checksum mismatch") as caught:
        format_onnx.open(folder)
    assert "\n" not in str(caught.value)
    (folder / name).unlink()
    with pytest.raises(RunError, match=rf"{name}: is missing"):
        format_onnx.open(folder)


def replace_with_checksum(folder: Path, name: str, data: bytes) -> None:
    """Change a file and its checksum in the manifest."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_inconsistent_folder_with_valid_checksums_is_refused(exported: Case, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(exported.folder, folder)
    step, settings = (folder / "step.onnx").read_bytes(), json.loads((folder / "saccade.json").read_bytes())
    for name, data, message in [
        ("step.onnx", b"not a graph", "onnxruntime cannot load it"),
        ("step.onnx", (folder / "encoder.onnx").read_bytes(), "are of different models"),
        ("step.onnx", step, ""),
        ("saccade.json", b"[]", "is damaged"),
        ("saccade.json", json.dumps(settings | {"joint": 7}).encode(), "joint: expected true or false"),
        ("saccade.json", json.dumps(settings | {"joint": False}).encode(), "source.model"),
    ]:
        replace_with_checksum(folder, name, data)
        if message:
            with pytest.raises(RunError, match=message):
                format_onnx.open(folder)
    replace_with_checksum(folder, "saccade.json", json.dumps(settings).encode())
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["files"].pop("encoder.onnx")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunError, match=r"does not list encoder\.onnx"):
        format_onnx.open(folder)
