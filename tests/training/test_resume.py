"""A training killed at any moment and started again ends with the same bits.

Run as a script this file is the driver that does the killing: it imports torch once, then forks a child for each job,
so that hundreds of trainings cost seconds. A job says where its child is to be killed, or where the state of the disk
is to be copied: a copy of the folder at some moment is what a kill at that moment leaves.
"""

import contextlib
import hashlib
import importlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

Job = dict[str, Any]
Outcome = Callable[[Path], dict[str, Any]]

# What the driver can stop at: every call that changes the disk, and every stage of training.
WATCHED = {
    "fsync": ("os", "fsync"),
    "rename": ("os", "rename"),
    "replace": ("os", "replace"),
    "chmod": ("os", "chmod"),
    "mkdir": ("os", "mkdir"),
    "unlink": ("os", "unlink"),
    "rmdir": ("os", "rmdir"),
    "write": ("pathlib:Path", "write_bytes"),
    "save_file": ("saccade.runs.weights", "save_file"),
    "rmtree": ("shutil", "rmtree"),
    "update": ("saccade.training.loop", "update"),
    "log": ("saccade.training.loop", "log"),
    "append": ("saccade.training.loop", "append"),
    "decode": ("saccade.decode.search_engine:SearchEngine", "_generate_batch"),
    "cost": ("saccade.tasks.translation", "teacher_forced_cost"),
    "validate": ("saccade.training.loop", "validate"),
    "write_checkpoint": ("saccade.training.loop", "write_checkpoint"),
    "mark": ("saccade.training.loop", "mark"),
    "save": ("saccade.training.loop", "save"),
    "average": ("saccade.training.loop", "average"),
}
DISK = ("fsync", "rename", "replace", "chmod", "mkdir", "unlink", "rmdir", "write", "save_file", "rmtree")


# ── the driver ────────────────────────────────────────────────────────────────────────────────────


