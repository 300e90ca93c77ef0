"""One file, one JSON object a line: flat, or with the languages under "translation"."""

import json
from collections.abc import Iterator
from pathlib import Path

from saccade.data.sources.rows import Fault, Pair, existing, read_lines

_KEYS_SHOWN = 8


class Jsonl:
    """`src` and `tgt` are keys: of the object, or of its "translation" (then they are language codes)."""

    def __init__(self, folder: Path, *, file: str, src: str = "src", tgt: str = "tgt"):
        self.folder = folder
        self.file = file
        self.src = src
        self.tgt = tgt

    def files(self) -> dict[str, Path]:
        """Give the one path."""
        return {"file": existing(self.folder, self.file, "file")}

    def rows(self) -> Iterator[Pair | Fault]:
        """Parse each line."""
        for number, line in enumerate(read_lines(self.files()["file"], self.file), start=1):
            yield line if isinstance(line, Fault) else self._row(line, f"{self.file}:{number}")

    def _row(self, line: str, place: str) -> Pair | Fault:
        try:
            found = json.loads(line)
            table = _table(found)
            return Pair(_string(table, self.src), _string(table, self.tgt), place)
        except json.JSONDecodeError as error:
            return Fault(place, f"is not JSON: {error.msg} at column {error.colno}; write one object a line")
        except RecursionError:
            return Fault(place, "is JSON nested too deep; write one flat object a line")
        except ValueError as error:
            return Fault(place, str(error))


def _table(found: object) -> dict[str, object]:
    if not isinstance(found, dict):
        raise ValueError(f"holds a JSON {type(found).__name__}, not an object; write {{...}} on each line")
    inner = found.get("translation")
    return inner if isinstance(inner, dict) else found


def _string(table: dict[str, object], key: str) -> str:
    """Give the text under a key; a ValueError says why it cannot be one line of UTF-8."""
    if key not in table:
        raise ValueError(f"has no key {key!r}; {_keys(table)}; set 'src' and 'tgt' to two of the keys")
    text = table[key]
    if not isinstance(text, str):
        raise ValueError(f"the value of {key!r} is not a string but {type(text).__name__}; make it a string")
    for character, what in (("\n", "a newline"), ("\0", "a NUL character")):
        if character in text:
            raise ValueError(f"{key!r} holds {what} at offset {text.index(character)}; take it out")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"{text[error.start]!r} at offset {error.start}"
        raise ValueError(f"{key!r} holds half a surrogate pair, {half}; write the whole pair") from error
    return text


def _keys(table: dict[str, object]) -> str:
    if not table:
        return "the object is empty"
    names = ", ".join(repr(name) for name in list(table)[:_KEYS_SHOWN])
    return f"its keys are {names}" + (", ..." if len(table) > _KEYS_SHOWN else "")
