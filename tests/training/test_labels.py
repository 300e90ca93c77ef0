"""Labels of words, frames, texts and series: how they are laid out, learned, resumed, and what is refused."""

import itertools
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch

import saccade
from saccade.data import batches
from saccade.data.batches import COLLATE_LABELS, NO_LABEL, Corpus
from saccade.data.codecs import Codecs, LabelCodec, Scaling
from saccade.data.frames import as_frames
from saccade.data.sources import Frames, Pair, Tagged
from saccade.data.tokenizers import UNKNOWN, ByteVocabulary, SentencePieces, WordVocabulary
from saccade.errors import DataError
from saccade.recipe import Recipe, check_buildable, recipe_of
from saccade.tasks.classification import Classification
from saccade.tasks.labeling import runs
from saccade.tasks.tagging import Tagging, read_steps
from saccade.tasks.windows import windows
from saccade.training import loop
from saccade.training.dry_run import dry_run
from saccade.training.loop import train
from saccade.training.progress import IntervalFigures, Silent

Outcome = Callable[[Path], dict[str, Any]]
KINDS = ("words", "frames", "texts", "series")
TAGGERS = pytest.mark.parametrize("kind", ["words", "frames"], indirect=True)


# ── data ──────────────────────────────────────────────────────────────────────────────────────────


def words_of(dice: np.random.Generator, rows: int) -> str:
    """Each word is new or old, that is, said before; some have no label."""
    text = ""
    for _ in range(rows):
        seen: set[str] = set()
        for word in dice.choice([*"abcdef"], dice.integers(1, 9)):
            label = "" if dice.random() < 0.1 else "old" if word in seen else "new"
            text += f"{word}\t{label}\n"
            seen.add(word)
        text += "\n"
    return text


def texts_of(dice: np.random.Generator, rows: int) -> str:
    """Does the text begin as it ends?"""
    texts = ([*dice.choice([*"abc"], dice.integers(1, 7))] for _ in range(rows))
    return "".join(f"{'same' if text[0] == text[-1] else 'other'} {' '.join(text)}\n" for text in texts)


def series_of(dice: np.random.Generator, rows: int, user: str, whole: bool) -> dict[str, Any]:
    """Up or down: the sign of the slope. The third column never changes."""
    arrays: dict[str, Any] = {}
    for row in range(rows):
        slopes = np.repeat(dice.choice([-1, 1], 1 if whole else 4), dice.integers(3, 8))
        walk = np.cumsum(slopes) + dice.normal(0, 0.1, len(slopes))
        arrays[f"{user}_{row}_x"] = np.stack([walk, -1000 * walk, np.full(len(walk), 7.0)], 1)
        names = np.where(slopes > 0, 1, 2)
        arrays[f"{user}_{row}_y"] = names[0] if whole else np.where(dice.random(len(names)) < 0.1, -1, names)
    return arrays


def write_data(folder: Path, kind: str) -> dict[str, Any]:
    """Three files and the table of the config that names them."""
    dice = np.random.default_rng(5)
    sizes = {"train": 40, "dev": 5, "test": 6}
    for split, rows in sizes.items():
        if kind in ("words", "texts"):
            text = words_of(dice, rows) if kind == "words" else texts_of(dice, rows)
            (folder / f"{split}.txt").write_text(text, "utf-8")
        else:
            np.savez(folder / f"{split}.npz", **series_of(dice, rows, split, kind == "series"))
    end, source = {"words": ("txt", "columns"), "texts": ("txt", "labeled")}.get(kind, ("npz", "series"))
    return {"folder": str(folder)} | {split: {"kind": source, "file": f"{split}.{end}"} for split in sizes}


def recipe_for(folder: Path, kind: str, **changes: Any) -> Recipe:
    """Dropout, several batches an update, series longer than a window."""
    numbers = kind in ("frames", "series")
    tree = {
        "seed": 3,
        "data": write_data(folder, kind) | {"tokenizer": "words", "longest": 12 if kind == "frames" else 20},
        "task": "tagging" if kind in ("words", "frames") else "classification",
        "model": {
            "dim": 16,
            "head": "linear",
            "dropout": dict.fromkeys(("attention", "residual", "feed_forward", "embedding"), 0.2),
            "block": {"self": {"heads": 2}, "feed_forward": {"inner": 32}},
            "encoder": {"depth": 1, "embedding": "series" if numbers else "tokens"},
        },
        "train": {
            "updates": 14,
            "batch_tokens": 40,
            "update_tokens": 6 if kind in ("texts", "series") else 60,
            "schedule": {"kind": "inverse_root", "rate": 0.01, "warmup": 4},
            "log_every": 3,
            "validate_every": 4,
            "keep": 2,
            "average": 2,
        },
    }
    return recipe_of(tree, changes)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def recipe(kind: str, folder: Path) -> Recipe:
    (folder / kind).mkdir()
    return recipe_for(folder / kind, kind)


