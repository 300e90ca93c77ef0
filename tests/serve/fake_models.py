"""Models for service tests that need no training: the translation is the source in upper case."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from saccade.decode.engine import Cancelled, Output


class UppercaseModel:
    """Translates into upper case and records its calls. `fault` is called with each batch, and may raise."""

    max_tokens, examples = 100, ["hello"]

    def __init__(self, name: str = "upper", source: str = "en", target: str = "de"):
        self.name, self.source, self.target = name, source, target
        self.batches: list[list[str]] = []
        self.counted: list[str] = []  # the arguments of count_tokens
        self.fault: Callable[[Sequence[str], Callable[[], bool]], None] = lambda sentences, should_continue: None

    def count_tokens(self, sentence: str) -> int:
        self.counted.append(sentence)
        return len(sentence.split())

    def beam_width(self, alternatives: int) -> int:
        return alternatives + 1

    def generate(
        self, sentences: Sequence[str], alternatives: int, should_continue: Callable[[], bool]
    ) -> list[list[Output]]:
        self.batches.append(list(sentences))
        self.fault(sentences, should_continue)
        return [
            [
                Output(sentence.upper() + "?" * rank, (), (1, 3), -1.0 - rank, -1.0 - rank)
                for rank in range(alternatives + 1)
            ]
            for sentence in sentences
        ]

    def alignment(self, source: str, target: str) -> list[tuple[int, int]]:
        return [(i, i) for i in range(len(source.split()))]

    def attention(self, source: str, target: str) -> dict[str, Any]:
        return {"scale": 1, "sentences": [source, target]}


class BlockingFault:
    """A fault that blocks the model until the event `released` is set or the search is cancelled."""

    def __init__(self) -> None:
        self.entered, self.released = threading.Event(), threading.Event()
        self.cancelled = threading.Event()

    def __call__(self, sentences: Sequence[str], should_continue: Callable[[], bool]) -> None:
        self.entered.set()
        while not self.released.wait(0.005):
            if not should_continue():
                self.cancelled.set()
                raise Cancelled
