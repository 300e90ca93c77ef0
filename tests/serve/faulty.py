"""The whole server with a model that does as the text says: `python faulty.py FOLDER '{"batch": 1}'`.

hold NAME     write until a file NAME appears in FOLDER, asking at each step whether to go on, as a search does
stall NAME    the same without ever asking; both make a file NAME.begun
long N        write a word of N letters
crash, memory, allocator    raise what a model may raise
anything else is translated into capitals
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from saccade.decode.engine import Cancelled, Output
from saccade.serve import server
from saccade.serve.service import Service
from saccade.serve.settings import Settings

FAILURES = {
    "crash": ValueError("a secret of the model"),
    "cross": MemoryError(),
    "allocator": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99999999999 bytes"),
}


class Obedient:
    """What the service needs of a model."""

    name, source, target = "obedient", "en", "de"
    longest = 1000
    examples = ("one",)

    def __init__(self, folder: Path):
        self.folder = folder

    def tokens(self, sentence: str) -> int:
        return len(sentence.split())

    def width(self, alternatives: int) -> int:
        return alternatives + 1

    def find(self, sentences: Sequence[str], alternatives: int, going: Callable[[], bool]) -> list[list[Output]]:
        return [[self.output(sentence, going)] for sentence in sentences]

    def output(self, sentence: str, going: Callable[[], bool]) -> Output:
        order, _, name = sentence.partition(" ")
        if order in FAILURES:
            raise FAILURES[order]
        if order in ("hold", "stall"):
            (self.folder / f"{name}.begun").touch()
        while order in ("hold", "stall") and not (self.folder / name).exists():
            if order == "hold" and not going():
                raise Cancelled
            time.sleep(0.005)
        text = "x" * int(name) if order == "long" else sentence.upper()
        return Output(text, (text,), (1,), -1.0, -1.0)

    def links(self, source: str, target: str) -> list[tuple[int, int]]:
        return []

    def attention(self, source: str, target: str) -> dict[str, Any]:
        return {}


if __name__ == "__main__":
    model: Any = Obedient(Path(sys.argv[1]))
    settings = Settings(port=0, **json.loads(sys.argv[2]))
    server.listen(Service([model], settings), server.bind_socket(settings))
