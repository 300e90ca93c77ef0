"""Distributed training: several ranks train the same model as one process, a restart after a lost rank gives
bit-identical results, and only rank 0 writes."""

import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.distributed import HashStore, TCPStore  # type: ignore[reportPrivateImportUsage]
from torch.nn.parallel import DistributedDataParallel

from saccade.cli import main
from saccade.data.batches import Corpus, SamplerState, Shard, updates
from saccade.errors import DataError, RunError
from saccade.recipe import Recipe, read_recipe
from saccade.runs.folder import RunFolder
from saccade.training import ranks
from saccade.training.heartbeat import Heartbeat
from saccade.training.job import check_same_data_on_ranks, prepare
from saccade.training.loop import train
from saccade.training.progress import Silent
from training.helpers import Contents, Recorder
from training.kill_driver import Driver, Job, stderr_of, wait_until

# No dropout, and several batches per update. Some batches have a single row, so one of two ranks is idle.
DETERMINISTIC = [
    "model.dropout={attention=0, residual=0, feed_forward=0, embedding=0}",
    "train.batch_tokens=24",
    "train.update_tokens=60",
    "train.average=0",
]
# Hard attention samples, and keeps a running mean.
HARD = ["model.decoder.block.cross.normalizer=hard"]


def set_flags(assignments: list[str]) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]


def start_torchrun(recipe: Path, run: Path, *options: str, restarts: int = 0) -> subprocess.Popen[str]:
    """Start two ranks by torchrun, as a user does. Without `--`, torchrun would take `--run` for its own option."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    saccade = ["-m", "--", "saccade", "train", str(recipe), "--run", str(run), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SACCADE_HEARTBEAT_TIMEOUT": "15"}
    command = [*torchrun, "--max-restarts", str(restarts), *saccade]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def stderr_at_end(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a process; kill it if it does not come."""
    try:
        return process.communicate(timeout=300)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def two_ranks_job(
    job: Callable[..., Job], run: Path, assignments: list[str], *options: str, heartbeat_timeout: float = 15
) -> Job:
    """A job of two ranks without torchrun, which takes a third of the time."""
    environment = {"SACCADE_HEARTBEAT_TIMEOUT": str(heartbeat_timeout)}
    two_ranks = job(run, assignments, ranks=2, environment=environment)
    return two_ranks | {"command": [*two_ranks["command"], *options]}


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def pid_of_rank_0(run: Path) -> int:
    return int((run / "lock").read_text())


def all_records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


def check_same_result(run: Path, other: Path) -> None:
    """Compare curves and weights to 1e-5. The key biases are left out: softmax cancels them, so their gradient is only
    the rounding error of zero, which Adam magnifies."""
    for ours, theirs in zip(all_records(run), all_records(other), strict=True):
        assert ours["step"] == theirs["step"]
        for name in ("loss", "gradient_norm"):
            assert ours.get(name) == pytest.approx(theirs.get(name), abs=1e-5)
        validation_loss = theirs.get("validation", {}).get("loss")
        assert ours.get("validation", {}).get("loss") == pytest.approx(validation_loss, abs=1e-5)
    ours, theirs = (load_file(RunFolder(path).checkpoints.at(24) / "weights.safetensors") for path in (run, other))
    assert ours.keys() == theirs.keys()
    for name in ours:
        if not name.endswith("key.bias"):
            torch.testing.assert_close(ours[name], theirs[name], atol=1e-5, rtol=1e-4, msg=name)


@pytest.fixture(scope="module")
def recipe(recipe_file: Path) -> Recipe:
    return read_recipe(str(recipe_file), DETERMINISTIC).config


@pytest.fixture(scope="module")
def single_process_run(recipe: Recipe, folder: Path) -> Path:
    run = folder / "single-process"
    train(recipe, run, Silent())
    return run


@pytest.fixture(scope="module")
def two_ranks_run(recipe_file: Path, folder: Path) -> Path:
    run = folder / "two-ranks"
    process = start_torchrun(recipe_file, run, *set_flags(DETERMINISTIC))
    stderr = stderr_at_end(process)
    assert process.returncode == 0, stderr
    return run


