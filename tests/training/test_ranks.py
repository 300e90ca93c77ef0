"""Several ranks learn what one process learns, lose nothing when one of them is lost, and only the first one writes."""

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
from saccade.training.job import check_same_data, prepare
from saccade.training.loop import train
from saccade.training.progress import Silent

Outcome = Callable[[Path], dict[str, Any]]

SAME = [  # nothing random, several batches an update, and some of a single row, of which one of two ranks has nothing
    "model.dropout={attention=0, residual=0, feed_forward=0, embedding=0}",
    "train.batch_tokens=24",
    "train.update_tokens=60",
    "train.average=0",
]
HARD = ["model.decoder.block.cross.normalizer=hard"]  # draws, and remembers a mean from batch to batch


def flags(sets: list[str]) -> list[str]:
    return [word for each in sets for word in ("--set", each)]


def started(recipe: Path, run: Path, *options: str, restarts: int = 0, silence: float = 15) -> subprocess.Popen[str]:
    """Two ranks, as a user starts them. `--` because torchrun would take `--run` for an option of its own."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    saccade = ["-m", "--", "saccade", "train", str(recipe), "--run", str(run), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SACCADE_HEARTBEAT_TIMEOUT": str(silence)}
    command = [*torchrun, "--max-restarts", str(restarts), *saccade]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def all_said(process: subprocess.Popen[str]) -> str:
    """To the end; whoever has not come to one by then never will."""
    try:
        return process.communicate(timeout=300)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def together(recipe: Path, run: Path, *options: str) -> str:
    """Two ranks to the end; what they said."""
    process = started(recipe, run, *options)
    said = all_said(process)
    assert process.returncode == 0, said
    return said


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def lead_of(run: Path) -> int:
    return int((run / "lock").read_text())


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


def check_same(run: Path, other: Path) -> None:
    """The same curve and the same weights to 1e-5. A key's bias moves all scores of a query alike and changes nothing:
    its gradient is the rounding error of zero, which Adam magnifies."""
    for one, two in zip(metrics(run), metrics(other), strict=True):
        assert one["step"] == two["step"]
        for name in ("loss", "gradient_norm"):
            assert one.get(name) == pytest.approx(two.get(name), abs=1e-5)
        assert one.get("validation", {}).get("loss") == pytest.approx(two.get("validation", {}).get("loss"), abs=1e-5)
    one, two = (load_file(RunFolder(each).checkpoints.at(24) / "weights.safetensors") for each in (run, other))
    assert one.keys() == two.keys()
    for name in one:
        if not name.endswith("key.bias"):
            torch.testing.assert_close(one[name], two[name], atol=1e-5, rtol=1e-4, msg=name)


@pytest.fixture(scope="module")
def recipe(recipe_file: Path) -> Recipe:
    return read_recipe(str(recipe_file), SAME).config


@pytest.fixture(scope="module")
def alone(recipe: Recipe, folder: Path) -> Path:
    run = folder / "alone"
    train(recipe, run, Silent())
    return run


@pytest.fixture(scope="module")
def copied(recipe_file: Path, folder: Path) -> Path:
    run = folder / "replicated"
    together(recipe_file, run, *flags(SAME))
    return run


# ── the same as one process ───────────────────────────────────────────────────────────────────────


def test_some_ranks_are_idle_now_and_then_in_what_follows(recipe: Recipe, tmp_path: Path):
    corpus = prepare(recipe, RunFolder(tmp_path / "none"), Silent()).train.corpus
    plan = updates(
        corpus, recipe.train.batch_tokens, recipe.train.update_tokens, recipe.seed, SamplerState(), Shard(0, 2)
    )
    assert any(batch.idle for _ in range(24) for batch in next(plan)[0])


def test_two_ranks_learn_what_one_process_learns(alone: Path, copied: Path):
    check_same(alone, copied)


def test_only_one_rank_writes(alone: Path, copied: Path):
    steps = [(record["step"], "validation" in record) for record in metrics(copied)]
    assert steps == [(record["step"], "validation" in record) for record in metrics(alone)]
    assert len(set(steps)) == len(steps)
    assert {path.name for path in copied.iterdir()} == {path.name for path in alone.iterdir()} | {"report.html"}


@pytest.mark.slow
def test_two_ranks_with_a_shard_each_learn_what_one_process_learns(recipe_file: Path, alone: Path, tmp_path: Path):
    together(recipe_file, tmp_path / "run", *flags([*SAME, "train.ranks=sharded"]))
    check_same(alone, tmp_path / "run")
    at = Path("checkpoints") / "step-0000024" / "training.safetensors"
    one, two = load_file(alone / at), load_file(tmp_path / "run" / at)
    assert two.keys() - one.keys() == {"random/1"}
    assert {name: one[name].shape for name in one} == {name: two[name].shape for name in one}


# ── going on with another number of ranks ─────────────────────────────────────────────────────────


class Heard(Silent):
    """What was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def shortened(run: Path, into: Path) -> Path:
    """A copy of a run without its last checkpoint."""
    shutil.copytree(run, into)
    shutil.rmtree(into / "checkpoints" / "step-0000024")
    return into


