"""Learning a tokenizer in a process of its own: what that allocates returns to the system when the process ends."""

import json
from collections.abc import Iterable, Iterator
from itertools import chain

from saccade.data.tokenizers import Tokenizer, TokenizerKind
from saccade.encoding.child_process import ChildProcess
from saccade.errors import DataError

TEXTS_PER_MESSAGE = 4096


class LearnedInProcess:
    """A kind of tokenizer that learns in another process. `choice` is its table in the config."""

    def __init__(self, kind: TokenizerKind, choice: object):
        self._kind, self._choice = kind, choice

    def learn(self, texts: Iterable[str]) -> Tokenizer:
        child = ChildProcess("saccade.encoding.learning_process", "learns the tokenizer")
        try:
            child.send([json.dumps(self._choice).encode()])
            for message in chain(([column] for column in _columns(texts)), [[]]):
                if answer := child.receive():
                    break  # not every kind reads the texts
                child.send(message)  # while the other process reads these texts, the next ones are collected here
            else:
                answer = child.receive()
        finally:
            child.kill()
        problem, stored = answer
        if problem:
            raise DataError(problem.decode())
        return self._kind.read(stored)

    def read(self, data: bytes) -> Tokenizer:
        return self._kind.read(data)


def _columns(texts: Iterable[str]) -> Iterator[bytes]:
    """Texts joined by newlines."""
    column: list[str] = []
    for text in texts:
        column.append(text)
        if len(column) == TEXTS_PER_MESSAGE:
            yield "\n".join(column).encode()
            column = []
    if column:
        yield "\n".join(column).encode()
