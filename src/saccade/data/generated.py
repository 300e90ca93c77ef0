"""Tasks that need no download: dates across languages (Babel's CLDR), and copy, reverse, sort.

Every row is a pure function of the options. Which split a date or a sequence belongs to does not depend on
the seed, so splits stay disjoint even when each is given a seed of its own.
"""

import difflib
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import date
from functools import cache
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from babel import Locale, UnknownLocaleError
from babel.dates import format_date
from babel.localedata import locale_identifiers

from saccade.errors import DataError

if TYPE_CHECKING:
    from saccade.data.sources.rows import Pair

SPLITS = ("train", "dev", "test")
DATE_FORMATS = ("full", "long", "medium", "short")
FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)
_NEW_CENTURY = date(2000, 1, 1)
_SMALL_SPACE = 100_000
_ATTEMPTS_A_ROW = 200


class Dates:
    """The same day written in two languages: "Tuesday, March 4, 2031" and "Dienstag, 4. März 2031"."""

    def __init__(self, *, from_: str = "en", to: str = "de", rows: int = 12000, split: str = "train", seed: int = 1):
        _at_least("rows", rows, 1)
        self.source = _locale("from", from_)
        self.target = _locale("to", to)
        self.count = rows
        self.split = _known_split(split)
        self.seed = seed

    def files(self) -> dict[str, Path]:
        """Give none: the rows are made here."""
        return {}

    def rows(self) -> "Iterator[Pair]":
        """Give `rows` pairs in an order drawn by the seed; a source text always has one target."""
        return _numbered(f"dates.{self.split}", self._drawn())

    def _drawn(self) -> list[tuple[str, str]]:
        first_days = usable_formats(self.source, self.target)
        drawn: list[tuple[str, str]] = []
        for day, style in self._candidates(first_days):
            if len(drawn) == self.count:
                break
            text = written(day, style, self.source)
            if not self._written_before(text, day, style, first_days):
                drawn.append((text, written(day, style, self.target)))
        if len(drawn) < self.count:
            languages = f"{self.source} to {self.target}"
            raise DataError(
                f"rows: split '{self.split}' of the dates from {languages} has at most {len(drawn):,} rows, "
                f"got {self.count:,}; ask for fewer"
            )
        return drawn

    def _candidates(self, first_days: dict[str, date]) -> list[tuple[date, str]]:
        """Give every day of the split in every usable format, ordered by a hash of the seed and both."""
        hashed: list[tuple[bytes, date, str]] = []
        for day in _days_of(self.split):
            digest = blake2b(f"{self.seed} {day.isoformat()}".encode(), digest_size=8 * len(DATE_FORMATS)).digest()
            for index, style in enumerate(DATE_FORMATS):
                if style in first_days and day >= first_days[style]:
                    hashed.append((digest[8 * index : 8 * index + 8], day, style))
        return [(day, style) for _, day, style in sorted(hashed)]

    def _written_before(self, text: str, day: date, style: str, first_days: dict[str, date]) -> bool:
        # "May 4, 2031" is long and medium English at once, but the two differ in German
        earlier = list(first_days)[: list(first_days).index(style)]
        return any(day >= first_days[other] and written(day, other, self.source) == text for other in earlier)


@cache
def _days_of(split: str) -> list[date]:
    every_day = map(date.fromordinal, range(FIRST_DAY.toordinal(), LAST_DAY.toordinal() + 1))
    return [day for day in every_day if split_of(day.isoformat()) == split]


def written(day: date, style: str, locale: Locale) -> str:
    """Write a day in one of CLDR's formats, as Babel gives it."""
    return format_date(day, style, locale=locale)  # pyright: ignore[reportArgumentType]


def usable_formats(source: Locale, target: Locale) -> dict[str, date]:
    """Give the formats in which the source text determines the target text, each with its first day.

    A format that loses the century on both sides begins in 2000: otherwise 3/4/31 would be a day of 1931 in
    one split and of 2031 in another. If the target keeps what the source loses, the format is dropped.
    """
    days = [date.fromordinal(date(year, 1, 1).toordinal() + n) for year in (1931, 2031) for n in range(365)]
    first_days: dict[str, date] = {}
    for style in DATE_FORMATS:
        meanings: dict[str, set[str]] = {}
        for day in days:
            meanings.setdefault(written(day, style, source), set()).add(written(day, style, target))
        if all(len(targets) == 1 for targets in meanings.values()):
            first_days[style] = FIRST_DAY if len(meanings) == len(days) else _NEW_CENTURY
    return first_days