class Watch:
    """Counts the watched calls of this process and tells `heard(label, arguments, count of this label, of all)`."""

    def __init__(self, heard: Callable[[str, tuple[Any, ...], int, int], None]):
        self.heard, self.counts, self.all, self.busy = heard, dict.fromkeys(WATCHED, 0), 0, False
        for label, (place, name) in WATCHED.items():
            module, _, inner = place.partition(":")
            owner = importlib.import_module(module)
            self._wrap(label, getattr(owner, inner) if inner else owner, name)

    def _wrap(self, label: str, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            if not self.busy:
                self.counts[label] += 1
                self.all += label in DISK
                self.busy = True
                self.heard(label, args, self.counts[label], self.all)
                self.busy = False
            return result

        setattr(owner, name, watched)


def _killer(job: Job) -> Callable[[str, tuple[Any, ...], int, int], None]:
    """`at`: ["update", 9] is right after the ninth call, ["any", 30] after the thirtieth that changes the disk."""
    label, wanted = job["at"]

    def heard(called: str, _: tuple[Any, ...], count: int, every: int) -> None:
        if (called == label and count == wanted) or (label == "any" and called in DISK and every == wanted):
            os.kill(os.getpid(), job.get("signal", signal.SIGKILL))

    return heard


def _copier(job: Job) -> Callable[[str, tuple[Any, ...], int, int], None]:
    """Copy the run folder whenever it has changed; also with the file cut short that has just been written."""
    run, copies = Path(job["run"]), Path(job["copies"])
    seen: set[str] = set()

    def copy(label: str, torn: Path | None = None) -> None:
        target = copies / f"{len(seen):03d}-{label}"
        shutil.copytree(run, target)
        if torn is not None:
            size = (run / torn).stat().st_size
            os.truncate(target / torn, size - 9 if label.startswith("append") else size // 2)

    def heard(label: str, args: tuple[Any, ...], count: int, every: int) -> None:
        if not run.is_dir():
            return
        files = sorted(path for path in run.rglob("*") if path.name not in ("lock", "timing.jsonl"))
        state = hashlib.sha256()
        for path in files:
            state.update(f"{path} {path.is_dir()}".encode() + (b"" if path.is_dir() else path.read_bytes()))
        if state.hexdigest() in seen:
            return
        seen.add(state.hexdigest())
        copy(label)
        written = {"save_file": args[-1], "write": args[0], "append": run / "metrics.jsonl"}
        if label in written and Path(written[label]).is_relative_to(run):
            copy(f"{label}-torn", Path(written[label]).relative_to(run))

    return heard


def _forget(what: str) -> None:
    """Planted defects: what a careless resume would leave out."""
    from saccade.data.batches import SamplerState
    from saccade.training import job, loop, state

    tensors, read, restore, save = job.TrainingJob.restore_tensors, state.TrainingState.read, loop.restore, loop.save

    def careless_tensors(self: Any, found: dict[str, Any]) -> None:
        import torch

        now = torch.get_rng_state()
        kept = {"random": found["random"]} if what == "optimizer" else found
        tensors(self, dict(kept))
        if what == "random":
            torch.set_rng_state(now)

    def careless_read(tree: Any) -> Any:
        found = read(tree)
        if what == "sums":
            found.sums = state.IntervalSums()
        if what == "position":
            found.position = SamplerState(found.position.epoch, 0)
        return found

    def careless_restore(work: Any, run: Any, report: Any) -> Any:
        before = run.metrics.read_bytes() if run.metrics.exists() else b""
        found = restore(work, run, report)
        if what == "metrics":
            run.metrics.write_bytes(before)
        return found

    def careless_save(*args: Any, regular: bool) -> None:
        save(*args, regular=regular or what == "regular")

    job.TrainingJob.restore_tensors, state.TrainingState.read = careless_tensors, careless_read
    loop.restore, loop.save = careless_restore, careless_save


def _linger(marker: Path) -> None:
    """The third update takes a minute."""
    from saccade.training import loop

    real = loop.update

    def update(job: Any, state: Any, batches: Any) -> None:
        real(job, state, batches)
        if state.step == 2:
            marker.touch()
            time.sleep(60)

    loop.update = update


def _child(job: Job) -> int:
    from saccade.cli import main

    os.dup2(os.open(job["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    if "forget" in job:
        _forget(job["forget"])
    if "linger" in job:
        _linger(Path(job["linger"]))
    if "copies" in job:
        Watch(_copier(job))
    if "at" in job:
        Watch(_killer(job))
    sys.argv = ["saccade", *job["command"]]
    return main(sys.argv[1:])


def _serve() -> None:
    """Jobs in, exit codes out, a line each."""
    # all that a training imports, once, before the fork
    for name in ("saccade.cli", "saccade.training.dry_run", "saccade.training.loop", "torch._dynamo"):
        importlib.import_module(name)
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 99
            try:
                code = _child(job)
            except SystemExit as stop:
                code = int(stop.code or 0)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


# ── what the tests need of it ─────────────────────────────────────────────────────────────────────

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def job(recipe_file: Path) -> Callable[..., Job]:
    """`job(run, at=…)`: one child of the driver, training that run."""

    def made(run: Path, sets: Sequence[str] = (), **facts: Any) -> Job:
        flags = [part for each in sets for part in ("--set", each)]
        command = ["train", str(recipe_file), "--run", str(run), *flags]
        return {"run": str(run), "err": f"{run}.err", "command": command, **facts}

    return made


class Driver:
    """The driver's process: give it jobs, take their exit codes."""

    def __init__(self) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, __file__], text=True, env=ENVIRONMENT, **pipes)

    def give(self, job: Job) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()

    def take(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def __call__(self, *jobs: Job) -> list[int]:
        codes = []
        for job in jobs:
            self.give(job)
            codes.append(self.take())
        return codes


@pytest.fixture(scope="module")
def drive() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    with driver.process as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def said(run: Path) -> str:
    return Path(f"{run}.err").read_text("utf-8")


@contextlib.contextmanager
def started(job: Job) -> Iterator[subprocess.Popen[str]]:
    """A training in a process of its own, as a user starts it."""
    command = [sys.executable, "-m", "saccade", *job["command"]]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=ENVIRONMENT, **streams) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(reached: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 60
    while not reached() and process.poll() is None:
        assert time.monotonic() < end, "nothing happened for a minute"
        time.sleep(0.001)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


Same = Callable[[Path, Path], bool]


@pytest.fixture(scope="module")
def same(outcome: Outcome) -> Same:
    """The same bits in all that an undisturbed run has, and nothing taken for damaged. A kill after the last save
    may leave an old checkpoint more."""

    def compared(run: Path, reference: Path) -> bool:
        wanted, found = outcome(reference), outcome(run)
        if list(run.glob("checkpoints/damaged-*")):
            return False
        older = [name for name in found if name not in wanted and name.startswith("checkpoints/step-")]
        return {name: facts for name, facts in found.items() if name not in older} == wanted

    return compared


@pytest.fixture(scope="module")
def reference(folder: Path, job: Callable[..., Job]) -> Path:
    """The run that nobody disturbs, trained as a user would."""
    run = folder / "reference"
    command = [sys.executable, "-m", "saccade", *job(run)["command"]]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return run


# ── the tests ─────────────────────────────────────────────────────────────────────────────────────


def test_the_reference_has_everything_that_resuming_must_bring_back(reference: Path):
    records = [json.loads(line) for line in (reference / "metrics.jsonl").read_text("utf-8").splitlines()]
    logged = [record["step"] for record in records if "loss" in record]
    validated = [record["step"] for record in records if "validation" in record]
    assert logged == [4, 8, 12, 16, 20, 24]
    assert validated == [6, 12, 18, 24]
    assert records[-2]["epoch"] >= 2  # more than one order of the rows
    kept = sorted(path.name for path in (reference / "checkpoints").iterdir())
    assert kept == ["average", "step-0000012", "step-0000018", "step-0000024"]  # the first one was pruned


def test_updates_of_the_reference_gather_several_batches(recipe_file: Path):
    from saccade.data.batches import SamplerState, updates
    from saccade.recipe import read_recipe, sources_of, task_of
    from saccade.runs.folder import learn_codecs, rows_of

    recipe = read_recipe(str(recipe_file)).config
    rows, _ = rows_of(sources_of(recipe), "train", False)
    corpus = task_of(recipe).encode(rows, learn_codecs(recipe, rows), 256).corpus
    plan = updates(corpus, recipe.train.batch_tokens, recipe.train.update_tokens, recipe.seed, SamplerState())
    counts = [len(next(plan)[0]) for _ in range(recipe.train.updates)]
    assert sum(count > 1 for count in counts) > 12


def test_a_forked_training_is_the_same_as_a_users(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, outcome: Outcome
):
    run = folder / "forked"
    assert drive(job(run)) == [0]
    assert outcome(run) == outcome(reference)


# All that a save can meet, in few updates: a second checkpoint, a third that prunes the first, an average.
SHORT = ["train.updates=6", "train.validate_every=2", "train.log_every=3", "train.keep=1", "train.average=2"]


def test_from_every_state_that_the_disk_goes_through_training_ends_with_the_same_bits(
    folder: Path, job: Callable[..., Job], drive: Driver, same: Same
):
    copies = folder / "copies"
    copies.mkdir()
    assert drive(job(folder / "still", SHORT), job(folder / "replicated", SHORT, copies=str(copies))) == [0, 0]
    states = sorted(copies.iterdir())
    labels = {state.name.partition("-")[2] for state in states}
    assert {"save_file", "save_file-torn", "rename", "replace", "unlink", "mkdir", "append-torn"} <= labels
    assert len(states) > 60
    codes = drive(*[job(state, SHORT) for state in states])
    assert {state.name: code for state, code in zip(states, codes, strict=True) if code} == {}
    assert [state.name for state in states if not same(state, folder / "still")] == []


KILLS = {
    "in the first update": ["update", 1],
    "in an update between log lines": ["update", 7],
    "in the last update": ["update", 24],
    "while logging": ["log", 2],
    "while decoding the development text": ["decode", 3],
    "while costing the development text": ["cost", 2],
    "after a validation, before its line is written": ["append", 3],
    "after a validation, before its checkpoint": ["validate", 2],
    "after a checkpoint, before its marks": ["write_checkpoint", 2],
    "between marks and pruning": ["mark", 4],
    "between the weights and the optimizer": ["save_file", 5],
    "before the average is written": ["average", 1],
    "after the average is renamed": ["write_checkpoint", 5],
}


@pytest.fixture(scope="module")
def killed(folder: Path, job: Callable[..., Job], drive: Driver) -> dict[str, tuple[Path, list[int]]]:
    runs = {name: folder / f"killed-{number}" for number, name in enumerate(KILLS)}
    jobs = [each for name, run in runs.items() for each in (job(run, at=KILLS[name]), job(run))]
    codes = drive(*jobs)
    return {name: (run, codes[2 * number : 2 * number + 2]) for number, (name, run) in enumerate(runs.items())}


@pytest.mark.parametrize("moment", KILLS)
def test_a_run_killed(moment: str, killed: dict[str, tuple[Path, list[int]]], reference: Path, same: Same):
    run, codes = killed[moment]
    assert codes == [-signal.SIGKILL, 0], said(run)
    assert same(run, reference)


def test_what_a_kill_kept_from_being_pruned_is_pruned_by_the_next_start(
    killed: dict[str, tuple[Path, list[int]]], reference: Path, outcome: Outcome
):
    run, _ = killed["between marks and pruning"]
    assert outcome(run).keys() == outcome(reference).keys()


def test_a_run_killed_after_calls_that_change_the_disk(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, same: Same
):
    """The copies above cover all of them; this is the real kill at some, each time others."""
    first = random.randrange(1, 12)
    runs = {k: folder / f"call-{k}" for k in range(first, 130, 12)}
    codes = drive(*[each for k, run in runs.items() for each in (job(run, at=["any", k]), job(run))])
    assert codes[0::2].count(-signal.SIGKILL) >= 8, codes
    assert set(codes[1::2]) == {0}, codes
    assert [k for k, run in runs.items() if not same(run, reference)] == []


def test_a_run_killed_again_and_again_still_gets_to_its_end(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, outcome: Outcome
):
    run = folder / "again"
    codes = drive(*[job(run, at=["update", 8])] * 4)  # of which each saves six
    assert codes == [-signal.SIGKILL] * 3 + [0]
    assert outcome(run) == outcome(reference)


def test_at_most_one_checkpoint_interval_is_lost(folder: Path, job: Callable[..., Job], drive: Driver):
    run = folder / "lost"
    assert drive(job(run, at=["update", 17]), job(run)) == [-signal.SIGKILL, 0]
    assert "going on from step 12" in said(run)


def test_a_users_run_killed_at_random_moments_ends_with_the_same_bits(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, same: Same
):
    seed = random.randrange(10**6)
    draw, run = random.Random(seed), folder / "random"
    whole, metrics = size(reference / "metrics.jsonl"), run / "metrics.jsonl"
    for _ in range(3):
        with started(job(run)) as process:
            begin = draw.randrange(min(size(metrics), whole - 1), whole)
            wait_for(lambda begin=begin: size(metrics) >= begin and (run / "lock").exists(), process)
            time.sleep(draw.random() * 0.05)
            process.kill()
    assert drive(job(run)) == [0], seed
    assert same(run, reference), seed


def whole_checkpoints(run: Path) -> list[int]:
    from saccade.errors import RunError
    from saccade.runs.checkpoints import Checkpoints
    from saccade.runs.files import verify

    found = Checkpoints(run / "checkpoints")
    whole = []
    for step in found.steps():
        with contextlib.suppress(RunError):
            verify(found.at(step))
            whole.append(step)
    return whole


@pytest.mark.parametrize(
    "interrupt",
    [
        {},
        {"at": ["update", 8], "signal": signal.SIGINT},
        {"at": ["update", 12], "signal": signal.SIGINT},
    ],
    ids=["undisturbed", "interrupted", "interrupted at a validation"],
)
def test_there_is_never_a_moment_without_the_newest_checkpoint(
    interrupt: dict[str, Any], tmp_path: Path, job: Callable[..., Job], drive: Driver
):
    """Even if only one is kept."""
    copies = tmp_path / "copies"
    copies.mkdir()
    copied = job(tmp_path / "run", ["train.keep=1", "train.average=0"], copies=str(copies), **interrupt)
    assert drive(copied) == [130 if interrupt else 0]
    newest = [max(whole_checkpoints(path), default=0) for path in sorted(copies.iterdir())]
    assert max(newest) >= 8
    assert newest == sorted(newest)


def test_training_a_finished_run_again_changes_nothing(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, outcome: Outcome
):
    run = folder / "finished"
    shutil.copytree(reference, run)
    assert drive(job(run)) == [0]
    assert "going on from step 24" in said(run)
    assert outcome(run) == outcome(reference)


@pytest.mark.parametrize("what", ["random", "optimizer", "sums", "position", "metrics"])
def test_these_comparisons_notice_a_resume_that_forgets(
    what: str, folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, outcome: Outcome
):
    run = folder / f"forgets-{what}"
    assert drive(job(run, at=["update", 9]), job(run, forget=what)) == [-signal.SIGKILL, 0], said(run)
    assert outcome(run) != outcome(reference)


# ── asked to stop ─────────────────────────────────────────────────────────────────────────────────

STOPS = [
    (signal.SIGINT, "update", 3),
    (signal.SIGINT, "update", 6),  # at a validation
    (signal.SIGTERM, "update", 8),  # where the log has just been written
    (signal.SIGTERM, "update", 21),
    (signal.SIGINT, "update", 24),  # the last
    (signal.SIGTERM, "decode", 3),  # while validating, which is finished first
    (signal.SIGINT, "save_file", 4),  # while saving, likewise
]
AFTER = {"decode": 6, "save_file": 12}  # the step that is finished and saved


@pytest.fixture(scope="module")
def stopped(
    folder: Path, job: Callable[..., Job], drive: Driver
) -> dict[tuple[int, str, int], tuple[Path, list[int], str]]:
    """Interrupted, then continued by the very command that was printed."""
    runs = {stop: folder / f"stop {number}" for number, stop in enumerate(STOPS)}
    firsts = drive(*[job(run, at=[label, count], signal=number) for (number, label, count), run in runs.items()])
    told = {stop: said(run) for stop, run in runs.items()}
    commands = {stop: shlex.split(text.rpartition("Continue with: ")[2])[1:] for stop, text in told.items()}
    seconds = drive(*[{**job(run), "command": commands[stop]} for stop, run in runs.items()])
    return {
        stop: (run, [first, second], told[stop])
        for (stop, run), first, second in zip(runs.items(), firsts, seconds, strict=True)
    }


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: f"{stop[0].name} in {stop[1]} {stop[2]}")
def test_an_interrupted_run_says_how_to_go_on_and_then_ends_with_the_same_bits(
    stop: Any, stopped: Any, reference: Path, outcome: Outcome
):
    run, codes, told = stopped[stop]
    number, label, count = stop
    assert codes == [128 + number, 0], said(run)
    step = AFTER.get(label, count)
    assert f"Saved step {step}. Continue with: saccade train " in told
    assert "Traceback" not in told
    assert f"going on from step {step}\n" in said(run)
    assert outcome(run) == outcome(reference)  # the average too: the interruption's checkpoint has no part in it


def test_these_comparisons_notice_an_average_over_the_interruptions_checkpoint(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, outcome: Outcome
):
    run = folder / "irregular"
    interrupted = job(run, at=["update", 21], signal=signal.SIGTERM, forget="regular")
    assert drive(interrupted, job(run)) == [143, 0]
    assert outcome(run) != outcome(reference)


def test_a_stop_while_the_average_is_made_is_too_late_to_matter(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, outcome: Outcome
):
    run = folder / "late"
    assert drive(job(run, at=["average", 1], signal=signal.SIGTERM)) == [0]
    assert outcome(run) == outcome(reference)


def test_a_users_sigterm_saves_and_exits_143(folder: Path, job: Callable[..., Job]):
    run = folder / "term"
    long = job(run, ["train.updates=1000000"])
    with started(long) as process:
        wait_for(lambda: size(run / "metrics.jsonl") > 0, process)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, ""), err
    last = err.rstrip().splitlines()[-1]
    assert last.startswith("Saved step ")
    assert shlex.split(last.partition("Continue with: ")[2])[1:] == ["-m", "saccade", *long["command"]]
    assert "Traceback" not in err
    latest = (run / "latest").read_text("utf-8").strip()
    assert (run / "checkpoints" / latest / "manifest.json").is_file()


def test_a_second_ctrl_c_ends_at_once_and_the_run_can_go_on(
    folder: Path, job: Callable[..., Job], drive: Driver, reference: Path, outcome: Outcome
):
    run, marker = folder / "twice", folder / "twice.began"
    drive.give(job(run, linger=str(marker)))
    wait_for(marker.exists, drive.process)
    trainer = int((run / "lock").read_text("utf-8"))
    os.kill(trainer, signal.SIGINT)
    time.sleep(0.3)
    os.kill(trainer, 0)  # it is still there, and would finish its update
    began = time.monotonic()
    os.kill(trainer, signal.SIGINT)
    assert drive.take() == 130
    assert time.monotonic() - began < 5
    assert "Traceback" not in said(run)
    assert drive(job(run)) == [0]
    assert outcome(run) == outcome(reference)


if __name__ == "__main__":
    _serve()