# ── the same as one process ───────────────────────────────────────────────────────────────────────


def test_recipe_leaves_a_rank_idle_in_some_batches(recipe: Recipe, tmp_path: Path):
    corpus = prepare(recipe, RunFolder(tmp_path / "none"), Silent()).train.corpus
    plan = updates(
        corpus, recipe.train.batch_tokens, recipe.train.update_tokens, recipe.seed, SamplerState(), Shard(0, 2)
    )
    assert any(batch.idle for _ in range(24) for batch in next(plan)[0])


def test_two_ranks_train_the_same_model_as_one_process(single_process_run: Path, two_ranks_run: Path):
    check_same_result(single_process_run, two_ranks_run)


def test_only_rank_0_writes(single_process_run: Path, two_ranks_run: Path):
    steps = [(record["step"], "validation" in record) for record in all_records(two_ranks_run)]
    assert steps == [(record["step"], "validation" in record) for record in all_records(single_process_run)]
    assert len(set(steps)) == len(steps)
    single_process_files = {path.name for path in single_process_run.iterdir()}
    assert {path.name for path in two_ranks_run.iterdir()} == single_process_files | {"report.html"}


@pytest.mark.slow
def test_two_sharded_ranks_train_the_same_model_as_one_process(
    job: Callable[..., Job], drive: Driver, single_process_run: Path, tmp_path: Path
):
    codes = drive(two_ranks_job(job, tmp_path / "run", [*DETERMINISTIC, "train.parallelism=sharded"]))
    assert codes == [0], stderr_of(tmp_path / "run")
    check_same_result(single_process_run, tmp_path / "run")
    file = Path("checkpoints") / "step-0000024" / "training.safetensors"
    single, sharded = load_file(single_process_run / file), load_file(tmp_path / "run" / file)
    assert sharded.keys() - single.keys() == {"random/1"}
    assert {name: single[name].shape for name in single} == {name: sharded[name].shape for name in single}


# ── resuming with another number of ranks ─────────────────────────────────────────────────────────


def copy_without_last_checkpoint(run: Path, copy: Path) -> Path:
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoints" / "step-0000024")
    return copy


def test_one_process_resumes_a_run_of_two_ranks_and_warns(
    recipe: Recipe, two_ranks_run: Path, single_process_run: Path, tmp_path: Path
):
    run, report = copy_without_last_checkpoint(two_ranks_run, tmp_path / "run"), Recorder()
    train(recipe, run, report)
    assert "resuming from step 18" in report.messages
    assert "warning: the result will not be bit-exact: ranks changed from 2 to 1" in report.messages
    check_same_result(single_process_run, run)


def test_checkpoint_without_a_number_of_ranks_counts_as_one_rank(
    recipe: Recipe, single_process_run: Path, tmp_path: Path
):
    run, report = copy_without_last_checkpoint(single_process_run, tmp_path / "run"), Recorder()
    manifest = run / "checkpoints" / "step-0000018" / "manifest.json"
    facts = json.loads(manifest.read_bytes())
    del facts["ranks"]
    manifest.write_text(json.dumps(facts))
    train(recipe, run, report)
    assert not [text for text in report.messages if "bit-exact" in text]


@pytest.mark.slow
def test_two_sharded_ranks_resume_a_run_of_one_process(
    job: Callable[..., Job], drive: Driver, single_process_run: Path, tmp_path: Path
):
    run = copy_without_last_checkpoint(single_process_run, tmp_path / "run")
    codes = drive(two_ranks_job(job, run, [*DETERMINISTIC, "train.parallelism=sharded"], "--allow-change"))
    stderr = stderr_of(run)
    assert codes == [0], stderr
    assert "resuming from step 18" in stderr
    assert "warning: the result will not be bit-exact: ranks changed from 1 to 2" in stderr
    check_same_result(single_process_run, run)


