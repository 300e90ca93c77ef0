"""Messages between a training and its child processes: lists of byte strings over pipes."""

import os
import struct
import sys
from collections.abc import Sequence
from typing import IO

_COUNT, _SIZE = struct.Struct("<I"), struct.Struct("<Q")


def send(stream: IO[bytes], parts: Sequence[bytes]) -> None:
    """Write a message."""
    stream.write(_COUNT.pack(len(parts)))
    for part in parts:
        stream.write(_SIZE.pack(len(part)))
        stream.write(part)
    stream.flush()


def answer(parts: Sequence[bytes]) -> None:
    """Write a message of a child process to its parent. If the parent was killed, end this process."""
    try:
        send(sys.stdout.buffer, parts)
    except BrokenPipeError:
        os._exit(1)  # a normal exit would try to write the rest


def receive(stream: IO[bytes]) -> list[bytes] | None:
    """Read the next message; None if the other process has ended."""
    header = stream.read(_COUNT.size)
    if len(header) < _COUNT.size:
        return None
    parts = []
    for _ in range(_COUNT.unpack(header)[0]):
        size = stream.read(_SIZE.size)
        part = stream.read(_SIZE.unpack(size)[0]) if len(size) == _SIZE.size else b""
        if len(size) < _SIZE.size or len(part) < _SIZE.unpack(size)[0]:
            return None
        parts.append(part)
    return parts
