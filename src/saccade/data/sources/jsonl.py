"""One file with one JSON object per line: flat, or with the languages under "translation"."""

import json
from collections.abc import Iterator
from pathlib import Path

from saccade.data.sources.rows import BadRow, Pair, existing, read_lines

_KEYS_LISTED = 8


class Jsonl:
    """`src` and `tgt` are keys of the object, or language codes if it has a table "translation"."""

    def __init__(self, folder: Path, *, file: str, src: str = "src", tgt: str = "tgt"):
        self.folder = folder
        self.file = file
        self.src = src
        self.tgt = tgt

    def files(self) -> dict[str, Path]:
        """The path of the file."""
        return {"file": existing(self.folder, self.file, "file")}

    def location(self, line: int) -> str:
        """The location of the pair in a line."""
        return f"{self.file}:{line}"

    def rows(self) -> Iterator[Pair | BadRow]:
        """Parse each line."""
        for number, line in enumerate(read_lines(self.files()["file"], self.file), start=1):
            yield line if isinstance(line, BadRow) else self._row(line, self.location(number))

    def _row(self, line: str, location: str) -> Pair | BadRow:
        try:
            table = _table(json.loads(line))
            return Pair(_string(table, self.src), _string(table, self.tgt), location)
        except json.JSONDecodeError as error:
            return BadRow(location, f"is not JSON: {error.msg} at column {error.colno}; write one object per line")
        except RecursionError:
            return BadRow(location, "is JSON nested too deeply; write one flat object per line")
        except ValueError as error:
            return BadRow(location, str(error))


def _table(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}; write {{...}} on each line")
    inner = value.get("translation")
    return inner if isinstance(inner, dict) else value


def _string(table: dict[str, object], key: str) -> str:
    """The string under a key. ValueError if it is missing or cannot be one line of UTF-8."""
    if key not in table:
        raise ValueError(f"has no key {key!r}; {_keys(table)}; set 'src' and 'tgt' to two of the keys")
    text = table[key]
    if not isinstance(text, str):
        raise ValueError(f"the value of {key!r} must be a string, got {type(text).__name__}")
    for character, name in (("\n", "a newline"), ("\0", "a NUL character")):
        if character in text:
            raise ValueError(f"{key!r} contains {name} at offset {text.index(character)}; remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        surrogate = f"{text[error.start]!r} at offset {error.start}"
        raise ValueError(f"{key!r} contains an unpaired surrogate, {surrogate}; write the whole pair") from error
    return text


def _keys(table: dict[str, object]) -> str:
    if not table:
        return "the object is empty"
    names = ", ".join(repr(name) for name in list(table)[:_KEYS_LISTED])
    return f"its keys are {names}" + (", ..." if len(table) > _KEYS_LISTED else "")
