"""Models that need no training: they shout, and fail when told to."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from saccade.decode.engine import Cancelled, Output


class Shouting:
    """A model that answers in capitals. `fault` is called with each batch."""

    longest, examples = 100, ["hello"]

    def __init__(self, name: str = "loud", source: str = "en", target: str = "de"):
        self.name, self.source, self.target = name, source, target
        self.batches: list[list[str]] = []
        self.fault: Callable[[Sequence[str], Callable[[], bool]], None] = lambda sentences, going: None

    def tokens(self, sentence: str) -> int:
        return len(sentence.split())

    def width(self, alternatives: int) -> int:
        return alternatives + 1

    def find(self, sentences: Sequence[str], alternatives: int, going: Callable[[], bool]) -> list[list[Output]]:
        self.batches.append(list(sentences))
        self.fault(sentences, going)
        return [
            [
                Output(sentence.upper() + "?" * rank, (), (1, 3), -1.0 - rank, -1.0 - rank)
                for rank in range(alternatives + 1)
            ]
            for sentence in sentences
        ]

    def links(self, source: str, target: str) -> list[tuple[int, int]]:
        return [(i, i) for i in range(len(source.split()))]

    def attention(self, source: str, target: str) -> dict[str, Any]:
        return {"scale": 1, "sentences": [source, target]}


class Gate:
    """A fault that holds a model until it is opened or nobody waits any more."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.abandoned = threading.Event()

    def __call__(self, sentences: Sequence[str], going: Callable[[], bool]) -> None:
        self.entered.set()
        while not self.opened.wait(0.005):
            if not going():
                self.abandoned.set()
                raise Cancelled
