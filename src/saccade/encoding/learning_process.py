"""The process that learns a tokenizer. It imports no torch."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from threading import Thread

from saccade.config import Slot, build
from saccade.data.tokenizers import TOKENIZERS
from saccade.encoding.messages import answer, receive
from saccade.errors import DataError


def main() -> None:
    """Read the table of the tokenizer in the config, and ask for columns of texts with empty messages until one comes
    back. The last message is a problem ("" if there is none) and the stored tokenizer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets Ctrl-C, too, and ends this process
    first = receive(sys.stdin.buffer)
    if first is None:
        return
    kind = build(Slot(TOKENIZERS).fill(json.loads(first[0])), "data.tokenizer")
    try:
        learned = [b"", kind.learn(_texts()).dump()]
    except DataError as error:
        learned = [str(error).encode(), b""]
    answer(learned)


def _texts() -> Iterator[str]:
    while True:
        answer([])
        columns = receive(sys.stdin.buffer)
        if columns is None:
            os._exit(1)  # the parent was killed
        if not columns:
            Thread(target=_end_with_parent, daemon=True).start()
            return
        for column in columns:
            yield from column.decode().split("\n")


def _end_with_parent() -> None:
    """End this process when the parent ends, which sends nothing after the last text: learning may take minutes."""
    os.read(sys.stdin.fileno(), 1)  # not sys.stdin.buffer, whose lock an exit of this process would need
    os._exit(1)


if __name__ == "__main__":
    main()
