"""A training that is killed at any moment and resumed ends with the same bits as one that is not."""

import contextlib
import json
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training.helpers import Contents, user_process
from training.kill_driver import Driver, Job, SameContents, size, stderr_of, wait_until


def test_reference_run_exercises_all_state_that_resume_restores(reference: Path):
    records = [json.loads(line) for line in (reference / "metrics.jsonl").read_text("utf-8").splitlines()]
    logged = [record["step"] for record in records if "loss" in record]
    validated = [record["step"] for record in records if "validation" in record]
    assert logged == [4, 8, 12, 16, 20, 24]
    assert validated == [6, 12, 18, 24]
    assert records[-2]["epoch"] >= 2  # so the rows were shuffled more than once
    kept = sorted(path.name for path in (reference / "checkpoints").iterdir())
    assert kept == ["average", "step-0000012", "step-0000018", "step-0000024"]  # that of step 6 was pruned


def test_reference_updates_accumulate_several_batches(recipe_file: Path):
    from saccade.data.batches import SamplerState, updates
    from saccade.recipe import read_recipe, sources_of
    from saccade.runs.folder import learn_codecs, load_split

    recipe = read_recipe(str(recipe_file)).config
    rows, _ = load_split(sources_of(recipe), "train", False)
    corpus = recipe.built_task.encode(rows, learn_codecs(recipe, rows), 256).corpus
    plan = updates(corpus, recipe.train.batch_tokens, recipe.train.update_tokens, recipe.seed, SamplerState())
    counts = [len(next(plan)[0]) for _ in range(recipe.train.updates)]
    assert sum(count > 1 for count in counts) > 12


def test_training_in_the_driver_equals_that_of_a_users_command(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, contents: Contents
):
    run = folder / "forked"
    assert drive(job(run)) == [0]
    assert contents(run) == contents(reference)


# Everything that a save can do, in few updates: a second checkpoint, a third one that prunes the first, an average.
SHORT = ["train.updates=3", "train.validate_every=1", "train.log_every=2", "train.keep=1", "train.average=2"]


def test_resume_is_bit_exact_from_every_state_of_the_disk(
    folder: Path, job: Callable[..., Job], drive: Driver, same: SameContents
):
    copies = folder / "copies"
    copies.mkdir()
    assert drive(job(folder / "undisturbed", SHORT), job(folder / "copied", SHORT, copies=str(copies))) == [0, 0]
    states = sorted(copies.iterdir())
    labels = {state.name.partition("-")[2] for state in states}
    assert {"save_file", "save_file-truncated", "rename", "replace", "unlink", "mkdir", "append-truncated"} <= labels
    assert len(states) > 60
    codes = drive(*[job(state, SHORT) for state in states])
    assert {state.name: code for state, code in zip(states, codes, strict=True) if code} == {}
    assert [state.name for state in states if not same(state, folder / "undisturbed")] == []


# Moment → [label, n]: the process is killed right after the n-th call of this label (see `WATCHED` in kill_driver.py).
KILLS = {
    "after the first update": ["update", 1],
    "after an update between log records": ["update", 7],
    "after the last update": ["update", 24],
    "after a log record": ["log", 2],
    "after a batch of the development data is decoded": ["decode", 3],
    "after the loss of the development data is computed": ["cost", 2],
    "between a log record in metrics.jsonl and its line in timing.jsonl": ["append", 3],
    "before the checkpoint of a validation is written": ["validate", 2],
    "after a checkpoint, before latest and best": ["write_checkpoint", 2],
    "after latest and best, before pruning": ["mark", 4],
    "between weights and optimizer tensors": ["save_file", 5],
    "before the average is written": ["average", 1],
    "after the average is renamed": ["write_checkpoint", 5],
}


@pytest.fixture(scope="module")
def killed(folder: Path, job: Callable[..., Job], drive: Driver) -> dict[str, tuple[Path, list[int]]]:
    runs = {name: folder / f"killed-{number}" for number, name in enumerate(KILLS)}
    jobs = [step for name, run in runs.items() for step in (job(run, at=KILLS[name]), job(run))]
    codes = drive(*jobs)
    return {name: (run, codes[2 * number : 2 * number + 2]) for number, (name, run) in enumerate(runs.items())}


@pytest.mark.parametrize("moment", KILLS)
def test_resume_is_bit_exact_after_sigkill(
    moment: str, killed: dict[str, tuple[Path, list[int]]], reference: Path, same: SameContents
):
    run, codes = killed[moment]
    assert codes == [-signal.SIGKILL, 0], stderr_of(run)
    assert same(run, reference)


