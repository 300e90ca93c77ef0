"""Labels, scaled series and word pieces: how they are encoded, stored and checked."""

import itertools
import json
from typing import Any

import numpy as np
import pytest

import saccade
from saccade.data.batches import NO_LABEL
from saccade.data.codecs import Codecs, LabelCodec, Scaling
from saccade.data.frames import as_frames
from saccade.data.source_codecs import SeriesCodec, TextCodec
from saccade.data.sources import Pair, Series, Tagged
from saccade.data.tokenizers import UNKNOWN, ByteKind, SentencePieceKind, WordKind
from saccade.errors import DataError
from saccade.tasks.classification import Classification
from saccade.tasks.tagging import Tagging, encode_steps


def test_label_codec_sorts_names_round_trips_and_encodes_an_empty_label_as_no_label():
    labels = LabelCodec.learn(["b", "", "a", "ü", "b"])
    assert labels.names == ("a", "b", "ü")
    assert labels.encode(["ü", "", "a"], "here").tolist() == [2, NO_LABEL, 0]
    assert labels.decode([2, 0]) == ["ü", "a"]
    assert LabelCodec.read(labels.dump()).names == labels.names


def test_label_that_does_not_occur_in_the_training_data_is_refused_with_its_location():
    labels = LabelCodec.learn(["b", "", "a", "ü", "b"])
    with pytest.raises(
        DataError, match=r"train.tsv:7: the label 'c' does not occur in the training data \(known: a, b, ü\)"
    ):
        labels.encode(["a", "c"], "train.tsv:7")


def test_training_data_without_any_label_is_refused():
    with pytest.raises(DataError, match="no row has a label"):
        LabelCodec.learn(["", ""])


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'["a", "a"]', b'["a", 3]', b'[""]', b"\xff", b'{"a": 1}'])
def test_damaged_labels_are_refused(data: bytes):
    with pytest.raises(saccade.RunError, match="the labels"):
        LabelCodec.read(data)


def test_scaling_gives_mean_zero_and_deviation_one_and_does_not_amplify_constants():
    generator = np.random.default_rng(0)
    series = [generator.normal([5, -1e6, 0.1], [2, 1e4, 0], (n, 3)) for n in (50, 1, 400)]
    scaling = Scaling.learn(series)
    scaled = np.concatenate([scaling.scaled(frames, "here") for frames in series])
    assert np.abs(scaled.mean(0)).max() < 1e-4
    assert np.allclose(scaled[:, :2].std(0), 1, atol=1e-4)
    assert np.abs(scaled[:, 2]).max() < 1e-6  # 0.1 is not exact in binary: its rounding error must not be amplified
    restored = Scaling.read(scaling.dump())
    assert np.array_equal(restored.scaled(series[0], "here"), scaling.scaled(series[0], "here"))
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
def test_damaged_scaling_is_refused(tree: Any):
    with pytest.raises(saccade.RunError, match="the scaling"):
        Scaling.read(json.dumps(tree).encode())


@pytest.mark.parametrize(
    "kind", [WordKind(), ByteKind(), SentencePieceKind(size=30)], ids=["words", "bytes", "sentencepiece"]
)
def test_label_of_a_word_is_at_its_first_piece(kind: Any):
    text = ["the cat", "the hat", "a cat at the mat"]
    tokenizer = kind.learn(text)
    row = Tagged(("the", "\u200b ", "cat"), ("D", "X", "N"), "f:1")
    [(values, first_pieces)] = encode_steps([row], TextCodec(tokenizer))
    pieces = [ids or [UNKNOWN] for ids in tokenizer.encode(list(row.source))]
    assert values.tolist() == [*itertools.chain(*pieces)]
    assert [values[i] for i in first_pieces] == [ids[0] for ids in pieces]
    encoded = Tagging().encode([row], Codecs(TextCodec(tokenizer), LabelCodec(("D", "N", "X"))), 100)
    labels = encoded.corpus.target(0)
    assert labels[first_pieces].tolist() == [0, 2, 1]
    assert (labels >= 0).sum() == 3


def test_word_without_pieces_becomes_the_unknown_token():
    tokenizer = WordKind().learn(["a"])
    [(values, first_pieces)] = encode_steps([Tagged((" ", "a"), ("x", "y"), "f:1")], TextCodec(tokenizer))
    assert values.tolist() == [UNKNOWN, *tokenizer.encode(["a"])[0]]
    assert first_pieces.tolist() == [0, 1]


def test_long_sentences_are_left_out_and_long_series_are_cut():
    labels, words = LabelCodec(("x",)), TextCodec(WordKind().learn(["a"]))
    sentences = [Tagged(("a",) * n, ("x",) * n, f"f:{n}") for n in (3, 5, 4)]
    encoded = Tagging().encode([*sentences, Tagged(("a",), ("",), "f:9")], Codecs(words, labels), 4)
    assert encoded.locations == ("f:3", "f:4")
    assert encoded.left_out == {"without a label": 1, "too long": 1}
    frames = np.arange(22.0).reshape(11, 2)
    named = ("x",) * 4 + ("",) * 4 + ("x",) * 3
    encoded = Tagging().encode([Series(frames, named, "f:u1")], Codecs(SeriesCodec(Scaling.learn([frames])), labels), 4)
    assert encoded.corpus.source_lengths.tolist() == [4, 3]  # the window in the middle has no label
    assert encoded.locations == ("f:u1", "f:u1, frame 8")
    long = [Pair("a " * n, "x", f"f:{n}") for n in (3, 5, 0)]
    encoded = Classification().encode(long, Codecs(words, labels), 4)
    assert encoded.locations == ("f:3",)
    assert encoded.left_out == {"empty or without a label": 1, "too long": 1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0, 2.0], [3.0]], "item 1: has rows of different lengths; each frame needs 2 values"),
        ([[1.0, 2.0], [3.0, float("nan")]], "item 1: row 1, column 1 is NaN"),
        ([[1.0, float("inf")]], "item 1: row 0, column 1 is infinite"),
        ([[1.0, 1e300]], "item 1: row 0, column 1 is 1e+300, too large"),
        ([[1.0, 2.0, 3.0]], "item 1: has shape [1, 3], but the run needs [frames, 2]"),
        ([1.0, 2.0], "item 1: has shape [2], but the run needs [frames, 2]"),
        ([["a", "b"]], "item 1: has data type <U1, not real numbers"),
        ("text", "item 1: has data type <U4, not real numbers"),
    ],
)
def test_invalid_frames_are_refused_with_their_row(values: Any, message: str):
    with pytest.raises(DataError) as error:
        as_frames(values, 2, "item 1")
    assert message in str(error.value)
