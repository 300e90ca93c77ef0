"""Train and score multi30k-en-de with data diversification (Nguyen et al. 2020), from the original text to test BLEU.

    python recipes/multi30k/pipeline.py DIR RUNS [--cased] [--seed 1] [--set KEY=VALUE ...]

DIR holds Multi30k. The steps:

1. train the teachers, forward.toml (en → de) and backward.toml (de → en), in parallel with one core each;
2. translate the training text with both teachers (recipes/diversify_data.py);
3. train the student, recipes/multi30k-en-de.toml, on the original plus the synthetic pairs, with all cores;
4. score the student on the test set.

RUNS receives the three run folders, one log per step, and the training text of the student in RUNS/diversified.
`--cased` uses the raw text instead of the lowercased and tokenized text. `--set` applies to all three trainings. After
an interruption, repeat the same command: it resumes the trainings and skips finished steps.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

RECIPES = Path(__file__).resolve().parent.parent
DIRECTIONS = {"forward": ("en", "de"), "backward": ("de", "en")}  # teacher: (source language, target language)
STUDENT = "multi30k-en-de"

Arguments = list[str]  # of a command, after `python`


class Pipeline:
    """The steps of the pipeline. Each step runs in subprocesses, and each subprocess writes its own log."""

    def __init__(self, data: Path, runs: Path, name_suffix: str, overrides: list[str]):
        """`name_suffix` comes after the split in the names of the data files: "" (raw text) or ".lc.norm.tok"."""
        self._data, self._runs, self._name_suffix = data, runs, name_suffix
        self._overrides = [f"data.folder={data}", *overrides]
        self._diversified = runs / "diversified"
        self._start = time.monotonic()

    def train_teachers(self) -> None:
        commands = {
            teacher: self._train_command(f"multi30k/{teacher}.toml", teacher, self._files("train", teacher))
            for teacher in DIRECTIONS
        }
        self._run_parallel("training the forward and the backward teacher", commands, OMP_NUM_THREADS="1")

    def generate_synthetic_pairs(self) -> None:
        if (self._diversified / "train.tgt").exists():
            return
        original = [str(self._data / file) for file in self._files("train", "forward")]
        teachers = [word for name in DIRECTIONS for word in (f"--{name}-teachers", str(self._runs / name))]
        command = [str(RECIPES / "diversify_data.py"), *original, str(self._diversified), *teachers]
        self._run_parallel("generating synthetic pairs", {"diversified": command})

    def train_student(self) -> None:
        files = [str(self._diversified / f"train.{side}") for side in ("src", "tgt")]
        command = self._train_command(f"{STUDENT}.toml", "forward", files)
        self._run_parallel("training the student on original and synthetic pairs", {STUDENT: command})

    def score_student(self) -> None:
        self._log("done; scoring the student")
        subprocess.run([sys.executable, "-m", "saccade", "evaluate", str(self._runs / STUDENT)], check=True)

    def _log(self, message: str) -> None:
        print(f"{(time.monotonic() - self._start) / 60:5.1f} min: {message}", flush=True)

    def _files(self, split: str, direction: str) -> list[str]:
        return [f"{split}{self._name_suffix}.{language}.gz" for language in DIRECTIONS[direction]]

    def _train_command(self, recipe: str, direction: str, train_files: list[str]) -> Arguments:
        dev, test = self._files("val", direction), self._files("test_2016_flickr", direction)
        data = [
            f"data.{split}.{side}={file}"
            for split, files in (("train", train_files), ("dev", dev), ("test", test))
            for side, file in zip(("src", "tgt"), files, strict=True)
        ]
        flags = [word for override in (*data, *self._overrides) for word in ("--set", override)]
        return ["-m", "saccade", "train", str(RECIPES / recipe), "--run", str(self._runs / Path(recipe).stem), *flags]

    def _run_parallel(self, step: str, commands: dict[str, Arguments], **environment: str) -> None:
        """Run the commands in parallel. If one fails, terminate the others, which save a checkpoint, and exit."""
        logs = {name: self._runs / f"{name}.log" for name in commands}
        self._log(f"{step} ({', '.join(map(str, logs.values()))})")
        processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name, arguments in commands.items():
                with logs[name].open("ab") as log:
                    command = [sys.executable, *arguments]
                    env = {**os.environ, **environment}
                    processes[name] = subprocess.Popen(command, stdout=log, stderr=log, env=env)
            while None in (codes := {process.poll() for process in processes.values()}) and codes <= {None, 0}:
                time.sleep(0.2)
            failed = [str(logs[name]) for name, process in processes.items() if process.poll()]
        finally:
            for process in processes.values():
                process.terminate()  # no effect on a process that has exited
                process.wait()
        if failed:
            sys.exit(f"{step} failed: see {' and '.join(failed)}. Repeat the same command to resume.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DIR", help="folder of Multi30k")
    parser.add_argument("runs", type=Path, metavar="RUNS", help="output folder")
    parser.add_argument("--cased", action="store_true", help="use the raw text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="config override, repeatable")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    name_suffix = "" if options.cased else ".lc.norm.tok"
    overrides = [f"seed={options.seed}", *options.set]
    pipeline = Pipeline(options.data.resolve(), options.runs.resolve(), name_suffix, overrides)
    pipeline.train_teachers()
    pipeline.generate_synthetic_pairs()
    pipeline.train_student()
    pipeline.score_student()


if __name__ == "__main__":
    main()
