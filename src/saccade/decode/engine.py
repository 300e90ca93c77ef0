"""The one way to call a model: sources and search settings in, a stream of outputs out.
Translate, evaluate, serve and study use it alike, whatever computes behind it; so nothing here needs torch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from saccade.config import Config, Count, Natural, NotNegative, build, plain, python_layer, resolve
from saccade.data.tokenizers import END
from saccade.decode.search import Beam, SearchSlot
from saccade.errors import BuildError, ConfigError, DataError


class DecodeConfig(Config):
    """How outputs are searched for: at most `ratio` × source tokens + `extra` tokens each. `batch_tokens` are padded
    source tokens × hypotheses that one worker holds at a time. With `scores` false, an engine may leave out the scores
    and the pieces of outputs where it is faster without them."""

    search: SearchSlot = Beam
    ratio: NotNegative = 2.0
    extra: Natural = 10
    batch_tokens: Count = 4096
    scores: bool = True


def search_settings(base: DecodeConfig, changes: Mapping[str, Any]) -> DecodeConfig:
    """Decode settings with some of them replaced: nested keys as in a recipe's [decode]."""
    decode = resolve(DecodeConfig, [python_layer(plain(base)), python_layer(changes)]).config
    try:
        build(decode.search, "decode.search")
    except BuildError as refusal:
        raise ConfigError(str(refusal)) from None
    return decode


@dataclass(frozen=True)
class Output:
    """One output: its text, its pieces, its ids (the end included), and how likely it is. Where only texts were asked
    for, there may be no pieces, and nan for what is not known."""

    text: str
    pieces: tuple[str, ...]
    ids: tuple[int, ...]
    log_prob: float
    score: float


EMPTY_OUTPUT = Output("", (), (END,), 0.0, 0.0)


class Engine(Protocol):
    """The contract: for each source its number and its outputs, best first, as they are found; an empty source gives
    an empty output. `in_order` puts them in the order of the sources.

    `prefixes` are texts that the outputs must begin with. `first` is the number of the first source in the whole
    input, so that what is drawn for a line does not depend on how the lines were grouped. `going` is asked before each
    step; once it says no, the search ends with `Abandoned`.
    """

    def generate(
        self,
        sources: Sequence[str],
        decode: DecodeConfig,
        prefixes: Sequence[str] | None = None,
        first: int = 0,
        should_continue: Callable[[], bool] = lambda: True,
    ) -> Iterator[tuple[int, list[Output]]]: ...


def check_prefixes(sources: Sequence[str], prefixes: Sequence[str] | None) -> None:
    """There is a prefix for every source, or none at all."""
    if prefixes is not None and len(prefixes) != len(sources):
        raise DataError(f"{len(prefixes)} prefixes do not go with {len(sources)} sources")


class Cancelled(Exception):
    """Nobody waits for the rest of a search any more."""


def in_order(found: Iterable[tuple[int, list[Output]]]) -> Iterator[list[Output]]:
    """The outputs of source 0, 1, 2, … each as soon as it and all before it are there."""
    waiting: dict[int, list[Output]] = {}
    following = 0
    for row, outputs in found:
        waiting[row] = outputs
        while following in waiting:
            yield waiting.pop(following)
            following += 1
