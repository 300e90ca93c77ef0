"""A run as the service uses it. Several threads may use the same one."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

from saccade.api import Run
from saccade.config import build, kind_of, plain
from saccade.decode.engine import DecodeConfig, Output, changed_decode_config, in_order
from saccade.models.assemble import cross_attentions
from saccade.runs.history import read_history
from saccade.view.page import viewer_data

MAX_EXAMPLES = 3


class ServedModel:
    """A run with the name and the language pair under which it is served."""

    def __init__(self, run: Run, name: str, source: str, target: str):
        self.name, self.source, self.target = name, source, target
        self._run = run
        self._engine = run.engine
        self._lock = ReadWriteLock()
        self.decode_settings = cache(self._decode_settings)

    @cached_property
    def max_tokens(self) -> int:
        """The most source tokens of a sentence, without the end symbol."""
        encoder = self._run.model.encoder
        positions = encoder.longest if encoder else None
        longest = self._run.recipe.data.longest
        return min(longest, positions - 1 if positions else longest)

    @cached_property
    def examples(self) -> list[str]:
        """The source sentences that training showed at its last validation, for the page and for warm-up."""
        last = read_history(self._run.folder).validations[-1:]
        return [str(sample.source) for validation in last for sample in validation.samples][:MAX_EXAMPLES]

    def count_tokens(self, sentence: str) -> int:
        """The number of source tokens, without the end symbol."""
        return len(self._run.codecs.source.encode([sentence])[0])

    def _decode_settings(self, alternatives: int) -> DecodeConfig:
        """The recipe's decode settings, with a beam wide enough for `alternatives` + 1 outputs."""
        base = self._run.recipe.decode
        if not alternatives:
            return base
        beam = plain(base.search) if kind_of(base.search) == "beam" else {"kind": "beam", "size": 1}
        wide = {"size": max(beam["size"], alternatives + 1), "best": alternatives + 1}
        return changed_decode_config(base, {"search": beam | wide})

    def beam_width(self, alternatives: int) -> int:
        """The number of hypotheses that the search keeps per sentence."""
        return build(self.decode_settings(alternatives).search, "decode.search").width

    def generate(
        self, sentences: Sequence[str], alternatives: int, should_continue: Callable[[], bool]
    ) -> list[list[Output]]:
        """The outputs of each sentence, best first. `should_continue` is called between decoder steps; if it returns
        False, the search raises `Cancelled`."""
        with self._lock.shared():
            settings = self.decode_settings(alternatives)
            return list(in_order(self._engine.generate(sentences, settings, should_continue=should_continue)))

    def alignment(self, source: str, target: str) -> list[tuple[int, int]] | None:
        """The word alignment: pairs of source and target word indices. None if the model has no cross-attention."""
        if not cross_attentions(self._run.model):
            return None
        with self._lock.exclusive():
            return sorted(self._run.align([(source, target)])[0])

    def attention(self, source: str, target: str) -> dict[str, Any]:
        """The attention weights of a sentence pair, in the format of the attention viewer."""
        with self._lock.exclusive():
            return viewer_data([self._run.attention(source, target)])


class ReadWriteLock:
    """A lock that many threads may hold as shared, or one as exclusive. Searches share a model; capturing attention
    needs it exclusively, because the listeners would record the other threads' searches too."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._shared_holders = self._exclusive_waiters = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._change:
            # A waiting exclusive holder goes first: overlapping searches would otherwise never let it in.
            self._change.wait_for(lambda: not self._exclusive_waiters)
            self._shared_holders += 1
        try:
            yield
        finally:
            with self._change:
                self._shared_holders -= 1
                self._change.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._change:
            self._exclusive_waiters += 1  # includes the holder
            try:
                self._change.wait_for(lambda: not self._shared_holders)
                yield  # with the condition's own lock held, so nobody else can enter
            finally:
                self._exclusive_waiters -= 1
                self._change.notify_all()