# ── failing and interrupted ranks ─────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_restart_after_a_killed_rank_is_bit_exact(
    recipe_file: Path, job: Callable[..., Job], drive: Driver, tmp_path: Path, contents: Contents
):
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    assert drive(two_ranks_job(job, undisturbed, HARD)) == [0], stderr_of(undisturbed)
    process = start_torchrun(recipe_file, run, *set_flags(HARD), restarts=1)
    wait_for(run / "latest", process)
    os.kill(pid_of_rank_0(run), signal.SIGKILL)
    stderr = stderr_at_end(process)
    assert process.returncode == 0, stderr
    # whichever is first: the lost connection, or torchrun, which ends the other ranks
    assert re.search("^saccade: (rank 1: another rank ended|terminated)", stderr, re.MULTILINE), stderr
    assert re.search("^resuming from step", stderr, re.MULTILINE), stderr
    assert "bit-exact" not in stderr
    assert contents(run) == contents(undisturbed)


@pytest.mark.slow
def test_suspended_rank_ends_the_job(job: Callable[..., Job], drive: Driver, tmp_path: Path):
    run = tmp_path / "run"
    drive.start(two_ranks_job(job, run, ["train.updates=1000000"], heartbeat_timeout=2))
    wait_until((run / "latest").exists, drive.process)
    rank_0 = pid_of_rank_0(run)
    os.kill(rank_0, signal.SIGSTOP)
    message = "saccade: rank 1: rank 0 sent no heartbeat for 2 seconds"
    wait_until(lambda: stderr_of(run, rank=1).startswith(message), drive.process)
    os.kill(rank_0, signal.SIGKILL)  # as torchrun does half a minute later
    assert drive.exit_code() != 0


@pytest.mark.slow
def test_sigterm_to_torchrun_stops_all_ranks_at_the_same_step(recipe_file: Path, tmp_path: Path):
    run = tmp_path / "run"
    process = start_torchrun(recipe_file, run, *set_flags(["train.updates=1000000"]))
    wait_for(run / "latest", process)
    process.send_signal(signal.SIGTERM)
    stderr = stderr_at_end(process)
    step = re.search(r"saved a checkpoint at step ([\d,]+); resume with: the same torchrun command", stderr)
    assert step, stderr
    assert (run / "latest").read_text() == f"step-{int(step[1].replace(',', '')):07d}\n"


@pytest.fixture
def rank_1_of_2(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)


def test_dry_run_is_refused_under_torchrun(recipe_file: Path, rank_1_of_2: None, capsys: pytest.CaptureFixture[str]):
    assert main(["train", str(recipe_file), "--dry-run"]) == 2
    assert "--dry-run: works in one process only; run it without torchrun" in capsys.readouterr().err


class Follower(ranks.SingleProcess):
    """A rank for which rank 0 broadcasts a given value."""

    def __init__(self, value: Any):
        super().__init__()
        self.value = value

    def broadcast(self, value: Any) -> Any:
        return self.value


def test_file_that_differs_from_that_of_rank_0_is_refused():
    check_same_data_on_ranks({"data.train.src": "ab"}, Follower({"data.train.src": "ab"}))
    with pytest.raises(DataError, match=r"data\.train\.src: differs from the file of rank 0"):
        check_same_data_on_ranks({"data.train.src": "ab"}, Follower({"data.train.src": "cd"}))


def test_errors_name_the_rank_unless_it_is_rank_0():
    with pytest.raises(DataError, match=r"^rank 3: no text"), ranks._rank_errors(3):
        raise DataError("no text")
    with pytest.raises(DataError, match=r"^no text"), ranks._rank_errors(0):
        raise DataError("no text")
    with pytest.raises(RunError, match=r"^rank 3: another rank ended"), ranks._rank_errors(3):
        raise RuntimeError("[third_party/gloo/transport/tcp/pair.cc:547] Connection closed by peer")
    with pytest.raises(RuntimeError, match="shapes"), ranks._rank_errors(3):
        raise RuntimeError("shapes do not fit")


# ── process group and heartbeat ───────────────────────────────────────────────────────────────────


def agreed_names(store: HashStore, count: int) -> list[str]:
    """The name of the process group that each rank gets."""
    names: dict[int, str] = {}

    def join(rank: int) -> None:
        names[rank] = ranks._agree_on_name(store, rank, count)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [names[rank] for rank in range(count)]


