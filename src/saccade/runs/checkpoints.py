"""Which checkpoints a run has, and which of them is meant. Nothing here needs torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.errors import RunError
from saccade.runs.files import discard, verify, write_bytes

FORMAT = 2
WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class Checkpoints:
    """The `checkpoints` folder of a run. `step-…` can be resumed from; `average` cannot."""

    folder: Path

    def at(self, step: int) -> Path:
        return self.folder / f"step-{step:07d}"

    def steps(self) -> list[int]:
        names = (path.name[5:] for path in self.folder.glob("step-*"))
        return sorted(int(name) for name in names if name.isdigit())

    def newest_valid(self) -> tuple[Path | None, list[str]]:
        """The newest undamaged checkpoint, and what was wrong with newer ones, which are kept aside."""
        troubles = []
        for step in reversed(self.steps()):
            trouble = self.set_aside_if_damaged(step)
            if not trouble:
                return self.at(step), troubles
            troubles.append(trouble)
        return None, troubles

    def set_aside_if_damaged(self, step: int) -> str:
        """What is wrong with a checkpoint, which is then kept aside; nothing if it is whole."""
        path = self.at(step)
        try:
            verify(path)
        except RunError as trouble:
            return f"{trouble}; skipped, kept as {self._aside(path).name}"
        return ""

    def _aside(self, path: Path) -> Path:
        count = 0
        while (aside := path.with_name(f"damaged-{path.name}" + (f"-{count}" if count else ""))).exists():
            count += 1
        return path.rename(aside)

    def mark(self, name: str, step: int) -> None:
        """`latest` and `best` are small files beside the folder that hold a checkpoint's name."""
        write_bytes(self.folder.parent / name, f"{self.at(step).name}\n".encode())

    def marked(self, name: str) -> Path | None:
        try:
            target = (self.folder.parent / name).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return self._existing(target)

    def find(self, name: str) -> Path:
        """`auto` (the average, else the best, else the latest), `average`, `best`, `latest` or `step-N`."""
        names = {"average": self._existing("average"), "best": self.marked("best"), "latest": self.marked("latest")}
        if name == "auto":
            newest = next((self.at(step) for step in reversed(self.steps())), None)
            path = names["average"] or names["best"] or names["latest"] or newest
        elif (number := name.removeprefix("step-")).isdecimal():
            path = self._existing(self.at(int(number)).name)
        else:
            path = names.get(name)
        if path is None:
            known = sorted([n for n, p in names.items() if p] + [self.at(s).name for s in self.steps()])
            raise RunError(f"{self.folder}: there is no checkpoint '{name}' (there are: {', '.join(known) or 'none'})")
        return path

    def _existing(self, name: str) -> Path | None:
        path = self.folder / name
        return path if path.name == name and path.is_dir() and not path.is_symlink() else None

    def prune(self, keep: int, best: int | None, regular: Sequence[int]) -> None:
        """Keep the last `keep` regular checkpoints, the best one and the newest."""
        steps = self.steps()
        wanted = {*[s for s in steps if s in set(regular)][-keep:], best, steps[-1] if steps else None}
        for step in steps:
            if step not in wanted:
                discard(self.at(step))
