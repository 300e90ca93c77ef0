"""The real server with a model controlled by the text it translates:

hold NAME     block until a file NAME appears in FOLDER, calling `should_continue` meanwhile, as a search does
stall NAME    the same without calling `should_continue`; both create a file NAME.begun
long N        return a word of N letters
crash, memory, allocator    raise an exception
anything else is translated into upper case
"""

import json
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
    "memory": MemoryError(),
    "allocator": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99999999999 bytes"),
}


class ScriptedModel:
    """The methods of `ServedModel`."""

    name, source, target = "scripted", "en", "de"
    max_tokens = 1000
    examples = ("one",)

    def __init__(self, folder: Path):
        self.folder = folder

    def count_tokens(self, sentence: str) -> int:
        return len(sentence.split())

    def beam_width(self, alternatives: int) -> int:
        return alternatives + 1

    def generate(
        self, sentences: Sequence[str], alternatives: int, should_continue: Callable[[], bool]
    ) -> list[list[Output]]:
        return [[self.output(sentence, should_continue)] for sentence in sentences]

    def output(self, sentence: str, should_continue: Callable[[], bool]) -> Output:
        command, _, name = sentence.partition(" ")
        if command in FAILURES:
            raise FAILURES[command]
        if command in ("hold", "stall"):
            (self.folder / f"{name}.begun").touch()
        while command in ("hold", "stall") and not (self.folder / name).exists():
            if command == "hold" and not should_continue():
                raise Cancelled
            time.sleep(0.005)
        text = "x" * int(name) if command == "long" else sentence.upper()
        return Output(text, (text,), (1,), -1.0, -1.0)

    def alignment(self, source: str, target: str) -> list[tuple[int, int]]:
        return []

    def attention(self, source: str, target: str) -> dict[str, Any]:
        return {}


def serve_scripted(folder: str, options: str) -> None:
    """`options` are those of `Settings`, as JSON."""
    model: Any = ScriptedModel(Path(folder))
    settings = Settings(port=0, **json.loads(options))
    server.listen(Service([model], settings), server.bind_socket(settings))
