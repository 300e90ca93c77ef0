"""The process that tokenizes columns of texts. It imports no torch."""

import signal
import sys

import numpy as np

from saccade.data.flat_rows import FlatRows
from saccade.data.tokenizers import TOKENIZERS, Tokenizer, set_encoding_threads
from saccade.encoding.messages import answer, receive


def encode_column(tokenizer: Tokenizer, column: bytes) -> FlatRows:
    """The ids of texts that are joined by newlines."""
    return FlatRows.of(tokenizer.encode(column.decode().split("\n")))


def main() -> None:
    """Read the kind of tokenizer and a stored tokenizer for each column, then encode messages of columns until the
    input ends. The answer has two arrays for each column: ids and lengths, both int32."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets Ctrl-C, too, and closes the input
    first = receive(sys.stdin.buffer)
    if first is None:
        return
    set_encoding_threads(1)  # there is a process for each core
    kind = TOKENIZERS[first[0].decode()]()
    tokenizers = [kind.read(stored) for stored in first[1:]]
    while (columns := receive(sys.stdin.buffer)) is not None:
        encoded = [encode_column(tokenizer, column) for tokenizer, column in zip(tokenizers, columns, strict=True)]
        arrays = (array for rows in encoded for array in (rows.values, rows.lengths))
        answer([array.astype(np.int32, copy=False).tobytes() for array in arrays])


if __name__ == "__main__":
    main()
