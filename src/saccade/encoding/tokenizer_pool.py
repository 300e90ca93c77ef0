"""Tokenizes columns of texts on all cores."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import numpy as np

from saccade.data.flat_rows import FlatRows
from saccade.data.tokenizers import Tokenizer
from saccade.encoding.child_process import ChildProcess
from saccade.encoding.tokenizer_process import encode_column

BLOCKS_AHEAD = 2  # for each process, so that none waits for the next block


class HasColumns(Protocol):
    """Rows whose texts are in columns, each joined by newlines."""

    @property
    def columns(self) -> list[bytes]: ...


Block = TypeVar("Block", bound=HasColumns)


class _TokenizerProcess:
    def __init__(self, kind: str, tokenizers: Sequence[Tokenizer]):
        self._child = ChildProcess("saccade.encoding.tokenizer_process", "encodes the data")
        self._child.send([kind.encode(), *(tokenizer.dump() for tokenizer in tokenizers)])

    def encode(self, columns: Sequence[bytes]) -> list[FlatRows]:
        self._child.send(columns)
        arrays = self._child.receive()
        ids, lengths = ([np.frombuffer(array, np.int32) for array in arrays[i::2]] for i in (0, 1))
        return [FlatRows.split(*column) for column in zip(ids, lengths, strict=True)]

    def close(self) -> None:
        self._child.close()


class TokenizerPool(Generic[Block]):
    """Encodes blocks of rows in the order in which they come, with one tokenizer for each column. The processes start
    with the second block: for little data they would cost more than they save."""

    def __init__(self, kind: str, tokenizers: Sequence[Tokenizer], processes: int):
        self.kind, self.tokenizers, self.count = kind, tokenizers, processes
        self._processes: list[_TokenizerProcess] = []
        self._idle: SimpleQueue[_TokenizerProcess] = SimpleQueue()

    def __enter__(self) -> "TokenizerPool[Block]":
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        for process in self._processes:
            process.close()

    def encoded(self, blocks: Iterable[Block]) -> Iterator[tuple[Block, list[FlatRows]]]:
        """Each block with the ids of its columns."""
        iterator = iter(blocks)
        first = next(iterator, None)
        if first is not None:
            yield first, self._encode_here(first.columns)
        if self.count > 1:
            yield from self._encode_ahead(iterator)
        else:
            yield from ((block, self._encode_here(block.columns)) for block in iterator)

    def _encode_here(self, columns: Sequence[bytes]) -> list[FlatRows]:
        return [encode_column(tokenizer, column) for tokenizer, column in zip(self.tokenizers, columns, strict=True)]

    def _encode_ahead(self, blocks: Iterator[Block]) -> Iterator[tuple[Block, list[FlatRows]]]:
        """Each thread waits for one process at a time; the tokenizing is done there."""
        waiting: deque[tuple[Block, Future[list[FlatRows]]]] = deque()
        with ThreadPoolExecutor(self.count) as threads:
            for block in blocks:
                if len(self._processes) < self.count:
                    self._processes.append(_TokenizerProcess(self.kind, self.tokenizers))
                    self._idle.put(self._processes[-1])
                waiting.append((block, threads.submit(self._encode_there, block.columns)))
                if len(waiting) > BLOCKS_AHEAD * self.count:
                    earliest, ids = waiting.popleft()
                    yield earliest, ids.result()
            while waiting:
                earliest, ids = waiting.popleft()
                yield earliest, ids.result()

    def _encode_there(self, columns: Sequence[bytes]) -> list[FlatRows]:
        process = self._idle.get()
        try:
            return process.encode(columns)
        finally:
            self._idle.put(process)