def test_resume_prunes_checkpoints_that_a_kill_left(
    killed: dict[str, tuple[Path, list[int]]], reference: Path, contents: Contents
):
    run, _ = killed["after latest and best, before pruning"]
    assert contents(run).keys() == contents(reference).keys()


def test_resume_is_bit_exact_after_sigkill_at_disk_calls(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, same: SameContents
):
    """The copies of the folder cover all disk calls; this test kills at some of them, at others in each test run."""
    first = random.randrange(1, 12)
    runs = {k: folder / f"call-{k}" for k in range(first, 130, 12)}
    codes = drive(*[step for k, run in runs.items() for step in (job(run, at=["any", k]), job(run))])
    assert codes[0::2].count(-signal.SIGKILL) >= 8, codes
    assert set(codes[1::2]) == {0}, codes
    assert [k for k, run in runs.items() if not same(run, reference)] == []


def test_run_that_is_killed_repeatedly_finishes(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, contents: Contents
):
    run = folder / "again"
    codes = drive(*[job(run, at=["update", 8])] * 4)  # each saves six of its eight updates
    assert codes == [-signal.SIGKILL] * 3 + [0]
    assert contents(run) == contents(reference)


def test_kill_loses_at_most_one_checkpoint_interval(folder: Path, job: Callable[..., Job], drive: Driver):
    run = folder / "lost"
    assert drive(job(run, at=["update", 17]), job(run)) == [-signal.SIGKILL, 0]
    assert "resuming from step 12" in stderr_of(run)


def test_resume_is_bit_exact_after_sigkill_at_random_moments(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, same: SameContents
):
    seed = random.randrange(10**6)
    generator, run = random.Random(seed), folder / "random"
    final_size, metrics = size(reference / "metrics.jsonl"), run / "metrics.jsonl"
    for _ in range(3):
        with user_process(job(run)) as process:
            threshold = generator.randrange(min(size(metrics), final_size - 1), final_size)
            wait_until(lambda threshold=threshold: size(metrics) >= threshold and (run / "lock").exists(), process)
            time.sleep(generator.random() * 0.05)
            process.kill()
    assert drive(job(run)) == [0], seed
    assert same(run, reference), seed


def undamaged_steps(run: Path) -> list[int]:
    from saccade.errors import RunError
    from saccade.runs.checkpoints import Checkpoints
    from saccade.runs.files import verify

    checkpoints = Checkpoints(run / "checkpoints")
    undamaged = []
    for step in checkpoints.steps():
        with contextlib.suppress(RunError):
            verify(checkpoints.at(step))
            undamaged.append(step)
    return undamaged


@pytest.mark.parametrize(
    "interrupt",
    [
        {},
        {"at": ["update", 8], "signal": signal.SIGINT},
        {"at": ["update", 12], "signal": signal.SIGINT},
    ],
    ids=["undisturbed", "interrupted", "interrupted at a validation"],
)
def test_newest_checkpoint_exists_at_every_moment(
    interrupt: dict[str, Any], tmp_path: Path, job: Callable[..., Job], drive: Driver
):
    """Even with train.keep = 1."""
    copies = tmp_path / "copies"
    copies.mkdir()
    copied = job(tmp_path / "run", ["train.keep=1", "train.average=0"], copies=str(copies), **interrupt)
    assert drive(copied) == [130 if interrupt else 0]
    newest = [max(undamaged_steps(path), default=0) for path in sorted(copies.iterdir())]
    assert max(newest) >= 8
    assert newest == sorted(newest)


def test_training_a_finished_run_again_does_not_change_it(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, contents: Contents
):
    run = folder / "finished"
    shutil.copytree(reference, run)
    assert drive(job(run)) == [0]
    assert "resuming from step 24" in stderr_of(run)
    assert contents(run) == contents(reference)


@pytest.mark.parametrize("state_part", ["random", "optimizer", "sums", "position", "metrics"])
def test_comparison_detects_a_resume_that_does_not_restore_all_state(
    state_part: str, folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, contents: Contents
):
    run = folder / f"forgets-{state_part}"
    assert drive(job(run, at=["update", 9]), job(run, forget=state_part)) == [-signal.SIGKILL, 0], stderr_of(run)
    assert contents(run) != contents(reference)