@pytest.fixture(scope="module")
def trained(recipe: Recipe, kind: str, folder: Path) -> Path:
    return train(recipe, folder / f"{kind}-run", Silent()).path


# ── how rows become a batch ───────────────────────────────────────────────────────────────────────


def test_labels_stand_at_the_places_of_their_source():
    corpus = Corpus([[5, 6, 7], [8]], [[1, NO_LABEL, 0], [2]], COLLATE_LABELS)
    batch = corpus.batch([0, 1])
    assert batch.source.values.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.inputs is None
    assert batch.outputs.keep is not None
    assert batch.outputs.keep.tolist() == [[True, False, True], [True, False, False]]
    assert batch.outputs.values[batch.outputs.keep].tolist() == [1, 0, 2]
    assert int(batch.outputs.values.min()) >= 0  # even where nobody looks, a number of a label
    assert (batch.source_tokens, batch.target_tokens) == (4, 3)
    assert (batch.real_tokens, batch.padded_tokens) == (4, 6)
    assert corpus.target_tokens == 3


def test_one_label_for_a_whole_sequence():
    frames = [np.ones((4, 2), np.float32), np.zeros((1, 2), np.float32)]
    batch = Corpus(frames, [[1], [0]], COLLATE_LABELS).batch([0, 1])
    assert batch.source.values.shape == (2, 4, 2)
    assert batch.source.values.dtype == torch.float32
    assert batch.outputs.values.tolist() == [[1], [0]]
    assert batch.outputs.keep is None
    assert batch.target_tokens == 2


def test_the_budget_counts_places_without_an_end_symbol():
    corpus = Corpus([[1] * 5] * 7, [[0] * 5] * 7, COLLATE_LABELS)
    assert sorted(len(rows) for rows in batches.by_length(corpus, np.arange(7), 10)) == [1, 2, 2, 2]


@TAGGERS
def test_a_batch_without_any_label_teaches_nothing_and_harms_nothing(trained: Path):
    run = saccade.load(trained)
    values = np.zeros((2, 3), np.float32) if run.reads_frames else np.zeros(2, np.int64)
    batch = Corpus([values], [[NO_LABEL] * 2], COLLATE_LABELS).batch([0])
    loss = run.task.loss(run.model, batch)
    loss.total.backward()
    assert (float(loss.total.detach()), loss.count, loss.logged["cost"]) == (0.0, 0, 0.0)
    assert not any(p.grad is not None and p.grad.any() for p in run.model.parameters())