def test_one_process_goes_on_where_two_ranks_stopped_and_says_that_bits_may_differ(
    recipe: Recipe, copied: Path, alone: Path, tmp_path: Path
):
    run, heard = shortened(copied, tmp_path / "run"), Heard()
    train(recipe, run, heard)
    assert "going on from step 18" in heard.said
    assert "warning: not bit-exact: ranks was 2, is 1" in heard.said
    check_same(alone, run)


def test_an_old_checkpoint_was_made_by_one_rank(recipe: Recipe, alone: Path, tmp_path: Path):
    run, heard = shortened(alone, tmp_path / "run"), Heard()
    manifest = run / "checkpoints" / "step-0000018" / "manifest.json"
    facts = json.loads(manifest.read_bytes())
    del facts["ranks"]
    manifest.write_text(json.dumps(facts))
    train(recipe, run, heard)
    assert not [text for text in heard.said if "bit-exact" in text]


@pytest.mark.slow
def test_two_ranks_with_a_shard_each_go_on_where_one_process_stopped(recipe_file: Path, alone: Path, tmp_path: Path):
    run = shortened(alone, tmp_path / "run")
    said = together(recipe_file, run, *flags([*SAME, "train.ranks=sharded"]), "--allow-change")
    assert "going on from step 18" in said
    assert "warning: not bit-exact: ranks was 1, is 2" in said
    check_same(alone, run)


# ── what can happen to a rank ─────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_killed_rank_ends_the_job_and_a_restart_ends_with_the_same_bits(
    recipe_file: Path, tmp_path: Path, outcome: Outcome
):
    whole, run = tmp_path / "whole", tmp_path / "run"
    together(recipe_file, whole, *flags(HARD))
    process = started(recipe_file, run, *flags(HARD), restarts=1)
    wait_for(run / "latest", process)
    os.kill(lead_of(run), signal.SIGKILL)
    said = all_said(process)
    assert process.returncode == 0, said
    assert re.search("^saccade: rank 1: another rank is gone", said, re.MULTILINE), said
    assert re.search("^going on from step", said, re.MULTILINE), said
    assert "bit-exact" not in said
    assert outcome(run) == outcome(whole)


@pytest.mark.slow
def test_a_rank_that_is_stopped_ends_the_job(recipe_file: Path, tmp_path: Path):
    process = started(recipe_file, tmp_path / "run", *flags(["train.updates=1000000"]), silence=2)
    wait_for(tmp_path / "run" / "latest", process)
    lead = lead_of(tmp_path / "run")
    os.kill(lead, signal.SIGSTOP)
    assert process.stderr is not None
    silent = "saccade: rank 1: rank 0 has been silent for 2 seconds"
    assert any(line.startswith(silent) for line in process.stderr)
    os.kill(lead, signal.SIGKILL)  # as torchrun does half a minute later
    all_said(process)
    assert process.returncode != 0


@pytest.mark.slow
def test_ranks_stop_together_when_torchrun_is_told_to(recipe_file: Path, tmp_path: Path):
    run = tmp_path / "run"
    process = started(recipe_file, run, *flags(["train.updates=1000000"]))
    wait_for(run / "latest", process)
    process.send_signal(signal.SIGTERM)
    said = all_said(process)
    step = re.search(r"Saved step ([\d,]+)\. Continue with: the same torchrun command", said)
    assert step, said
    assert (run / "latest").read_text() == f"step-{int(step[1].replace(',', '')):07d}\n"


@pytest.fixture
def of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)


def test_a_dry_run_looks_at_one_process(recipe_file: Path, of_two: None, capsys: pytest.CaptureFixture[str]):
    assert main(["train", str(recipe_file), "--dry-run"]) == 2
    assert "--dry-run: looks at one process; run it without torchrun" in capsys.readouterr().err


class Follower(ranks.SingleProcess):
    """A rank whose lead says one thing."""

    def __init__(self, said: Any):
        self.said = said

    def broadcast(self, value: Any) -> Any:
        return self.said


def test_other_text_than_the_leads_is_refused():
    check_same_data({"data.train.src": "ab"}, Follower({"data.train.src": "ab"}))
    with pytest.raises(DataError, match=r"data\.train\.src: is not the text that rank 0 reads"):
        check_same_data({"data.train.src": "ab"}, Follower({"data.train.src": "cd"}))


