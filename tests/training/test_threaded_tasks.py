"""Trainings on two threads: of every way in which targets lie in a batch."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import api
from saccade.training import threads
from saccade.training.progress import Silent
from saccade.training.threads import ThreadedReplicas

WORDS = ["ab", "cde", "fghi", "jklmn", "opqrst", "uvwxyz"]
TRANSLATION = {"kind": "sort", "rows": 60, "shortest": 2, "longest": 9, "symbols": 8}


def decoder_only(folder: Path) -> dict[str, Any]:
    splits = {"train": TRANSLATION, "dev": TRANSLATION | {"split": "dev", "rows": 4}}
    return {"data": splits | {"tokenizer": "words", "longest": 40}, "model": {"encoder": "none"}}


def tagging_of_subwords(folder: Path) -> dict[str, Any]:
    """Words of several tokens, of which only the first has a label."""
    for split, rows in (("train", 60), ("dev", 5)):
        sentences = [[WORDS[(row * 7 + i * i) % len(WORDS)] for i in range(1 + row % 9)] for row in range(rows)]
        blocks = ["".join(f"{word}\t{len(word) > 4}\n" for word in words) for words in sentences]
        (folder / f"{split}.txt").write_text("\n".join(blocks), "utf-8")
    files = {split: {"kind": "columns", "file": f"{split}.txt"} for split in ("train", "dev")}
    return {
        "data": files | {"folder": str(folder), "tokenizer": "characters", "longest": 60},
        "task": "tagging",
        "model": {"head": "linear"},
    }


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threads, "MIN_SHARD_TOKENS", 8)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("task", [decoder_only, tagging_of_subwords])
def test_training_on_two_threads_logs_the_losses_of_one(task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shards: list[int] = []
    run = ThreadedReplicas._run
    monkeypatch.setattr(
        ThreadedReplicas,
        "_run",
        lambda self, function, inputs: shards.append(len(inputs)) or run(self, function, inputs),
    )
    tree = task(tmp_path)
    tree["model"] |= {
        "dim": 16,
        "dropout": {"residual": 0.0, "embedding": 0.0},
        "block": {"self": {"heads": 2}, "feed_forward": {"inner": 24}},
        "encoder" if task is tagging_of_subwords else "decoder": {"depth": 1},
    }
    tree["train"] = {"updates": 6, "batch_tokens": 100, "log_every": 1, "validate_every": 6, "average": 0}
    losses = []
    for count in (2, 1):
        torch.set_num_threads(count)
        run_path = tmp_path / f"run-{count}"
        api.train(tree, run_path, report=Silent())
        records = map(json.loads, (run_path / "metrics.jsonl").read_text("utf-8").splitlines())
        losses.append([record["loss"] for record in records if "loss" in record])
    assert shards.count(2) == 6, "the updates were not computed by two threads"
    assert len(losses[0]) >= 6
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
