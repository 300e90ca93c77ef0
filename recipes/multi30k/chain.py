"""All of multi30k-en-de, from people's text to its score: two models learn to speak, side by side with a core each;
they speak; and one model learns from what they say, with all cores.

    python recipes/multi30k/chain.py DIR RUNS [--cased] [--seed 1] [--set KEY=VALUE ...]

DIR holds Multi30k. RUNS gets the three runs, their logs and the text they make. `--cased` takes the text as people
wrote it instead of the lower-cased and tokenised; `--set` is for all three trainings. The same command goes on after a
stop.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

RECIPES = Path(__file__).resolve().parent.parent
SPEAKERS = {"forward": ("en", "de"), "backward": ("de", "en")}

Words = list[str]  # of a command, after `python`


class Chain:
    """Its parts. Each is done by processes of its own, which write a log each."""

    def __init__(self, folder: Path, runs: Path, form: str, always: list[str]):
        self._folder, self._runs, self._form = folder, runs, form
        self._always = [f"data.folder={folder}", *always]
        self._began = time.monotonic()

    def learn_to_speak(self) -> None:
        works = {name: self._train(f"multi30k/{name}.toml", name, self._files("train", name)) for name in SPEAKERS}
        self._do("two models learn to speak", works, OMP_NUM_THREADS="1")

    def speak(self) -> None:
        people = [str(self._folder / file) for file in self._files("train", "forward")]
        speakers = [word for name in SPEAKERS for word in (f"--{name}", str(self._runs / name))]
        if not (self._runs / "text" / "train.tgt").exists():
            words = [str(RECIPES / "diversify.py"), *people, str(self._runs / "text"), *speakers]
            self._do("they speak", {"text": words})

    def learn(self) -> None:
        heard = [str(self._runs / "text" / f"train.{side}") for side in ("src", "tgt")]
        works = {"multi30k-en-de": self._train("multi30k-en-de.toml", "forward", heard)}
        self._do("one model learns from what they say", works)

    def score(self) -> None:
        self.say("done")
        subprocess.run([sys.executable, "-m", "saccade", "evaluate", str(self._runs / "multi30k-en-de")], check=True)

    def say(self, what: str) -> None:
        print(f"{(time.monotonic() - self._began) / 60:5.1f} min: {what}", flush=True)

    def _files(self, split: str, direction: str) -> list[str]:
        return [f"{split}{self._form}.{language}.gz" for language in SPEAKERS[direction]]

    def _train(self, recipe: str, direction: str, heard: list[str]) -> Words:
        dev, test = self._files("val", direction), self._files("test_2016_flickr", direction)
        changes = [
            f"data.{split}.{side}={file}"
            for split, files in (("train", heard), ("dev", dev), ("test", test))
            for side, file in zip(("src", "tgt"), files, strict=True)
        ]
        flags = [word for change in (*changes, *self._always) for word in ("--set", change)]
        return ["-m", "saccade", "train", str(RECIPES / recipe), "--run", str(self._runs / Path(recipe).stem), *flags]

    def _do(self, what: str, works: dict[str, Words], **machine: str) -> None:
        """Side by side. If one fails, the others are stopped, and save what they have."""
        logs = {name: self._runs / f"{name}.log" for name in works}
        self.say(f"{what} ({', '.join(map(str, logs.values()))})")
        started: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name, words in works.items():
                with logs[name].open("ab") as log:
                    command = [sys.executable, *words]
                    started[name] = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **machine})
            while None in (codes := {each.poll() for each in started.values()}) and codes <= {None, 0}:
                time.sleep(0.2)
            failed = [str(logs[name]) for name, each in started.items() if each.poll()]
        finally:
            for each in started.values():
                each.terminate()  # nothing to one that has ended
                each.wait()
        if failed:
            sys.exit(f"failed, as {' and '.join(failed)} will tell; the same command goes on where it stopped")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--cased", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    given.runs.mkdir(parents=True, exist_ok=True)
    form = "" if given.cased else ".lc.norm.tok"
    chain = Chain(given.folder.resolve(), given.runs.resolve(), form, [f"seed={given.seed}", *given.set])
    for part in (chain.learn_to_speak, chain.speak, chain.learn, chain.score):
        part()


if __name__ == "__main__":
    main()
