"""How labeled rows become batches, and batches without any label."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import saccade
from saccade.data import batches
from saccade.data.batches import COLLATE_LABELS, NO_LABEL, Corpus
from saccade.tasks.tagging import Tagging
from saccade.training import loop
from saccade.training.loop import train
from saccade.training.progress import Silent
from training.labels.labeled_data import TAGGING, recipe_for


def test_labels_are_aligned_with_their_source_positions():
    corpus = Corpus([[5, 6, 7], [8]], [[1, NO_LABEL, 0], [2]], COLLATE_LABELS)
    batch = corpus.batch([0, 1])
    assert batch.source.values.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.inputs is None
    assert batch.outputs.keep is not None
    assert batch.outputs.keep.tolist() == [[True, False, True], [True, False, False]]
    assert batch.outputs.values[batch.outputs.keep].tolist() == [1, 0, 2]
    assert int(batch.outputs.values.min()) >= 0  # masked positions contain a valid label id too
    assert (batch.source_tokens, batch.target_tokens) == (4, 3)
    assert (batch.real_tokens, batch.padded_tokens) == (4, 6)
    assert corpus.target_tokens == 3


def test_sequence_label_gives_one_output_per_row():
    frames = [np.ones((4, 2), np.float32), np.zeros((1, 2), np.float32)]
    batch = Corpus(frames, [[1], [0]], COLLATE_LABELS).batch([0, 1])
    assert batch.source.values.shape == (2, 4, 2)
    assert batch.source.values.dtype == torch.float32
    assert batch.outputs.values.tolist() == [[1], [0]]
    assert batch.outputs.keep is None
    assert batch.target_tokens == 2


def test_batch_size_counts_no_end_symbol_for_labels():
    corpus = Corpus([[1] * 5] * 7, [[0] * 5] * 7, COLLATE_LABELS)
    assert sorted(len(rows) for rows in batches.by_length(corpus, np.arange(7), 10)) == [1, 2, 2, 2]


@TAGGING
def test_batch_without_labels_has_zero_loss_and_zero_gradients(trained_run: Path):
    run = saccade.load(trained_run)
    values = np.zeros((2, 3), np.float32) if run.reads_frames else np.zeros(2, np.int64)
    batch = Corpus([values], [[NO_LABEL] * 2], COLLATE_LABELS).batch([0])
    loss = run.task.loss(run.model, batch)
    loss.total.backward()
    assert (float(loss.total.detach()), loss.count, loss.logged["cost"]) == (0.0, 0, 0.0)
    assert not any(p.grad is not None and p.grad.any() for p in run.model.parameters())


def test_update_without_labels_is_neither_applied_nor_counted_as_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The last batches of an epoch may have no labels: there is no division by zero and no update."""
    recipe = recipe_for(tmp_path, "words", train={"updates": 2, "update_tokens": 0, "average": 0, "log_every": 1})
    encode = Tagging.encode

    def encode_without_labels(self: Tagging, rows: Any, codecs: Any, longest: int) -> Any:
        encoded = encode(self, rows, codecs, longest)
        encoded.corpus.targets.values[:] = NO_LABEL
        return encoded

    monkeypatch.setattr(Tagging, "encode", encode_without_labels)
    records = []
    monkeypatch.setattr(loop, "append", lambda run, state, record: records.append(record))
    train(recipe, tmp_path / "run", Silent())
    assert [record["loss"] for record in records if "loss" in record] == [None, None]
    assert all(record["skipped"] == 0 for record in records if "loss" in record)