def test_ranks_agree_on_a_new_name_at_each_start():
    store = HashStore()
    first, second = agreed_names(store, 3), agreed_names(store, 3)
    assert len(set(first)) == len(set(second)) == 1
    assert first != second


def test_ranks_that_do_not_start_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranks, "JOIN_TIMEOUT", timedelta(0))
    with pytest.raises(RunError, match="rank 1, 2 did not start within 0 minutes"):
        ranks._agree_on_name(HashStore(), 0, 3)


def test_process_group_outlives_the_ddp_wrapper(monkeypatch: pytest.MonkeyPatch):
    """Otherwise the wrapper's destructor waits for gloo's threads while it holds the GIL: a deadlock."""
    store = TCPStore("localhost", 0, 1, is_master=True)
    monkeypatch.setattr(ranks, "is_distributed", lambda: True)
    monkeypatch.setattr(ranks, "rendezvous", lambda *_, timeout: [(store, 0, 1)])
    with ranks.process_group():
        wrapper = DistributedDataParallel(torch.nn.Linear(1, 1))
        group = weakref.ref(dist.group.WORLD)
    del wrapper
    gc.collect()
    assert group() is not None


def test_ranks_have_different_random_seeds():
    assert len({ranks.rank_seed(seed, rank) for seed in (1, 2) for rank in range(4)}) == 8
    assert ranks.rank_seed(7, 0) == 7


@pytest.fixture
def exited(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that is set when a heartbeat exits the process."""
    event = threading.Event()
    monkeypatch.setenv("SACCADE_HEARTBEAT_TIMEOUT", "0.5")
    monkeypatch.setattr("os._exit", lambda code: event.set())
    return event


@pytest.mark.slow
def test_heartbeat_exits_only_if_a_rank_stops_sending(exited: threading.Event, capsys: pytest.CaptureFixture[str]):
    store = TCPStore("localhost", 0, is_master=True)
    with Heartbeat(store, "name", 0, 3), Heartbeat(store, "name", 1, 3):
        with Heartbeat(store, "name", 2, 3):
            assert not exited.wait(1.5)
        assert exited.wait(10)
    assert "saccade: rank 0: rank 2 sent no heartbeat for 0.5 seconds" in capsys.readouterr().err


# ── shards ────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=40), st.integers(1, 9))
def test_shards_partition_a_batch_into_parts_of_about_equal_length(lengths: list[tuple[int, int]], count: int):
    corpus = Corpus([[5] * source for source, _ in lengths], [[6] * target for _, target in lengths])
    rows = np.arange(len(corpus))[::-1]
    shards = [Shard(rank, count).of(corpus, rows) for rank in range(count)]
    assert np.concatenate(shards).tolist() == rows.tolist()
    tokens = [int(corpus.lengths[shard].sum()) for shard in shards]
    assert max(tokens) <= corpus.lengths.sum() / count + corpus.lengths.max()
    assert min(tokens) >= corpus.lengths.sum() / count - corpus.lengths.max()


@given(st.integers(1, 5), st.integers(0, 60), st.integers(0, 3))
def test_updates_have_the_same_rows_and_tokens_for_any_number_of_ranks(count: int, update_tokens: int, seed: int):
    generator = np.random.default_rng(seed)
    sources, targets = ([[7] * n for n in generator.integers(1, 12, 30)] for _ in range(2))
    corpus = Corpus(sources, targets)
    whole = updates(corpus, 40, update_tokens, seed, SamplerState())
    plans = [updates(corpus, 40, update_tokens, seed, SamplerState(), Shard(rank, count)) for rank in range(count)]
    for _ in range(5):
        batches, position = next(whole)
        shares = [next(plan) for plan in plans]
        assert {after for _, after in shares} == {position}
        for batch, parts in zip(batches, zip(*(part for part, _ in shares), strict=True), strict=True):
            busy = [part for part in parts if not part.idle]
            assert batch.rows == tuple(row for part in busy for row in part.rows)
            assert batch.target_tokens == sum(part.target_tokens for part in busy)
