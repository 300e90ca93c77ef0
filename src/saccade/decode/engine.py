"""The interface of all engines: sources and decode settings in, a stream of outputs out. Nothing here needs torch."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from saccade.config import Config, Count, Natural, NotNegative, build, plain, python_layer, resolve
from saccade.data.tokenizers import END
from saccade.decode.search import Beam, SearchSlot
from saccade.errors import NON_FINITE_OUTPUT, BuildError, ConfigError, DataError, RunError


class DecodeConfig(Config):
    """How outputs are searched for. An output has at most `ratio` × source tokens + `extra` tokens. A batch has at most
    `batch_tokens` padded source tokens × hypotheses. With `scores` false, an engine may leave out the scores and the
    pieces of outputs where that is faster."""

    search: SearchSlot = Beam
    ratio: NotNegative = 2.0
    extra: Natural = 10
    batch_tokens: Count = 4096
    scores: bool = True


def changed_decode_config(base: DecodeConfig, changes: Mapping[str, Any]) -> DecodeConfig:
    """Decode settings with some values replaced. `changes` is nested as [decode] of a recipe."""
    decode = resolve(DecodeConfig, [python_layer(plain(base)), python_layer(changes)]).config
    try:
        build(decode.search, "decode.search")
    except BuildError as error:
        raise ConfigError(str(error)) from None
    return decode


@dataclass(frozen=True)
class Output:
    """A finished output: its text, its pieces, its token ids (the end symbol included), its log-probability and its
    score. Where `DecodeConfig.scores` is false, the pieces may be missing and both numbers may be NaN."""

    text: str
    pieces: tuple[str, ...]
    ids: tuple[int, ...]
    log_prob: float
    score: float


EMPTY_OUTPUT = Output("", (), (END,), 0.0, 0.0)


class Engine(Protocol):
    """Translates texts. `generate` yields the index of each source with its outputs, best first, in the order in which
    they finish (`in_order` sorts them). An empty source gives an empty output.

    `prefixes` are texts that the outputs must begin with. `first` is the number of the first source in the whole
    input, so that sampling gives a line the same output however lines are grouped into calls. `should_continue` is
    called before each step (or batch); if it returns False, the search raises `Cancelled`.
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
    """Require as many prefixes as sources, or none."""
    if prefixes is not None and len(prefixes) != len(sources):
        raise DataError(f"got {len(prefixes)} prefixes for {len(sources)} sources; give one prefix for each source")


def check_finite(log_prob: float) -> None:
    """Refuse a log-probability (or a score) that is NaN or infinite."""
    if not math.isfinite(log_prob):
        raise RunError(NON_FINITE_OUTPUT)


class Cancelled(Exception):
    """The caller no longer needs the results of a search."""


def in_order(results: Iterable[tuple[int, list[Output]]]) -> Iterator[list[Output]]:
    """The outputs of source 0, 1, 2, …: each as soon as it and all before it are finished."""
    waiting: dict[int, list[Output]] = {}
    following = 0
    for row, outputs in results:
        waiting[row] = outputs
        while following in waiting:
            yield waiting.pop(following)
            following += 1
