"""The process that learns a tokenizer. It imports no torch."""

import json
import os
import signal
import sys
from collections.abc import Iterator

from saccade.config import Slot, build
from saccade.data.tokenizers import TOKENIZERS
from saccade.encoding.messages import receive, send
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
        answer = [b"", kind.learn(_texts()).dump()]
    except DataError as error:
        answer = [str(error).encode(), b""]
    send(sys.stdout.buffer, answer)


def _texts() -> Iterator[str]:
    while True:
        send(sys.stdout.buffer, [])
        columns = receive(sys.stdin.buffer)
        if columns is None:
            os._exit(1)  # the parent was killed
        if not columns:
            return
        for column in columns:
            yield from column.decode().split("\n")


if __name__ == "__main__":
    main()
