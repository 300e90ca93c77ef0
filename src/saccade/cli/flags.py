"""Search and sampling options that several commands share. They override the recipe's [decode]."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from saccade.cli.app import UsageError

if TYPE_CHECKING:
    from saccade.decode.engine import DecodeConfig


@Parameter(name="*")
@dataclass(frozen=True)
class SearchFlags:
    """Options that override the recipe's [decode]."""

    beam: int | None = None
    "Beam size; 1 is greedy search."
    length_penalty: float | None = None
    (
        "Exponent of the length penalty: hypotheses are ranked by log-probability / length^PENALTY. Implies beam "
        "search, with a beam size of 5 unless --beam or the recipe's beam search sets it."
    )
    ratio: float | None = None
    "Maximum output length as a multiple of the source length, in tokens; decode.extra tokens are added."

    def check(self, best: int = 1) -> None:
        """Reject invalid values before torch is imported."""
        _require_at_least("--beam", self.beam, 1)
        _require_at_least("--length-penalty", self.length_penalty, 0)
        _require_at_least("--ratio", self.ratio, 0)
        _require_at_least("--best", best, 1)
        if self.beam is not None and best > self.beam:
            raise UsageError(
                f"--best {best}: a beam of {self.beam} has at most {self.beam} outputs; raise --beam or lower --best"
            )

    def settings(
        self, base: "DecodeConfig", sample: dict[str, Any] | None = None, best: int = 1, scores: bool | None = None
    ) -> "DecodeConfig":
        """The decode settings `base` with these options applied. `sample`: the options of `SampleFlags`, if any."""
        from saccade.decode.engine import changed_decode_config

        options = {"size": self.beam, "length_penalty": self.length_penalty, "best": best if best > 1 else None}
        beam = {key: value for key, value in options.items() if value is not None}
        search = {"kind": "sample", **sample} if sample is not None else {"kind": "beam", **beam} if beam else None
        changes = {"search": search, "ratio": self.ratio, "scores": scores}
        return changed_decode_config(base, {key: value for key, value in changes.items() if value is not None})


def _require_at_least(option: str, value: float | None, minimum: float) -> None:
    if value is not None and value < minimum:
        raise UsageError(f"{option}: must be greater than or equal to {minimum}, got {value}")


@Parameter(name="*")
@dataclass(frozen=True)
class SampleFlags:
    """Options of sampling."""

    sample: Annotated[bool, Parameter(negative="")] = False
    "Sample each token from the model's distribution instead of searching."
    temperature: float | None = None
    "With --sample: divide the logits by this; below 1 sharpens the distribution, above 1 flattens it."
    top_k: int | None = None
    "With --sample: sample from the K most probable tokens; 0 means all."
    top_p: float | None = None
    "With --sample: sample from the smallest set of tokens whose probabilities sum to at least this."
    seed: int | None = None
    "With --sample: the random seed."

    def options(self) -> dict[str, Any] | None:
        """The given options of sampling; None without --sample."""
        options = {name: getattr(self, name) for name in ("temperature", "top_k", "top_p", "seed")}
        options = {name: value for name, value in options.items() if value is not None}
        if options and not self.sample:
            raise UsageError(f"--{next(iter(options)).replace('_', '-')} needs --sample; add it")
        _require_at_least("--top-k", self.top_k, 0)
        for option, value in (("--temperature", self.temperature), ("--top-p", self.top_p)):
            if value is not None and value <= 0:
                raise UsageError(f"{option}: must be greater than 0, got {value}")
        if self.top_p is not None and self.top_p > 1:
            raise UsageError(f"--top-p: must be a probability of at most 1, got {self.top_p}")
        return options if self.sample else None
