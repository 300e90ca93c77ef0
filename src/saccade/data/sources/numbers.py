"""Read numeric arrays of .npz files and numbers in text, from files that are not trusted: everything is validated."""

import math
import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from saccade.errors import DataError

MAX_ARRAY_BYTES = 2 * 1024**3  # a damaged or malicious header may declare any size
SEPARATOR = re.compile(r" *[,\t] *| +")  # two commas are not merged: there is a missing number between them


def float32(numbers: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # an overflow gives infinity, which `first_bad` reports
        return numbers.astype(np.float32, order="C")


def first_bad(numbers: np.ndarray, frames: np.ndarray) -> tuple[int, int, str] | None:
    """Row and column of the first value that is not finite as float32, and the problem; None if there is none."""
    bad = np.argwhere(~np.isfinite(frames))
    if not len(bad):
        return None
    row, column = map(int, bad[0])
    value = numbers[row, column]
    if np.isfinite(value):
        return row, column, f"is {value:g}, too large for float32; scale the values down"
    return row, column, f"is {'NaN' if np.isnan(value) else 'infinite'}; give a finite value, or remove the series"


class BadSeries(Exception):
    """One series cannot be used; the message is the reason."""


@dataclass(frozen=True)
class Header:
    """The header of an array in an .npz file: shape, data type and declared size in bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype
    bytes: int


def open_archive(path: Path, file: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except OSError as error:
        raise DataError(f"{path.absolute()}: cannot be opened ({error.strerror or error})") from error
    except (
        Exception
    ) as error:  # a damaged file can raise almost anything: BadZipFile, struct.error, UnicodeDecodeError, …
        raise DataError(
            f"{file}: is not an .npz file, or is damaged ({_summary(error)}); download or save it again"
        ) from error


def members(archive: zipfile.ZipFile, file: str) -> dict[str, zipfile.ZipInfo]:
    """The arrays of an archive by name, without the ending .npy."""
    arrays: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        key = member.filename.removesuffix(".npy")
        if not key.isprintable() or key in arrays:
            problem = "is in the file twice" if key in arrays else "is not a printable name"
            raise DataError(f"{file}: {key!r} {problem}; save the file again with np.savez")
        arrays[key] = member
    return arrays


def checked_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo, location: str) -> Header:
    """The header of an array. DataError if it declares more than MAX_ARRAY_BYTES."""
    header = read_header(archive, member)
    if header.bytes > MAX_ARRAY_BYTES:
        size = f"{header.bytes:,} bytes, more than {MAX_ARRAY_BYTES:,}"
        raise DataError(f"{location}: {member.filename} declares {size}; save shorter series")
    return header


def read_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Header:
    try:
        with archive.open(member) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns about arrays saved by Python 2, which are fine
            # later versions are for structured arrays, and their headers have no length limit
            if npy.read_magic(stream) != (1, 0):
                raise ValueError("not version 1.0 of the .npy format")
            shape, _, dtype = npy.read_array_header_1_0(stream)
            start = stream.tell()
    except Exception as error:  # numpy raises ValueError, TypeError, TokenError, …
        raise BadSeries(
            f"{member.filename} is not an array, or is damaged ({_summary(error)}); save it again"
        ) from error
    if dtype.hasobject:
        raise BadSeries(
            f"{member.filename} contains Python objects, which could execute code; save only numbers and strings"
        )
    if any(size < 0 for size in shape) or not dtype.itemsize:
        raise BadSeries(f"{member.filename} is damaged: impossible shape {shape} or data type {dtype}; save it again")
    declared = dtype.itemsize * math.prod(shape)
    if declared <= MAX_ARRAY_BYTES and start + declared != member.file_size:
        sizes = f"it has {member.file_size:,} bytes instead of {start + declared:,}"
        raise BadSeries(f"{member.filename} is damaged: {sizes}; download the file again")
    return Header(shape, dtype, declared)


def read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Read an array whose header has been checked."""
    try:
        with archive.open(member) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return npy.read_array(stream, allow_pickle=False)
    except Exception as error:  # BadZipFile, zlib.error, EOFError, ValueError, MemoryError …
        raise BadSeries(f"{member.filename} is damaged ({_summary(error)}); download the file again") from error


def _summary(error: Exception) -> str:
    """The start of a message, which may quote a whole damaged header."""
    return repr(str(error)[:80])[1:-1] or type(error).__name__


def number_of(text: str, column: int) -> float:
    """The number in a column of text. ValueError if it is not one."""
    try:
        if "_" in text:  # Python accepts 1_000
            raise ValueError
        return float(text)
    except ValueError:
        raise ValueError(
            f"column {column} is {text[:40]!r}, which is not a number; if this line is a header, remove it"
        ) from None
