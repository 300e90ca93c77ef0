"""Flags that several commands share: they override a recipe's [decode]."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from saccade.cli.app import UsageError

if TYPE_CHECKING:
    from saccade.decode.engine import DecodeConfig


@Parameter(name="*")
@dataclass(frozen=True)
class SearchFlags:
    """Flags that override the recipe's [decode]."""

    beam: int | None = None
    "Beam size; 1 is greedy search."
    length_penalty: float | None = None
    "Outputs are ranked by log p / length^PENALTY."
    ratio: float | None = None
    "Longest output as a multiple of the source's tokens."

    def check(self, best: int = 1) -> None:
        """Refuse what no search can do, before torch is imported."""
        _at_least("--beam", self.beam, 1)
        _at_least("--length-penalty", self.length_penalty, 0)
        _at_least("--ratio", self.ratio, 0)
        _at_least("--best", best, 1)
        if self.beam is not None and best > self.beam:
            raise UsageError(f"--best {best} outputs cannot come out of --beam {self.beam}")

    def settings(
        self, base: "DecodeConfig", sample: dict[str, Any] | None = None, best: int = 1, scores: bool | None = None
    ) -> "DecodeConfig":
        from saccade.decode.engine import search_settings

        given = {"size": self.beam, "length_penalty": self.length_penalty, "best": best if best > 1 else None}
        beam = {key: value for key, value in given.items() if value is not None}
        search = {"kind": "sample", **sample} if sample is not None else {"kind": "beam", **beam} if beam else None
        changes = {"search": search, "ratio": self.ratio, "scores": scores}
        return search_settings(base, {key: value for key, value in changes.items() if value is not None})


def _at_least(flag: str, value: float | None, least: float) -> None:
    if value is not None and value < least:
        raise UsageError(f"{flag}: expected greater than or equal to {least}, got {value}")


@Parameter(name="*")
@dataclass(frozen=True)
class SampleFlags:
    """Flags of `--sample`."""

    sample: Annotated[bool, Parameter(negative="")] = False
    "Draw from the model instead of searching for the likeliest."
    temperature: float | None = None
    "With --sample: below 1 is more careful, above 1 bolder."
    top_k: int | None = None
    "With --sample: draw from the K likeliest tokens."
    top_p: float | None = None
    "With --sample: draw from the fewest tokens that hold this share."
    seed: int | None = None
    "With --sample: another seed, another draw."

    def options(self) -> dict[str, Any] | None:
        given = {name: getattr(self, name) for name in ("temperature", "top_k", "top_p", "seed")}
        given = {name: value for name, value in given.items() if value is not None}
        if given and not self.sample:
            raise UsageError(f"--{next(iter(given)).replace('_', '-')} needs --sample")
        _at_least("--top-k", self.top_k, 0)
        for flag, value in (("--temperature", self.temperature), ("--top-p", self.top_p)):
            if value is not None and value <= 0:
                raise UsageError(f"{flag}: expected greater than 0, got {value}")
        if self.top_p is not None and self.top_p > 1:
            raise UsageError(f"--top-p: is a probability, got {self.top_p}")
        return given if self.sample else None
