"""The checkpoints of a run: which ones exist, are damaged, `latest` or `best`, and when they are deleted. Does not
import torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.errors import RunError, remedy
from saccade.runs.files import discard, verify, write_bytes

FORMAT = 2
WEIGHTS = "weights.safetensors"
CHECKPOINT_OPTION = "--checkpoint NAME, in Python checkpoint=NAME"


@dataclass(frozen=True)
class Checkpoints:
    """The `checkpoints` folder of a run. Training can resume from `step-…`, but not from `average`."""

    folder: Path

    def at(self, step: int) -> Path:
        """The folder of the checkpoint of a step."""
        return self.folder / f"step-{step:07d}"

    def steps(self) -> list[int]:
        """The steps of all checkpoints, in order."""
        names = (path.name[5:] for path in self.folder.glob("step-*"))
        return sorted(int(name) for name in names if name.isdigit())

    def newest_valid(self) -> tuple[Path | None, list[str]]:
        """The newest undamaged checkpoint, and a message for each newer one, which is renamed to `damaged-step-…`."""
        messages = []
        for step in reversed(self.steps()):
            message = self.set_aside_if_damaged(step)
            if not message:
                return self.at(step), messages
            messages.append(message)
        return None, messages

    def verify(self, path: Path) -> dict[str, Any]:
        """Verify a checkpoint and return its manifest. An error names the other checkpoints."""
        with remedy(self.advice_if_damaged(path)):
            return verify(path)

    def advice_if_damaged(self, path: Path) -> str:
        """What to do if a checkpoint is damaged."""
        others = [p.name for p in (self.folder / "average", *map(self.at, self.steps())) if p != path and p.is_dir()]
        if not others:
            return "the run has no other checkpoint: restore the file from a copy, or train again"
        return f"restore the file from a copy, or use another checkpoint ({CHECKPOINT_OPTION}): {', '.join(others)}"

    def set_aside_if_damaged(self, step: int) -> str:
        """Verify a checkpoint. If it is damaged, rename it to `damaged-step-…` and return a message; otherwise ""."""
        path = self.at(step)
        try:
            verify(path)
        except RunError as error:
            return f"{error}; skipped, kept as {self._set_aside(path).name}"
        return ""

    def _set_aside(self, path: Path) -> Path:
        count = 0
        while (target := path.with_name(f"damaged-{path.name}" + (f"-{count}" if count else ""))).exists():
            count += 1
        return path.rename(target)

    def mark(self, name: str, step: int) -> None:
        """Mark a checkpoint as `latest` or `best`: write its name to the file `latest` or `best` of the run folder."""
        write_bytes(self.folder.parent / name, f"{self.at(step).name}\n".encode())

    def marked(self, name: str) -> Path | None:
        """The checkpoint that `latest` or `best` names; None if there is no such file or checkpoint."""
        try:
            target = (self.folder.parent / name).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return self._existing(target)

    def find(self, name: str, option: str = CHECKPOINT_OPTION) -> Path:
        """The checkpoint called `average`, `best`, `latest`, `step-N` or `auto` (the average if there is one, else the
        best, else the latest). `option` is what an error tells the user to correct."""
        names = {"average": self._existing("average"), "best": self.marked("best"), "latest": self.marked("latest")}
        if name == "auto":
            newest = next((self.at(step) for step in reversed(self.steps())), None)
            path = names["average"] or names["best"] or names["latest"] or newest
        elif (number := name.removeprefix("step-")).isdecimal():
            path = self._existing(self.at(int(number)).name)
        else:
            path = names.get(name)
        if path is None:
            existing = sorted([n for n, p in names.items() if p] + [self.at(s).name for s in self.steps()])
            if not existing:
                raise RunError(
                    f"{self.folder.parent}: has no checkpoint yet; wait for the first validation of its training, or "
                    "train it with `saccade train`"
                )
            raise RunError(
                f"{self.folder}: there is no checkpoint '{name}' (available: {', '.join(existing)}); choose one of "
                f"these with {option}"
            )
        return path

    def _existing(self, name: str) -> Path | None:
        """The checkpoint folder of this name; None for anything else, such as a path that leads elsewhere."""
        path = self.folder / name
        return path if path.name == name and path.is_dir() and not path.is_symlink() else None

    def prune(self, keep: int, best: int | None, regular: Sequence[int]) -> None:
        """Delete all checkpoints but the last `keep` regular ones, the best one and the newest one."""
        steps = self.steps()
        kept = {*[s for s in steps if s in set(regular)][-keep:], best, steps[-1] if steps else None}
        for step in steps:
            if step not in kept:
                discard(self.at(step))
