"""What a search may write: no padding, a forced prefix if there is one, an end at the longest length."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from saccade.data.tokenizers import END, PAD, START
from saccade.shapes import Float, Int

FORBIDDEN_IDS = [PAD, START]  # what no search writes
_FORBIDDEN = torch.tensor(FORBIDDEN_IDS)


@dataclass(frozen=True)
class Constraints:
    """One row a sentence: the most tokens (the end included) and the tokens that must come first."""

    longest: Int[Tensor, "B"]
    prefix: Int[Tensor, "B P"]  # PAD where nothing is forced

    @classmethod
    def of(cls, longest: Sequence[int], prefixes: Sequence[Sequence[int]] | None = None) -> "Constraints":
        prefixes = prefixes or [()] * len(longest)
        forced = torch.full((len(longest), max(map(len, prefixes), default=0)), PAD)
        for row, prefix in zip(forced, prefixes, strict=True):
            row[: len(prefix)] = torch.tensor(prefix, dtype=torch.long)
        least = [len(prefix) + 1 for prefix in prefixes]
        return cls(torch.tensor([max(most, room) for most, room in zip(longest, least, strict=True)]), forced)

    def select(self, sentences: Tensor) -> "Constraints":
        return Constraints(self.longest[sentences], self.prefix[sentences])

    def apply(self, log_probs: Float[Tensor, "B N V"], step: int) -> Float[Tensor, "B N V"]:
        """−∞ for what may not be the token number `step`. What is left keeps its probability."""
        log_probs.index_fill_(-1, _FORBIDDEN, -math.inf)
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
        """Before this step no sentence has to end."""
        return int(self.longest.min())


def _only(log_probs: Float[Tensor, "B N V"], token: Int[Tensor, "B"]) -> Float[Tensor, "B N V"]:
    index = token[:, None, None].expand(-1, log_probs.shape[1], 1)
    return torch.full_like(log_probs, -math.inf).scatter(-1, index, log_probs.gather(-1, index))
