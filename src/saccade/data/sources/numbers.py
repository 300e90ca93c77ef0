"""Numbers from files that nobody vouches for, arrays of an .npz file or words of text: checked before believed."""

import math
import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from saccade.errors import DataError

MAX_ARRAY_BYTES = 2 * 1024**3  # bytes
SEPARATOR = re.compile(r" *[,\t] *| +")  # nothing between two commas is a missing number, so they are not merged


def float32(numbers: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # what overflows is infinite afterwards, and `first_bad` says so
        return numbers.astype(np.float32, order="C")


def first_bad(numbers: np.ndarray, frames: np.ndarray) -> tuple[int, int, str] | None:
    """Give row and column of the first number that is none as a frame, and what is wrong with it."""
    bad = np.argwhere(~np.isfinite(frames))
    if not len(bad):
        return None
    row, column = map(int, bad[0])
    value = numbers[row, column]
    if np.isfinite(value):
        return row, column, f"is {value:g}, too large for 32 bits; scale the numbers down"
    return row, column, f"is {'NaN' if np.isnan(value) else 'infinite'}; put a number there, or take the series out"


class BadSeries(Exception):
    """Why one series cannot be used."""


@dataclass(frozen=True)
class Header:
    """What an array says of itself before it is read."""

    shape: tuple[int, ...]
    kind: np.dtype
    bytes: int


def open_archive(path: Path, file: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except OSError as error:
        raise DataError(f"{path.absolute()}: cannot be opened ({error.strerror or error})") from error
    except Exception as error:  # damage shows itself in many ways: BadZipFile, struct.error, UnicodeDecodeError …
        raise DataError(f"{file}: is no npz file, or damaged ({_said(error)}); fetch or write it again") from error


def members(archive: zipfile.ZipFile, file: str) -> dict[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        key = member.filename.removesuffix(".npy")
        if not key.isprintable() or key in found:
            how = "twice" if key in found else "under a name that cannot be printed"
            raise DataError(f"{file}: holds {key!r} {how}; write it again with np.savez")
        found[key] = member
    return found


def sane_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: str) -> Header:
    """Give the header of an array that there may be memory for."""
    header = read_header(archive, member)
    if header.bytes > MAX_ARRAY_BYTES:
        size = f"{header.bytes:,} bytes, more than {MAX_ARRAY_BYTES:,}"
        raise DataError(f"{place}: {member.filename} says that it holds {size}; save shorter series")
    return header


def read_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Header:
    try:
        with archive.open(member) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's about arrays that Python 2 wrote: they are fine
            # versions after the first are for structured arrays, whose headers may be of any length
            if npy.read_magic(stream) != (1, 0):
                raise ValueError("of another version of the format than 1.0")
            shape, _, kind = npy.read_array_header_1_0(stream)
            start = stream.tell()
    except Exception as error:  # the reader of headers fails in many ways: ValueError, TypeError, TokenError …
        raise BadSeries(f"{member.filename} is not an array, or damaged ({_said(error)}); write it again") from error
    if kind.hasobject:
        raise BadSeries(
            f"{member.filename} holds Python objects, which may hide a program; save numbers and strings only"
        )
    if any(size < 0 for size in shape) or not kind.itemsize:
        raise BadSeries(f"{member.filename} is of the impossible shape {shape} or kind {kind}; write it again")
    declared = kind.itemsize * math.prod(shape)
    if declared <= MAX_ARRAY_BYTES and start + declared != member.file_size:
        sizes = f"{member.file_size:,} bytes, not {start + declared:,}"
        raise BadSeries(f"{member.filename} is damaged: it has {sizes}; fetch the file again")
    return Header(shape, kind, declared)


def read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Read an array whose header was found good."""
    try:
        with archive.open(member) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return npy.read_array(stream, allow_pickle=False)
    except Exception as error:  # BadZipFile, zlib.error, EOFError, ValueError, MemoryError …
        raise BadSeries(f"{member.filename} is damaged ({_said(error)}); fetch the file again") from error


def _said(error: Exception) -> str:
    """Give the start of a message, which may quote the whole of a damaged header."""
    return repr(str(error)[:80])[1:-1] or type(error).__name__


def number_of(text: str, column: int) -> float:
    try:
        if "_" in text:  # Python's 1_000
            raise ValueError
        return float(text)
    except ValueError:
        raise ValueError(f"column {column} is {text[:40]!r}, which is not a number; is this line a heading?") from None