def _locale(option: str, name: str) -> Locale:
    try:
        return Locale.parse(name.replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        near = _near_locales(name.replace("-", "_"))
        hint = f"did you mean {' or '.join(repr(one) for one in near)}?" if near else "try 'en' or 'pt_BR'"
        raise DataError(f"{option}: unknown locale {name!r}; {hint}") from error


def _near_locales(name: str) -> list[str]:
    """Give the identifiers that look like a name, or the language whose English name it is."""
    known = locale_identifiers()
    by_english_name = {str(full).lower(): code for code, full in Locale("en").languages.items() if code in known}
    close = difflib.get_close_matches(name.lower(), by_english_name, n=1, cutoff=0.8)
    return [by_english_name[close[0]]] if close else difflib.get_close_matches(name, known, n=3, cutoff=0.4)


class _Sequences(ABC):
    """Random symbols, and what the task makes of them; the leaves say what that is."""

    name: ClassVar[str]

    def __init__(
        self,
        *,
        rows: int = 1000,
        shortest: int = 1,
        longest: int = 12,
        symbols: int = 20,
        split: str = "train",
        seed: int = 1,
    ):
        _at_least("rows", rows, 1)
        _at_least("shortest", shortest, 1)
        _at_least("longest", longest, shortest)
        _at_least("symbols", symbols, 1)
        self.count = rows
        self.lengths = range(shortest, longest + 1)
        self.symbols = [_letters(index) for index in range(symbols)]
        self.split = _known_split(split)
        self.seed = seed

    @abstractmethod
    def answer(self, drawn: tuple[int, ...]) -> Iterable[int]:
        """Give the target's symbols, by their numbers in the alphabet."""

    def files(self) -> dict[str, Path]:
        """Give none: the rows are made here."""
        return {}

    def rows(self) -> "Iterator[Pair]":
        """Give `rows` different pairs; a length is drawn first, then each symbol."""
        pairs = ((self._text(drawn), self._text(self.answer(drawn))) for drawn in self._drawn())
        return _numbered(f"{self.name}.{self.split}", pairs)

    def _drawn(self) -> list[tuple[int, ...]]:
        every = self._every_member()
        if every is not None and len(every) < self.count:
            raise self._too_many(f"has at most {len(every):,} different rows")
        # the generator's random() is the one method whose stream Python promises to keep
        draw = random.Random(self.seed).random
        drawn: dict[tuple[int, ...], None] = {}
        for _ in range(_ATTEMPTS_A_ROW * self.count):
            if len(drawn) == self.count:
                break
            length = self.lengths[int(draw() * len(self.lengths))]
            one = tuple(int(draw() * len(self.symbols)) for _ in range(length))
            if self._belongs(one):
                drawn[one] = None
        drawn.update(dict.fromkeys(every or []))
        if len(drawn) < self.count:
            raise self._too_many(f"gave {len(drawn):,} different rows in {_ATTEMPTS_A_ROW} attempts a row")
        return list(drawn)[: self.count]

    def _every_member(self) -> list[tuple[int, ...]] | None:
        """List the whole split in hashed order if there are few sequences, or None."""
        size = len(self.symbols)
        total = 0
        for length in self.lengths:
            total += size**length
            if total > _SMALL_SPACE:
                return None
        every = (one for length in self.lengths for one in product(range(size), repeat=length))
        members = [one for one in every if self._belongs(one)]
        return sorted(members, key=lambda one: stable_hash(f"{self.seed} {self._text(one)}"))

    def _belongs(self, one: tuple[int, ...]) -> bool:
        return split_of(self._text(one)) == self.split

    def _text(self, numbers: Iterable[int]) -> str:
        return " ".join(self.symbols[number] for number in numbers)

    def _too_many(self, what: str) -> DataError:
        wanted = f"got {self.count:,}; ask for fewer, or raise 'symbols' or 'longest'"
        return DataError(f"rows: split '{self.split}' of '{self.name}' {what}, {wanted}")


class Copy(_Sequences):
    """The target is the source."""

    name = "copy"

    def answer(self, drawn: tuple[int, ...]) -> Iterable[int]:
        """Leave the symbols as they are."""
        return drawn


class Reverse(_Sequences):
    """The target is the source, last symbol first."""

    name = "reverse"

    def answer(self, drawn: tuple[int, ...]) -> Iterable[int]:
        """Turn the symbols round."""
        return reversed(drawn)


class Sort(_Sequences):
    """The target is the source in the order of the alphabet: a to z, then aa, ab and so on."""

    name = "sort"

    def answer(self, drawn: tuple[int, ...]) -> Iterable[int]:
        """Put the symbols in order."""
        return sorted(drawn)


def stable_hash(text: str) -> int:
    """Hash a text to 64 bits, alike on every machine and in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def split_of(text: str) -> str:
    """Give a tenth of all texts to test, a twentieth to dev, the rest to train."""
    hundredth = stable_hash(text) % 100
    return "test" if hundredth < 10 else "dev" if hundredth < 15 else "train"


def _numbered(name: str, pairs: Iterable[tuple[str, str]]) -> "Iterator[Pair]":
    # imported late: the table in sources/__init__.py holds the classes of this file
    from saccade.data.sources.rows import Pair

    for number, (source, target) in enumerate(pairs, start=1):
        yield Pair(source, target, f"{name}:{number}")


def _letters(index: int) -> str:
    """Name a symbol: a to z, then aa, ab ... as a spreadsheet names its columns."""
    name = ""
    index += 1
    while index:
        index, letter = divmod(index - 1, 26)
        name = chr(ord("a") + letter) + name
    return name


def _at_least(option: str, value: int, least: int) -> None:
    if value < least:
        raise DataError(f"{option}: must be at least {least}, got {value}")


def _known_split(split: str) -> str:
    if split not in SPLITS:
        raise DataError(f"split: unknown split {split!r}; it is one of {', '.join(SPLITS)}")
    return split
