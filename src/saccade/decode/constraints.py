"""Constraints on the output of a search: no padding, a forced prefix if there is one, and the end symbol at the length
limit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from saccade.data.tokenizers import END, PAD, START
from saccade.shapes import Float, Int

FORBIDDEN_IDS = [PAD, START]  # no search generates them
_FORBIDDEN = torch.tensor(FORBIDDEN_IDS)


@dataclass(frozen=True)
class Constraints:
    """One row per sentence: the length limit in tokens (the end symbol included) and the forced prefix. They are on the
    device of the model, and so is all that a search computes from them."""

    longest: Int[Tensor, "B"]
    prefix: Int[Tensor, "B P"]  # PAD where nothing is forced
    forbidden: Int[Tensor, "F"] = _FORBIDDEN

    @classmethod
    def of(cls, longest: Sequence[int], prefixes: Sequence[Sequence[int]] | None = None) -> "Constraints":
        """A length limit that is too short for its prefix and the end symbol is raised to fit them."""
        prefixes = prefixes or [()] * len(longest)
        forced = torch.full((len(longest), max(map(len, prefixes), default=0)), PAD)
        for row, prefix in zip(forced, prefixes, strict=True):
            row[: len(prefix)] = torch.tensor(prefix, dtype=torch.long)
        limits = [max(limit, len(prefix) + 1) for limit, prefix in zip(longest, prefixes, strict=True)]
        return cls(torch.tensor(limits), forced)

    @property
    def device(self) -> torch.device:
        return self.longest.device

    def to(self, device: torch.device) -> "Constraints":
        return Constraints(self.longest.to(device), self.prefix.to(device), self.forbidden.to(device))

    def select(self, sentences: Tensor) -> "Constraints":
        return Constraints(self.longest[sentences], self.prefix[sentences], self.forbidden)

    def apply(self, log_probs: Float[Tensor, "B N V"], step: int) -> Float[Tensor, "B N V"]:
        """Set the log-probability of every token that is not allowed at this step to −∞ (in place). The others are not
        renormalized."""
        log_probs.index_fill_(-1, self.forbidden, -math.inf)
        if step < self.prefix.shape[1]:
            forced = self.prefix[:, step]
            rows = (forced != PAD).nonzero()[:, 0]
            log_probs[rows] = _only(log_probs[rows], forced[rows])
        if step + 1 >= self._shortest:
            last = (self.longest == step + 1).nonzero()[:, 0]
            log_probs[last] = _only(log_probs[last], torch.full_like(last, END))
        return log_probs

    @cached_property
    def _shortest(self) -> int:
        """The smallest length limit: no sentence is forced to end before it."""
        return int(self.longest.min())


def _only(log_probs: Float[Tensor, "B N V"], token: Int[Tensor, "B"]) -> Float[Tensor, "B N V"]:
    """−∞ everywhere except at one token per row."""
    index = token[:, None, None].expand(-1, log_probs.shape[1], 1)
    return torch.full_like(log_probs, -math.inf).scatter(-1, index, log_probs.gather(-1, index))