def test_an_update_without_any_label_is_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The last batches of an epoch may have none. Nothing is divided by zero, nothing is learned from nothing."""
    recipe = recipe_for(tmp_path, "words", train={"updates": 2, "update_tokens": 0, "average": 0, "log_every": 1})
    real = Tagging.encode

    def without(self: Tagging, rows: Any, codecs: Any, longest: int) -> Any:
        found = real(self, rows, codecs, longest)
        found.corpus._target[:] = NO_LABEL
        return found

    monkeypatch.setattr(Tagging, "encode", without)
    records = []
    monkeypatch.setattr(loop, "append", lambda run, state, record: records.append(record))
    train(recipe, tmp_path / "run", Silent())
    assert [record["loss"] for record in records if "loss" in record] == [None, None]
    assert all(record["skipped"] == 0 for record in records if "loss" in record)


# ── windows ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10])
def test_every_place_is_taken_from_where_it_is_farthest_from_an_edge(size: int):
    for length in range(1, 45):
        found = windows(length, size)
        assert [w.keep_from for w in found] == [0, *(w.keep_to for w in found[:-1])]
        assert found[-1].keep_to == length
        for window in found:
            assert 0 <= window.first <= window.keep_from < window.keep_to <= window.end <= length
            assert window.end - window.first == min(size, length)
            for place in range(window.keep_from, window.keep_to):
                depths = [min(place - w.first, w.end - 1 - place) for w in found]
                assert min(place - window.first, window.end - 1 - place) == max(depths), (length, place)
        for one, other in itertools.pairwise(found):
            assert one.end - other.first >= size // 2, "neighbours overlap by half"
    assert windows(0, size) == []


@TAGGERS
def test_long_sequences_are_read_in_windows_and_short_ones_whole(trained: Path, kind: str):
    """A sequence of any length gives as many labels as it has steps; those of its beginning are those of a window."""
    run = saccade.load(trained)
    longest = run.recipe.data.longest
    dice = np.random.default_rng(1)
    long = dice.normal(size=(5 * longest + 3, 3)) if kind == "frames" else [*dice.choice([*"abc"], 5 * longest + 3)]
    [tags] = run.tag([long])
    assert len(tags) == len(long)
    beginning = run.tag([long[:longest]])[0]
    sure = windows(len(long), longest)[0].keep_to
    assert tags[:sure] == beginning[:sure]
    end = run.tag([long[-longest:]])[0]
    sure = len(long) - windows(len(long), longest)[-1].keep_from
    assert tags[-sure:] == end[-sure:]
    each = [run.tag([long[:count]])[0] for count in (1, longest)]
    assert [len(tags) for tags in each] == [1, longest]


def test_sequences_are_tagged_alike_alone_and_together(trained: Path, kind: str):
    run = saccade.load(trained)
    dice = np.random.default_rng(2)
    lengths = (3, 0, 1, 30, 8)
    if run.reads_frames:
        items: Sequence[Any] = [dice.normal(size=(n, 3)) for n in lengths]
    else:
        items = [" ".join(dice.choice([*"abcz"], n)) for n in lengths]
    use: Callable[[Sequence[Any]], Sequence[Any]] = run.tag if kind in ("words", "frames") else run.classify
    assert [*use(items)] == [use([item])[0] for item in items]
    assert len(use(items)[1]) == 0  # nothing in, nothing out
    assert use([]) == []


# ── codecs ────────────────────────────────────────────────────────────────────────────────────────


def test_labels_are_sorted_stored_and_none_is_none():
    labels = LabelCodec.learn(["b", "", "a", "ü", "b"])
    assert labels.names == ("a", "b", "ü")
    assert labels.encode(["ü", "", "a"], "here").tolist() == [2, NO_LABEL, 0]
    assert labels.decode([2, 0]) == ["ü", "a"]
    assert LabelCodec.read(labels.dump()).names == labels.names
    with pytest.raises(DataError, match=r"train.tsv:7: the label 'c' does not occur in the training data \(known: a, b, ü\)"):
        labels.encode(["a", "c"], "train.tsv:7")
    with pytest.raises(DataError, match="no row has a label"):
        LabelCodec.learn(["", ""])


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'["a", "a"]', b'["a", 3]', b'[""]', b"\xff", b'{"a": 1}'])
def test_damaged_labels_are_refused(data: bytes):
    with pytest.raises(saccade.RunError, match="the labels"):
        LabelCodec.read(data)


def test_scaling_gives_mean_zero_and_deviation_one_and_leaves_constants_alone():
    dice = np.random.default_rng(0)
    series = [dice.normal([5, -1e6, 0.1], [2, 1e4, 0], (n, 3)) for n in (50, 1, 400)]
    scaling = Scaling.learn(series)
    scaled = np.concatenate([scaling.scaled(frames, "here") for frames in series])
    assert np.abs(scaled.mean(0)).max() < 1e-4
    assert np.allclose(scaled[:, :2].std(0), 1, atol=1e-4)
    assert np.abs(scaled[:, 2]).max() < 1e-6  # 0.1 cannot be written in binary, and must not become noise
    again = Scaling.read(scaling.dump())
    assert np.array_equal(again.scaled(series[0], "here"), scaling.scaled(series[0], "here"))
    with pytest.raises(DataError, match=r"b.npz:u1: has 2 values per frame, but the run was trained on 3"):
        scaling.scaled(series[0][:, :2], "b.npz:u1")


@pytest.mark.parametrize(
    "tree",
    [
        [],
        {"mean": [1.0]},
        {"mean": [1.0], "deviation": [0.0]},
        {"mean": [1.0], "deviation": [-1.0]},
        {"mean": [1.0, 2.0], "deviation": [1.0]},
        {"mean": ["1"], "deviation": [1.0]},
        {"mean": [], "deviation": []},
        {"mean": [float("nan")], "deviation": [1.0]},
        {"mean": [True], "deviation": [1.0]},
    ],
)
def test_a_damaged_scaling_is_refused(tree: Any):
    with pytest.raises(saccade.RunError, match="the scaling"):
        Scaling.read(json.dumps(tree).encode())


@pytest.mark.parametrize(
    "kind", [WordVocabulary(), ByteVocabulary(), SentencePieces(size=30)], ids=["words", "bytes", "sentencepiece"]
)
def test_the_first_piece_of_a_word_carries_its_label(kind: Any):
    text = ["the cat", "the hat", "a cat at the mat"]
    tokenizer = kind.learn(text)
    row = Tagged(("the", "\u200b ", "cat"), ("D", "X", "N"), "f:1")
    [(values, at)] = read_steps([row], tokenizer)
    pieces = [ids or [UNKNOWN] for ids in tokenizer.encode(list(row.source))]
    assert values.tolist() == [*itertools.chain(*pieces)]
    assert [values[i] for i in at] == [ids[0] for ids in pieces]
    encoded = Tagging().encode([row], Codecs(tokenizer, LabelCodec(("D", "N", "X"))), 100)
    labels = encoded.corpus.target(0)
    assert labels[at].tolist() == [0, 2, 1]
    assert (labels >= 0).sum() == 3


def test_a_word_that_encodes_to_nothing_is_unknown():
    tokenizer = WordVocabulary().learn(["a"])
    [(values, at)] = read_steps([Tagged((" ", "a"), ("x", "y"), "f:1")], tokenizer)
    assert values.tolist() == [UNKNOWN, *tokenizer.encode(["a"])[0]]
    assert at.tolist() == [0, 1]


def test_long_sentences_are_left_out_and_long_series_are_cut():
    labels = LabelCodec(("x",))
    sentences = [Tagged(("a",) * n, ("x",) * n, f"f:{n}") for n in (3, 5, 4)]
    encoded = Tagging().encode(
        [*sentences, Tagged(("a",), ("",), "f:9")], Codecs(WordVocabulary().learn(["a"]), labels), 4
    )
    assert encoded.locations == ("f:3", "f:4")
    assert encoded.left_out == {"without a label": 1, "too long": 1}
    frames = np.arange(22.0).reshape(11, 2)
    named = ("x",) * 4 + ("",) * 4 + ("x",) * 3
    encoded = Tagging().encode([Frames(frames, named, "f:u1")], Codecs(Scaling.learn([frames]), labels), 4)
    assert encoded.corpus.source_lengths.tolist() == [4, 3]  # the middle has no label to learn
    assert encoded.locations == ("f:u1", "f:u1, step 8")
    long = [Pair("a " * n, "x", f"f:{n}") for n in (3, 5, 0)]
    encoded = Classification().encode(long, Codecs(WordVocabulary().learn(["a"]), labels), 4)
    assert encoded.locations == ("f:3",)
    assert encoded.left_out == {"empty or without a label": 1, "too long": 1}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[1.0, 2.0], [3.0]], "item 1: has rows of different lengths; give all 2 numbers"),
        ([[1.0, 2.0], [3.0, float("nan")]], "item 1: row 1, column 1 is NaN"),
        ([[1.0, float("inf")]], "item 1: row 0, column 1 is infinite"),
        ([[1.0, 1e300]], "item 1: row 0, column 1 is 1e+300, too large"),
        ([[1.0, 2.0, 3.0]], "item 1: has shape [1, 3], but the run needs [frames, 2]"),
        ([1.0, 2.0], "item 1: has shape [2], but the run needs [frames, 2]"),
        ([["a", "b"]], "item 1: has data type <U1, not real numbers"),
        ("text", "item 1: has data type <U4, not real numbers"),
    ],
)
def test_frames_that_are_none_are_refused_with_their_row(values: Any, words: str):
    with pytest.raises(DataError) as refused:
        as_frames(values, 2, "item 1")
    assert words in str(refused.value)


def test_runs_of_equal_labels():
    assert [*runs(["5", "5", "7", "5"])] == [("5", 0, 2), ("7", 2, 3), ("5", 3, 4)]
    assert [*runs([])] == []


# ── training ──────────────────────────────────────────────────────────────────────────────────────


class Crash(Exception):
    """Stands for whatever ends a process."""


@pytest.mark.parametrize("until", [3, 7, 11])
def test_a_training_that_crashed_goes_on_to_the_same_bits(
    until: int,
    kind: str,
    recipe: Recipe,
    trained: Path,
    folder: Path,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
):
    run, real = folder / f"{kind}-{until}", loop.update

    def update(job: Any, state: Any, batches: Any) -> None:
        if state.step == until:
            raise Crash
        real(job, state, batches)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", update)
        with pytest.raises(Crash):
            train(recipe, run, Silent())
    assert outcome(run) != outcome(trained)
    train(recipe, run, Silent())
    assert outcome(run) == outcome(trained)


def test_the_choice_of_the_task_may_be_said_in_words(trained: Path, recipe: Recipe, folder: Path):
    """A run begun with `best_by = "auto"` is the same as one that names the figure; another figure is another run."""

    def by(name: str) -> Recipe:
        return recipe.model_copy(update={"train": recipe.train.model_copy(update={"best_by": name})})

    shutil.copytree(trained, folder / "copy")
    try:
        train(by("accuracy"), folder / "copy", Silent())
        with pytest.raises(saccade.RunError, match=r"train.best_by: 'accuracy' → 'macro_f1'"):
            train(by("macro_f1"), folder / "copy", Silent())
    finally:
        shutil.rmtree(folder / "copy")


def test_the_shapes_are_as_they_are_written(kind: str, tmp_path: Path):
    """The other tests of this folder run without these checks."""
    recipe = recipe_for(tmp_path, kind, train={"updates": 2, "average": 0})
    jaxtyping.config.update("jaxtyping_disable", False)
    try:
        saccade.train(recipe, tmp_path / "run", report=Silent()).evaluate()
    finally:
        jaxtyping.config.update("jaxtyping_disable", True)


def test_validation_says_accuracy_and_shows_readable_samples(kind: str, trained: Path):
    lines = (trained / "metrics.jsonl").read_text("utf-8").splitlines()
    records = [record for record in map(json.loads, lines) if "validation" in record]
    assert [record["step"] for record in records] == [4, 8, 12, 14]
    assert all(set(record["validation"]) == {"loss", "accuracy", "macro_f1"} for record in records)
    accuracies = [record["validation"]["accuracy"] for record in records]
    best = saccade.load(trained, "best").checkpoint.name
    assert best == f"step-{records[accuracies.index(max(accuracies))]['step']:07d}"
    sample = records[-1]["samples"][0]
    if kind == "words":
        words = sample["source"].removesuffix(" …").split()
        assert [pair.split("/")[0] for pair in sample["output"].removesuffix(" …").split()] == words
    elif kind == "frames":
        assert sample["source"] == "dev.npz:dev_0"
        assert {pair.split("×")[0] for pair in sample["output"].split()} <= {"1", "2"}
    else:
        assert sample["reference"] in ({"same", "other"} if kind == "texts" else {"1", "2"})
        assert sample["output"] in ({"same", "other"} if kind == "texts" else {"1", "2"})


def test_rates_and_padding_are_those_of_what_is_read_and_said(kind: str, recipe: Recipe, tmp_path: Path):
    lines: list[IntervalFigures] = []

    class Listener(Silent):
        def line(self, line: IntervalFigures) -> None:
            lines.append(line)

    train(recipe, tmp_path / "run", Listener())
    for line in lines:
        assert 0 <= line.padding < 0.5
        ratio = line.target_rate / line.source_rate
        assert (0.8 < ratio < 1) if kind in ("words", "frames") else (ratio < 0.5)


def test_a_dry_run_tells_the_cost(recipe: Recipe, tmp_path: Path):
    cost = dry_run(recipe, tmp_path / "run", Silent())
    assert cost.parameters > 0
    assert cost.epoch_seconds > 0
    assert not (tmp_path / "run").exists()


def test_the_run_holds_its_codecs_and_damage_is_named(trained: Path, kind: str, folder: Path):
    names = {path.name for path in (trained / "tokenizer").iterdir()}
    source = "scaling.json" if kind in ("frames", "series") else "source.model"
    assert names == {"manifest.json", "labels.json", source}
    assert saccade.load(trained).codecs.target.names == {
        "words": ("new", "old"),
        "texts": ("other", "same"),
    }.get(kind, ("1", "2"))


# ── what is refused ───────────────────────────────────────────────────────────────────────────────


def spoil(folder: Path, kind: str, split: str) -> str:
    """Put a label into a split that training never sees; its place is returned."""
    if kind in ("words", "texts"):
        path = folder / f"{split}.txt"
        lines = path.read_text("utf-8").count("\n")
        path.write_text(path.read_text("utf-8") + ("a\tstrange\n\n" if kind == "words" else "strange a\n"), "utf-8")
        return f"{split}.txt:{lines + 1}"
    path = folder / f"{split}.npz"
    arrays: dict[str, Any] = dict(np.load(path))
    arrays[f"{split}_1_y"] = np.full_like(arrays[f"{split}_1_y"], 9)
    np.savez(path, **arrays)
    return f"{split}.npz:{split}_1"


@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_label_never_seen_in_training_is_named_or_left_out(split: str, kind: str, tmp_path: Path):
    recipe = recipe_for(tmp_path, kind, train={"updates": 1})
    place = spoil(tmp_path, kind, split)
    label = "strange" if kind in ("words", "texts") else "9"
    with pytest.raises(DataError) as refused:
        train(recipe, tmp_path / "run", Silent())
    assert str(refused.value).startswith(f"{place}: the label '{label}' does not occur in the training data (known: ")
    said: list[str] = []

    class Listener(Silent):
        def say(self, text: str) -> None:
            said.append(text)

    tolerant = recipe.model_copy(update={"data": recipe.data.model_copy(update={"skip_bad": True})})
    run = saccade.train(tolerant, tmp_path / "run", report=Listener())
    told = next(text for text in said if "to train on" in text)
    kept = 4 if split == "dev" and kind in ("frames", "series") else 5  # of words and texts one more was written
    assert f"{kept} to validate on ({int(split == 'dev')} bad" in told
    assert run.evaluate()["left_out"] == int(split == "test")


def test_a_group_in_two_splits_is_refused_before_training(tmp_path: Path):
    recipe = recipe_for(tmp_path, "frames")
    np.savez(tmp_path / "test.npz", **series_of(np.random.default_rng(1), 2, "train", False))
    with pytest.raises(DataError, match=r"group train is in data.train and data.test"):
        train(recipe, tmp_path / "run", Silent())
    assert not (tmp_path / "run" / "config.toml").exists()


LEARNED = {"kind": "learned", "longest": 19}
UNFIT: dict[str, tuple[str, dict[str, Any], str]] = {
    "pairs for tagging": (
        "words",
        {"data": {"dev": {"kind": "pairs", "src": "a", "tgt": "b"}}},
        "data.dev: the task 'tagging' needs a label for each word or each frame, which 'pairs' does not give "
        "(known: columns, series)",
    ),
    "columns for classification": (
        "texts",
        {"data": {"train": {"kind": "columns", "file": "train.txt"}}},
        "data.train: the task 'classification' needs one label for each text or series, which 'columns' does not give "
        "(known: pairs, tsv, jsonl, labeled, series",
    ),
    "columns for translation": (
        "words",
        {"task": "translation"},
        "data.train: the task 'translation' needs pairs of texts, which 'columns' does not give",
    ),
    "a figure of another task": (
        "words",
        {"train": {"best_by": "bleu"}},
        "train.best_by: the task 'tagging' has no figure 'bleu' (known: auto, loss, accuracy, macro_f1)",
    ),
    "a head that shares with no decoder": (
        "words",
        {"model": {"head": "tied"}},
        'model.head: "tied" shares the embedding table of a decoder',
    ),
    "numbers read as words": (
        "frames",
        {"model": {"encoder": {"embedding": "tokens"}}},
        'model.encoder.embedding: "tokens" reads ids',
    ),
    "words read as numbers": (
        "words",
        {"model": {"encoder": {"embedding": "series"}}},
        'model.encoder.embedding: "series" reads frames of numbers',
    ),
    "batches that hold no sentence": (
        "words",
        {"train": {"batch_tokens": 19}},
        "train.batch_tokens: 19 cannot hold a sentence of data.longest = 20 tokens; raise",
    ),
    "too few positions": (
        "words",
        {"model": {"encoder": {"position": LEARNED}}},
        "model.encoder.position.longest: 19 places cannot hold data.longest = 20 tokens; raise",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_does_not_fit_a_task_is_refused_by_key(case: str, tmp_path: Path):
    kind, changes, words = UNFIT[case]
    with pytest.raises(saccade.ConfigError) as refused:
        recipe_for(tmp_path, kind, **changes)
    assert words in str(refused.value)


def test_what_just_fits_is_taken(tmp_path: Path):
    position = {"kind": "learned", "longest": 20}
    changes = {"train": {"batch_tokens": 20}, "model": {"encoder": {"position": position}}}
    check_buildable(recipe_for(tmp_path, "words", **changes))
    check_buildable(recipe_for(tmp_path, "words", data={"joint": False}))  # shared embeddings are no matter of labels


def test_rows_of_the_other_task_are_named(tmp_path: Path):
    write_data(tmp_path, "series")
    recipe = recipe_for(tmp_path, "series", task="tagging")
    with pytest.raises(DataError, match=r"data.train: train.npz:train_0: the task needs a label for each word or each"):
        train(recipe, tmp_path / "run", Silent())


def test_text_and_numbers_are_not_mixed(tmp_path: Path):
    write_data(tmp_path, "words")
    recipe = recipe_for(tmp_path, "frames", data={"dev": {"kind": "columns", "file": "dev.txt"}})
    (tmp_path / "dev.txt").write_text("a\t1\n\n", "utf-8")
    with pytest.raises(DataError, match=r"dev.txt:1: is text, but the run was trained on series of numbers"):
        train(recipe, tmp_path / "run", Silent())


# ── use ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_says_what_it_is_good_for(trained: Path, kind: str):
    run = saccade.load(trained)
    tags = kind in ("words", "frames")
    command = "tag" if tags else "classify"
    other = run.classify if tags else run.tag
    for use in (lambda: run.translate(["a"]), lambda: run.score([("a", "b")]), lambda: other([])):
        with pytest.raises(saccade.RunError, match=f"use `saccade {command}`, or Run.{command}"):
            use()
    with pytest.raises(saccade.RunError, match="attention can be shown of runs that translate"):
        run.attention("a")


def test_evaluation_is_that_of_what_tag_and_classify_say(trained: Path, kind: str):
    run = saccade.load(trained)
    rows = run.test_rows()
    figures = run.evaluate()
    if kind in ("words", "frames"):
        found = run.tag([row.source for row in rows])
        both = [(t, f) for row, tags in zip(rows, found, strict=True) for t, f in zip(row.target, tags, strict=True)]
    else:
        both = [*zip([row.target for row in rows], run.classify([row.source for row in rows]), strict=True)]
    both = [(true, said) for true, said in both if true]
    assert figures["accuracy"] == pytest.approx(100 * np.mean([t == f for t, f in both]))
    assert figures["count"] == sum(map(sum, figures["confusion"])) == len(both)
    assert figures["checkpoint"] == "average"
    again = run.evaluate([(row.source, row.target) for row in rows])
    assert again == figures
    label = run.codecs.target.names[0]
    some = run.evaluate(labels=[label])
    of_label = [(true, said) for true, said in both if true == label]
    assert some["count"] == len(of_label)
    assert some["accuracy"] == pytest.approx(100 * np.mean([t == f for t, f in of_label]))
    with pytest.raises(DataError, match="labels: there is no label 'none'"):
        run.evaluate(labels=["none"])


def test_words_may_come_joined_or_apart(folder: Path, kind: str, trained: Path):
    run = saccade.load(trained)
    if kind == "words":
        assert run.tag(["a b  a"]) == run.tag([["a", "b", "a"]]) == run.tag([("a", "b", "a")])
        with pytest.raises(DataError, match="sequence 2: is not text"):
            run.tag(["a", np.zeros((2, 3))])
        with pytest.raises(DataError, match="pair 1: has 2 steps but 1 labels"):
            run.evaluate([("a b", "new")])
    elif kind == "texts":
        [likely] = run.probabilities(["a b a"])
        assert sum(likely.values()) == pytest.approx(1)
        assert run.classify(["a b a", ""]) == [max(likely, key=lambda label: likely[label]), ""]
        assert run.probabilities([""]) == [{}]
    else:
        use: Any = run.tag if kind == "frames" else run.classify
        with pytest.raises(DataError, match="has the shape"):
            use([np.zeros((2, 2))])
