"""A run as the service uses it. Threads may share one."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

from saccade.api import Run
from saccade.config import build, plain
from saccade.decode.engine import DecodeConfig, Output, in_order, search_settings
from saccade.models.assemble import cross_attentions
from saccade.recipe import kind_of
from saccade.view.history import read_history
from saccade.view.page import viewer_data

MAX_EXAMPLES = 3


class ServedModel:
    """A run with a name and a language pair."""

    def __init__(self, run: Run, name: str, source: str, target: str):
        self.name, self.source, self.target = name, source, target
        self._run = run
        self._engine = run.engine
        self._lock = ReadWriteLock()
        self.decode = cache(self._decode)

    @cached_property
    def longest(self) -> int:
        """The most tokens it can read at a time."""
        places = self._run.model.encoder.longest
        return min(self._run.recipe.data.longest, places - 1 if places else self._run.recipe.data.longest)

    @cached_property
    def examples(self) -> list[str]:
        """Sources its training showed at each validation."""
        last = read_history(self._run.folder).validations[-1:]
        return [str(sample.source) for validated in last for sample in validated.samples][:MAX_EXAMPLES]

    def tokens(self, sentence: str) -> int:
        return len(self._run.codecs.source.encode([sentence])[0])

    def _decode(self, alternatives: int) -> DecodeConfig:
        """The recipe's search, widened where so many outputs cannot come out of it."""
        base = self._run.recipe.decode
        if not alternatives:
            return base
        beam = plain(base.search) if kind_of(base.search) == "beam" else {"kind": "beam", "size": 1}
        wide = {"size": max(beam["size"], alternatives + 1), "best": alternatives + 1}
        return search_settings(base, {"search": beam | wide})

    def width(self, alternatives: int) -> int:
        """How many hypotheses of a sentence are held at a time."""
        return build(self.decode(alternatives).search, "decode.search").width

    def generate(
        self, sentences: Sequence[str], alternatives: int, should_continue: Callable[[], bool]
    ) -> list[list[Output]]:
        """For each sentence its outputs, best first. `going` is asked between steps whether anyone still waits."""
        with self._lock.shared():
            return list(
                in_order(self._engine.generate(sentences, self.decode(alternatives), should_continue=should_continue))
            )

    def links(self, source: str, target: str) -> list[tuple[int, int]] | None:
        """Which word of the source belongs to which of the target; nothing if the model has no attention to say it."""
        if not cross_attentions(self._run.model):
            return None
        with self._lock.exclusive():
            return sorted(self._run.align([(source, target)])[0])

    def attention(self, source: str, target: str) -> dict[str, Any]:
        """What the viewer shows."""
        with self._lock.exclusive():
            return viewer_data([self._run.attention(source, target)])


class ReadWriteLock:
    """Searches run side by side; who listens to a model's parts must be alone with it."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._inside = self._waiting = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._change:
            self._change.wait_for(lambda: not self._waiting)  # else many searches would never let a listener in
            self._inside += 1
        try:
            yield
        finally:
            with self._change:
                self._inside -= 1
                self._change.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._change:
            self._waiting += 1
            try:
                self._change.wait_for(lambda: not self._inside)
                yield
            finally:
                self._waiting -= 1
                self._change.notify_all()
