"""Generated data that needs no download: dates in two languages (Babel's CLDR), and copying, reversing and sorting.

The rows are a pure function of the options. The split of a date or a sequence does not depend on the seed, so splits
are disjoint even with different seeds.
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
from typing import ClassVar

from babel import Locale, UnknownLocaleError
from babel.dates import format_date
from babel.localedata import locale_identifiers

from saccade.data.sources.rows import Pair
from saccade.errors import DataError

SPLITS = ("train", "dev", "test")
DATE_FORMATS = ("full", "long", "medium", "short")
FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)
_CENTURY_START = date(2000, 1, 1)
_MAX_ENUMERATED = 100_000  # up to so many sequences are listed in full
_ATTEMPTS_PER_ROW = 200


class Dates:
    """The same date in two languages: "Tuesday, March 4, 2031" and "Dienstag, 4. März 2031"."""

    def __init__(
        self,
        config_key: str = "",  # of the source, such as data.dev, for error messages
        *,
        from_: str = "en",
        to: str = "de",
        rows: int = 12000,
        split: str = "train",
        seed: int = 1,
    ):
        _check_minimum("rows", rows, 1)
        self.config_key = config_key
        self.source = _locale("from", from_)
        self.target = _locale("to", to)
        self.count = rows
        self.split = _check_split(split)
        self.seed = seed

    def files(self) -> dict[str, Path]:
        """Empty: the rows are generated."""
        return {}

    def rows(self) -> Iterator[Pair]:
        """`rows` pairs in an order that depends on the seed. A source text always has the same target."""
        return _as_pairs(f"dates.{self.split}", self._drawn())

    def _drawn(self) -> list[tuple[str, str]]:
        first_days = usable_formats(self.source, self.target)
        drawn: list[tuple[str, str]] = []
        for day, style in self._candidates(first_days):
            if len(drawn) == self.count:
                break
            text = format_day(day, style, self.source)
            if not self._has_earlier_format(text, day, style, first_days):
                drawn.append((text, format_day(day, style, self.target)))
        if len(drawn) < self.count:
            languages = f"{self.source} to {self.target}"
            raise DataError(
                f"{_rows_key(self.config_key)}: split '{self.split}' of the dates from {languages} has at most "
                f"{len(drawn):,} rows, but 'rows' is {self.count:,}; lower it"
            )
        return drawn

    def _candidates(self, first_days: dict[str, date]) -> list[tuple[date, str]]:
        """Every day of the split in every usable format, ordered by a hash of the seed, the day and the format."""
        hashed: list[tuple[bytes, date, str]] = []
        for day in _days_in(self.split):
            digest = blake2b(f"{self.seed} {day.isoformat()}".encode(), digest_size=8 * len(DATE_FORMATS)).digest()
            for index, style in enumerate(DATE_FORMATS):
                if style in first_days and day >= first_days[style]:
                    hashed.append((digest[8 * index : 8 * index + 8], day, style))
        return [(day, style) for _, day, style in sorted(hashed)]

    def _has_earlier_format(self, text: str, day: date, style: str, first_days: dict[str, date]) -> bool:
        # "May 4, 2031" is both the long and the medium format in English, which differ in German: keep only the first
        earlier = list(first_days)[: list(first_days).index(style)]
        return any(day >= first_days[other] and format_day(day, other, self.source) == text for other in earlier)


@cache
def _days_in(split: str) -> list[date]:
    every_day = map(date.fromordinal, range(FIRST_DAY.toordinal(), LAST_DAY.toordinal() + 1))
    return [day for day in every_day if split_of(day.isoformat()) == split]


def format_day(day: date, style: str, locale: Locale) -> str:
    """A date in one of the CLDR formats."""
    return format_date(day, style, locale=locale)


@cache
def usable_formats(source: Locale, target: Locale) -> dict[str, date]:
    """The formats in which the source text determines the target text, each with its first day.

    A format that shows the century on neither side starts in 2000: otherwise 3/4/31 would be a day of 1931 in one split
    and of 2031 in another. A format that shows the century only in the target is left out.
    """
    days = [date.fromordinal(date(year, 1, 1).toordinal() + n) for year in (1931, 2031) for n in range(365)]
    first_days: dict[str, date] = {}
    for style in DATE_FORMATS:
        targets_of: dict[str, set[str]] = {}
        for day in days:
            targets_of.setdefault(format_day(day, style, source), set()).add(format_day(day, style, target))
        if all(len(targets) == 1 for targets in targets_of.values()):
            first_days[style] = FIRST_DAY if len(targets_of) == len(days) else _CENTURY_START
    return first_days


def _locale(option: str, name: str) -> Locale:
    try:
        return Locale.parse(name.replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        similar = _similar_locales(name.replace("-", "_"))
        hint = f"did you mean {' or '.join(map(repr, similar))}?" if similar else "try 'en' or 'pt_BR'"
        raise DataError(f"{option}: unknown locale {name!r}; {hint}") from error


def _similar_locales(name: str) -> list[str]:
    """The locale whose English name is similar to `name`, or the locale identifiers that are similar to it."""
    known = locale_identifiers()
    by_english_name = {str(full).lower(): code for code, full in Locale("en").languages.items() if code in known}
    close = difflib.get_close_matches(name.lower(), by_english_name, n=1, cutoff=0.8)
    return [by_english_name[close[0]]] if close else difflib.get_close_matches(name, known, n=3, cutoff=0.4)


class _Sequences(ABC):
    """Sequences of random symbols; the subclasses define the target."""

    name: ClassVar[str]

    def __init__(
        self,
        config_key: str = "",
        *,
        rows: int = 1000,
        shortest: int = 1,
        longest: int = 12,
        symbols: int = 20,
        split: str = "train",
        seed: int = 1,
    ):
        _check_minimum("rows", rows, 1)
        _check_minimum("shortest", shortest, 1)
        _check_minimum("longest", longest, shortest)
        _check_minimum("symbols", symbols, 1)
        self.config_key = config_key
        self.count = rows
        self.lengths = range(shortest, longest + 1)
        self.symbols = [_letters(index) for index in range(symbols)]
        self.split = _check_split(split)
        self.seed = seed

    @abstractmethod
    def target(self, drawn: tuple[int, ...]) -> Iterable[int]:
        """The target for a source; both are symbol numbers."""

    def files(self) -> dict[str, Path]:
        """Empty: the rows are generated."""
        return {}

    def rows(self) -> Iterator[Pair]:
        """`rows` distinct pairs. Lengths and symbols are drawn uniformly. If that gives too few different sequences,
        the remaining ones of the split follow in the order of their hashes."""
        pairs = ((self._text(drawn), self._text(self.target(drawn))) for drawn in self._drawn())
        return _as_pairs(f"{self.name}.{self.split}", pairs)

    def _drawn(self) -> list[tuple[int, ...]]:
        every = self._all_members()
        if every is not None and len(every) < self.count:
            raise self._too_many_rows(f"has at most {len(every):,} different rows")
        # random() is the only method for which Python guarantees the same values in all versions
        draw = random.Random(self.seed).random
        drawn: dict[tuple[int, ...], None] = {}
        for _ in range(_ATTEMPTS_PER_ROW * self.count):
            if len(drawn) == self.count:
                break
            length = self.lengths[int(draw() * len(self.lengths))]
            sequence = tuple(int(draw() * len(self.symbols)) for _ in range(length))
            if self._is_member(sequence):
                drawn[sequence] = None
        drawn.update(dict.fromkeys(every or []))  # the sequences that were not drawn, in the order of their hashes
        if len(drawn) < self.count:
            raise self._too_many_rows(f"gave {len(drawn):,} different rows in {_ATTEMPTS_PER_ROW} attempts per row")
        return list(drawn)[: self.count]

    def _all_members(self) -> list[tuple[int, ...]] | None:
        """All sequences of the split, ordered by hash; None if there are too many sequences to list."""
        size = len(self.symbols)
        total = 0
        for length in self.lengths:
            total += size**length
            if total > _MAX_ENUMERATED:
                return None
        every = (sequence for length in self.lengths for sequence in product(range(size), repeat=length))
        members = [sequence for sequence in every if self._is_member(sequence)]
        return sorted(members, key=lambda sequence: stable_hash(f"{self.seed} {self._text(sequence)}"))

    def _is_member(self, sequence: tuple[int, ...]) -> bool:
        return split_of(self._text(sequence)) == self.split

    def _text(self, numbers: Iterable[int]) -> str:
        return " ".join(self.symbols[number] for number in numbers)

    def _too_many_rows(self, limit: str) -> DataError:
        return DataError(
            f"{_rows_key(self.config_key)}: split '{self.split}' of '{self.name}' {limit}, but 'rows' is "
            f"{self.count:,}; lower it, or raise 'symbols' or 'longest'"
        )


class Copy(_Sequences):
    """The target is the source."""

    name = "copy"

    def target(self, drawn: tuple[int, ...]) -> Iterable[int]:
        return drawn


class Reverse(_Sequences):
    """The target is the source in reverse order."""

    name = "reverse"

    def target(self, drawn: tuple[int, ...]) -> Iterable[int]:
        return reversed(drawn)


class Sort(_Sequences):
    """The target is the source in sorted order: a to z, then aa, ab, …"""

    name = "sort"

    def target(self, drawn: tuple[int, ...]) -> Iterable[int]:
        return sorted(drawn)


def stable_hash(text: str) -> int:
    """A 64-bit hash of a text, equal on all machines and in all processes."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def split_of(text: str) -> str:
    """The split of a text, by its hash: 10 % test, 5 % dev, the rest train."""
    hundredth = stable_hash(text) % 100
    return "test" if hundredth < 10 else "dev" if hundredth < 15 else "train"


def _as_pairs(name: str, pairs: Iterable[tuple[str, str]]) -> Iterator[Pair]:
    for number, (source, target) in enumerate(pairs, start=1):
        yield Pair(source, target, f"{name}:{number}")


def _letters(index: int) -> str:
    """The name of a symbol: a to z, then aa, ab, … like the columns of a spreadsheet."""
    name = ""
    index += 1
    while index:
        index, letter = divmod(index - 1, 26)
        name = chr(ord("a") + letter) + name
    return name


def _rows_key(config_key: str) -> str:
    return f"{config_key}.rows" if config_key else "rows"


def _check_minimum(option: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise DataError(f"{option}: must be at least {minimum}, got {value}")


def _check_split(split: str) -> str:
    if split not in SPLITS:
        raise DataError(f"split: unknown split {split!r} (known: {', '.join(SPLITS)})")
    return split