def test_errors_name_the_rank():
    with pytest.raises(DataError, match=r"^rank 3: no text"), ranks._errors_of(3):
        raise DataError("no text")
    with pytest.raises(DataError, match=r"^no text"), ranks._errors_of(0):
        raise DataError("no text")
    with pytest.raises(RunError, match=r"^rank 3: another rank is gone"), ranks._errors_of(3):
        raise RuntimeError("[third_party/gloo/transport/tcp/pair.cc:547] Connection closed by peer")
    with pytest.raises(RuntimeError, match="shapes"), ranks._errors_of(3):
        raise RuntimeError("shapes do not fit")


# ── how ranks find and watch each other ───────────────────────────────────────────────────────────


def names(store: HashStore, count: int) -> list[str]:
    found: dict[int, str] = {}

    def join(rank: int) -> None:
        found[rank] = ranks._round(store, rank, count)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(count)]


def test_ranks_agree_on_a_name_that_is_new_after_each_start():
    store = HashStore()
    first, second = names(store, 3), names(store, 3)
    assert len(set(first)) == len(set(second)) == 1
    assert first != second


def test_a_rank_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranks, "JOIN_TIMEOUT", timedelta(0))
    with pytest.raises(RunError, match="rank 1, 2 did not come within"):
        ranks._round(HashStore(), 0, 3)


def test_the_last_to_let_go_of_a_group_is_not_the_models_wrapper(monkeypatch: pytest.MonkeyPatch):
    """It would wait for gloo's threads and keep Python's lock from them."""
    store = TCPStore("localhost", 0, 1, is_master=True)
    monkeypatch.setattr(ranks, "is_distributed", lambda: True)
    monkeypatch.setattr(ranks, "rendezvous", lambda *_, timeout: [(store, 0, 1)])
    with ranks.process_group():
        wrapper = DistributedDataParallel(torch.nn.Linear(1, 1))
        group = weakref.ref(dist.group.WORLD)
    del wrapper
    gc.collect()
    assert group() is not None


def test_ranks_draw_apart():
    assert len({ranks.rank_seed(seed, rank) for seed in (1, 2) for rank in range(4)}) == 8
    assert ranks.rank_seed(7, 0) == 7


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a pulse would end the process."""
    ended = threading.Event()
    monkeypatch.setenv("SACCADE_HEARTBEAT_TIMEOUT", "0.5")
    monkeypatch.setattr("os._exit", lambda code: ended.set())
    return ended


def test_a_rank_that_lives_is_waited_for_and_a_silent_one_is_not(
    ends: threading.Event, capsys: pytest.CaptureFixture[str]
):
    store = TCPStore("localhost", 0, is_master=True)
    with Heartbeat(store, "name", 0, 3), Heartbeat(store, "name", 1, 3):
        with Heartbeat(store, "name", 2, 3):
            assert not ends.wait(1.5)
        assert ends.wait(10)
    assert "saccade: rank 0: rank 2 has been silent for 0.5 seconds" in capsys.readouterr().err


# ── shares ────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=40), st.integers(1, 9))
def test_shares_are_the_whole_batch_in_parts_of_about_equal_length(lengths: list[tuple[int, int]], count: int):
    corpus = Corpus([[5] * source for source, _ in lengths], [[6] * target for _, target in lengths])
    rows = np.arange(len(corpus))[::-1]
    shares = [Shard(rank, count).of(corpus, rows) for rank in range(count)]
    assert np.concatenate(shares).tolist() == rows.tolist()
    tokens = [int(corpus.lengths[share].sum()) for share in shares]
    assert max(tokens) <= corpus.lengths.sum() / count + corpus.lengths.max()
    assert min(tokens) >= corpus.lengths.sum() / count - corpus.lengths.max()


@given(st.integers(1, 5), st.integers(0, 60), st.integers(0, 3))
def test_updates_have_the_same_rows_and_tokens_however_they_are_shared(count: int, gather: int, seed: int):
    dice = np.random.default_rng(seed)
    sources, targets = ([[7] * n for n in dice.integers(1, 12, 30)] for _ in range(2))
    corpus = Corpus(sources, targets)
    whole = updates(corpus, 40, gather, seed, SamplerState())
    plans = [updates(corpus, 40, gather, seed, SamplerState(), Shard(rank, count)) for rank in range(count)]
    for _ in range(5):
        batches, position = next(whole)
        taken = [next(plan) for plan in plans]
        assert {after for _, after in taken} == {position}
        for batch, parts in zip(batches, zip(*(part for part, _ in taken), strict=True), strict=True):
            working = [part for part in parts if not part.idle]
            assert batch.rows == tuple(row for part in working for row in part.rows)
            assert batch.target_tokens == sum(part.target_tokens for part in working)
