"""Trainings that are killed, interrupted or copied at a chosen moment.

Run as a script, this module is the driver process: it imports torch once, then forks a child for each job, so that
hundreds of trainings take seconds. A job says where its child is killed, or where the run folder is copied: such a copy
contains the files that a kill at that moment leaves.
"""

import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Job = dict[str, Any]
SameContents = Callable[[Path, Path], bool]

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

# Where the driver can stop: after every call that changes the disk, and after every stage of training.
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
    "write_checkpoint": ("saccade.training.checkpointing", "write_checkpoint"),
    "mark": ("saccade.training.checkpointing", "mark"),
    "save": ("saccade.training.loop", "save"),
    "average": ("saccade.training.checkpointing", "average"),
}
DISK_CALLS = ("fsync", "rename", "replace", "chmod", "mkdir", "unlink", "rmdir", "write", "save_file", "rmtree")

# called with (label, arguments, number of calls of this label, number of calls that change the disk)
CallListener = Callable[[str, tuple[Any, ...], int, int], None]


# ── in the child ──────────────────────────────────────────────────────────────────────────────────


class CallWatcher:
    """Calls a listener after each watched call of this process."""

    def __init__(self, listener: CallListener):
        self.listener, self.counts, self.disk_calls = listener, dict.fromkeys(WATCHED, 0), 0
        self.is_listening = False  # the listener's own calls are not watched
        for label, (location, name) in WATCHED.items():
            module, _, inner = location.partition(":")
            owner = importlib.import_module(module)
            self._wrap(label, getattr(owner, inner) if inner else owner, name)

    def _wrap(self, label: str, owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if not self.is_listening:
                self.counts[label] += 1
                self.disk_calls += label in DISK_CALLS
                self.is_listening = True
                self.listener(label, args, self.counts[label], self.disk_calls)
                self.is_listening = False
            return result

        setattr(owner, name, watched)


def killing_listener(job: Job) -> CallListener:
    """Send a signal at the job's `at`: ["update", 9] is right after the ninth update, ["any", 30] after the thirtieth
    call that changes the disk."""
    wanted_label, wanted_count = job["at"]

    def listener(label: str, _: tuple[Any, ...], count: int, disk_calls: int) -> None:
        is_call = label == wanted_label and count == wanted_count
        is_disk_call = wanted_label == "any" and label in DISK_CALLS and disk_calls == wanted_count
        if is_call or is_disk_call:
            os.kill(os.getpid(), job.get("signal", signal.SIGKILL))

    return listener


def copying_listener(job: Job) -> CallListener:
    """Copy the run folder whenever it has changed; and once more with the last written file truncated."""
    run, copies = Path(job["run"]), Path(job["copies"])
    seen: set[str] = set()

    def copy(label: str, truncated: Path | None = None) -> None:
        target = copies / f"{len(seen):03d}-{label}"
        shutil.copytree(run, target)
        if truncated is not None:
            size = (run / truncated).stat().st_size
            # metrics.jsonl loses the end of its last line, any other file its second half
            os.truncate(target / truncated, size - 9 if label.startswith("append") else size // 2)

    def listener(label: str, args: tuple[Any, ...], count: int, disk_calls: int) -> None:
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
            copy(f"{label}-truncated", Path(written[label]).relative_to(run))

    return listener


def plant_resume_defect(state_part: str) -> None:
    """Make resuming forget one part of the state, to show that the comparisons notice it."""
    from saccade.data.batches import SamplerState
    from saccade.training import job, loop, state

    restore_tensors, read_state = job.TrainingJob.restore_tensors, state.TrainingState.read
    restore, save = loop.restore, loop.save

    def forgetful_restore_tensors(self: Any, tensors: dict[str, Any], checkpoint: Any) -> None:
        import torch

        before = torch.get_rng_state()
        kept = {"random": tensors["random"]} if state_part == "optimizer" else tensors
        restore_tensors(self, dict(kept), checkpoint)
        if state_part == "random":
            torch.set_rng_state(before)

    def forgetful_read(tree: Any, checkpoint: Any) -> Any:
        restored = read_state(tree, checkpoint)
        if state_part == "sums":
            restored.sums = {}
        if state_part == "position":
            restored.position = SamplerState(restored.position.epoch, 0)
        return restored

    def forgetful_restore(training: Any, run: Any, report: Any) -> Any:
        before = run.metrics.read_bytes() if run.metrics.exists() else b""
        restored = restore(training, run, report)
        if state_part == "metrics":
            run.metrics.write_bytes(before)
        return restored

    def forgetful_save(*args: Any, regular: bool) -> None:
        save(*args, regular=regular or state_part == "regular")

    job.TrainingJob.restore_tensors, state.TrainingState.read = forgetful_restore_tensors, forgetful_read
    loop.restore, loop.save = forgetful_restore, forgetful_save


def make_third_update_slow(began: Path, ended: Path) -> None:
    """Let the third update take a minute. Its beginning and its end create these files."""
    from saccade.training import loop

    update = loop.update

    def slow_update(job: Any, state: Any, batches: Any) -> None:
        update(job, state, batches)
        if state.step == 2:
            began.touch()
            time.sleep(60)
            ended.touch()

    loop.update = slow_update


def record_makes(path: Path) -> None:
    """Append a line with the rank to a file whenever an entry of the cache is made."""
    from saccade.encoding.cache import Cache

    entry = Cache.entry

    def recorded_entry(cache: Cache, key: str, make: Any) -> Any:
        def recorded_make(folder: Path) -> Any:
            with path.open("a") as file:
                file.write(f"rank {os.environ['RANK']}\n")
            return make(folder)

        return entry(cache, key, recorded_make)

    Cache.entry = recorded_entry


def run_child(job: Job) -> int:
    from saccade.cli import main

    rank = os.environ.get("RANK", "0")
    stderr = job["err"] if rank == "0" else f"{job['err']}.rank-{rank}"
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    if "forget" in job:
        plant_resume_defect(job["forget"])
    if "slow_update" in job:
        make_third_update_slow(*map(Path, job["slow_update"]))
    if "makes" in job:
        record_makes(Path(job["makes"]))
    if "copies" in job:
        CallWatcher(copying_listener(job))
    if "at" in job:
        CallWatcher(killing_listener(job))
    sys.argv = ["saccade", *job["command"]]
    return main(sys.argv[1:])


def start_child(job: Job, environment: dict[str, str]) -> int:
    """Fork a child that runs the job, and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        os.environ.update(environment)
        code = run_child(job)
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


@contextmanager
def rank_environments(job: Job) -> Iterator[list[dict[str, str]]]:
    """The environment variables of each rank, as torchrun sets them, and its store; nothing for a single process."""
    count, common = job.get("ranks", 1), job.get("environment", {})
    if count == 1:
        yield [common]
        return
    from torch.distributed import TCPStore

    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    common = common | {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store belongs to this process, not to rank 0
    }
    yield [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def serve_jobs() -> None:
    """Read one job per line from stdin, and print its exit code: that of the first rank that failed, or 0."""
    # everything that a training imports, once, before the fork
    for name in (
        "saccade.cli",
        "saccade.training.dry_run",
        "saccade.training.loop",
        "saccade.view.report",
        "torch._dynamo",
    ):
        importlib.import_module(name)
    for line in sys.stdin:
        job = json.loads(line)
        with rank_environments(job) as environments:
            pids = [start_child(job, environment) for environment in environments]
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(next((code for code in codes if code), 0), flush=True)


# ── in the tests ──────────────────────────────────────────────────────────────────────────────────


def training_job(recipe_file: Path, run: Path, flags: Sequence[str] = (), **options: Any) -> Job:
    """A job that trains `run` with `--set` flags. `options` say what happens to the child, how many `ranks` there are,
    and which `environment` variables are set."""
    words = [word for flag in flags for word in ("--set", flag)]
    command = ["train", str(recipe_file), "--run", str(run), *words]
    return {"run": str(run), "err": f"{run}.err", "command": command, **options}


class Driver:
    """The driver process. `driver(*jobs)` runs jobs one after the other and returns their exit codes."""

    def __init__(self) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, __file__], text=True, env=ENVIRONMENT, **pipes)

    def start(self, job: Job) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()

    def exit_code(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def __call__(self, *jobs: Job) -> list[int]:
        codes = []
        for job in jobs:
            self.start(job)
            codes.append(self.exit_code())
        return codes


def stderr_of(run: Path, rank: int = 0) -> str:
    """What the last child that trained `run` (as this rank) wrote to stderr."""
    path = Path(f"{run}.err.rank-{rank}" if rank else f"{run}.err")
    return path.read_text("utf-8") if path.exists() else ""


def wait_until(reached: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until a condition holds or the process has ended."""
    deadline = time.monotonic() + 60
    while not reached() and process.poll() is None:
        assert time.monotonic() < deadline, "nothing happened for a minute"
        time.sleep(0.001)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


if __name__ == "__main__":
    serve_jobs()
