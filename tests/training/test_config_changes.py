"""A run resumes with the config it was started with. Some keys may change if the user allows it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from saccade.errors import RunError
from saccade.recipe import Recipe
from saccade.runs.folder import CHANGEABLE_KEYS
from saccade.training.loop import train
from training.helpers import Contents, Recorder, train_run

# other values of keys that must not change
OTHER_VALUES = {
    "seed": 4,
    "data.longest": 19,
    "data.skip_bad": "true",
    "data.train.rows": 61,
    "data.dev.seed": 2,
    "data.tokenizer.min_frequency": 2,
    "task.smoothing": 0.2,
    "model.dim": 32,
    "model.encoder.depth": 2,
    "model.decoder.block.feed_forward.inner": 64,
    "model.dropout.residual": 0.1,
    "train.batch_tokens": 64,
    "train.update_tokens": 0,
    "train.optimizer.eps": 1e-8,
    "train.schedule.rate": 0.02,
    "train.validate_every": 5,
    "train.best_by": '"bleu"',
    "train.start_from": '"runs/other"',
    "train.freeze": '["encoder.*"]',
    "decode.search.size": 2,
}


@pytest.mark.parametrize("key", OTHER_VALUES)
@pytest.mark.parametrize("allow_change", [False, True], ids=["", "with allow_change"])
def test_changed_key_is_refused(
    allow_change: bool, key: str, run: Path, recipe_with: Callable[..., Recipe], contents: Contents
):
    before = contents(run)
    with pytest.raises(RunError, match=rf"\n  {re.escape(key)}: .* → ") as error:
        train(recipe_with(f"{key}={OTHER_VALUES[key]}"), run, Recorder(), allow_change=allow_change)
    assert str(error.value).count(" → ") == 1
    assert contents(run) == before


def test_all_changed_keys_are_listed(run: Path, recipe_with: Callable[..., Recipe]):
    with pytest.raises(RunError) as error:
        train(recipe_with("seed=4", "train.keep=3", "train.schedule.kind=constant"), run, Recorder())
    listed = re.findall(r"\n  (\S+): (.*) → (.*)", str(error.value))
    assert {key for key, _, _ in listed} == {
        "seed",
        "train.keep",
        "train.schedule.kind",
        "train.schedule.rate",
    } | {"train.schedule.warmup"}
    assert ("seed", "3", "4") in listed
    assert "--allow-change" not in str(error.value)  # it could not help: seed must not change
    assert "--run DIR" in str(error.value)


@pytest.mark.parametrize("flag", ["data.joint=false", "data.tokenizer=sentencepiece", "data.tokenizer=characters"])
def test_changed_tokenizer_is_refused(flag: str, run: Path, recipe_with: Callable[..., Recipe]):
    with pytest.raises(RunError, match=rf"\n  {flag.partition('=')[0]}[.a-z]*: .* → "):
        train(recipe_with(flag, "model.shared_embeddings=false"), run, Recorder())


CHANGEABLE_VALUES = {
    "data.cache": "never",
    "train.updates": 30,
    "train.minutes": 60.0,
    "train.stop_at": 0.001,
    "train.patience": 9,
    "train.keep": 3,
    "train.average": 2,
    "train.log_every": 3,
    "train.parallelism": "sharded",
    "train.device": "cpu",
    "train.precision": "bfloat16",
}


def test_all_changeable_keys_are_tested():
    assert {*CHANGEABLE_VALUES, "data.folder"} == CHANGEABLE_KEYS


@pytest.mark.parametrize("key", CHANGEABLE_VALUES)
def test_changeable_key_may_change_with_allow_change(key: str, run: Path, recipe_with: Callable[..., Recipe]):
    other = recipe_with(f"{key}={CHANGEABLE_VALUES[key]}")
    with pytest.raises(RunError, match=rf"  {key}: .* → [\s\S]*continue with the new ones with --allow-change"):
        train(other, run, Recorder())
    train_run(other, run, until=20, allow_change=True)
    train_run(other, run)  # the run has stored the new value


def test_only_unchangeable_keys_are_listed_with_allow_change(run: Path, recipe_with: Callable[..., Recipe]):
    with pytest.raises(RunError) as error:
        train(recipe_with("seed=4", "train.keep=3"), run, Recorder(), allow_change=True)
    assert re.findall(r"\n  (\S+): ", str(error.value)) == ["seed"]
