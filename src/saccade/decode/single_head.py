"""The head of a single hypothesis. Its product takes longer than two layers, only to be read: 5 MB for 10,000 words."""

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.decode.loops import check_finite
from saccade.decode.rules import FORBIDDEN_IDS

Vector = np.ndarray  # of 32-bit floats


class SingleOutputHead:
    """W h + b, of one h. The weights lie in columns: torch goes through them almost twice as fast as through rows."""

    def __init__(self, weight: Tensor, bias: Tensor):
        self._columns, self._bias = weight.t().contiguous().t(), bias
        self._use_shortlist = has_fast_int8()

    def log_probs(self, hidden: Vector) -> Vector:
        found = self._logits(hidden).log_softmax(-1).numpy()
        check_finite(float(found[0]))  # one is enough: a softmax spreads what is not finite
        return found

    def argmax(self, hidden: Vector) -> int:
        """Of the words that may be written."""
        left = self._shortlist(hidden) if self._use_shortlist else None
        if left is None:
            logits = self._logits(hidden).numpy()
            check_finite(float(logits.sum()))
            logits[FORBIDDEN_IDS] = -np.inf
            return int(logits.argmax())
        return int(left[0]) if len(left) == 1 else int(left[self._logits_of(left, hidden).argmax()])

    def _logits(self, hidden: Vector) -> Tensor:
        return torch.addmv(self._bias, self._columns, torch.from_numpy(hidden))

    def _logits_of(self, words: np.ndarray, hidden: Vector) -> Vector:
        return self._columns.numpy()[words].dot(hidden) + self._bias.numpy()[words]

    @cached_property
    def _shortlist(self) -> "Int8Shortlist":
        return Int8Shortlist(self._columns, self._bias)


def has_fast_int8() -> bool:
    """Whether this CPU multiplies eight bits at a time, and this torch lets it."""
    return torch.cpu.get_capabilities().get("avx512_vnni", False) and hasattr(torch, "_int_mm")


class Int8Shortlist:
    """The words that can be the argmax: a product in eight bits is read in a quarter of the time, and says of every
    logit how far it can be off. W = Ŵ + E and h = ĥ + e give |W h − Ŵ ĥ| ≤ |E| |ĥ| + |W| |e| (Cauchy & Schwarz). Mostly
    one word is left, or two."""

    MAX_CANDIDATES = 256  # words that are left, for which it was worth it

    def __init__(self, weight: Tensor, bias: Tensor):
        step = weight.abs().amax(1).clamp(min=1e-30) / 127
        whole = (weight / step[:, None]).round()
        self._weight, self._step = whole.to(torch.int8).contiguous().t(), step.numpy()
        self._off = float((weight - whole * step[:, None]).norm(dim=1).max())
        self._long = float(weight.norm(dim=1).max())
        self._bias = bias.numpy().copy()
        self._bias[FORBIDDEN_IDS] = -np.inf

    def __call__(self, hidden: Vector) -> np.ndarray | None:
        """None if there are too many, or numbers that are none."""
        step = float(np.abs(hidden).max()) / 127 or 1.0
        whole = np.rint(hidden * (1 / step))
        row = torch.from_numpy(whole.astype(np.int8).reshape(1, -1))  # [None] has a stride of 0, with which it is wrong
        logits = torch._int_mm(row, self._weight).numpy()[0].astype(np.float32)  # pyright: ignore[reportPrivateImportUsage]
        logits *= self._step
        logits *= step
        logits += self._bias
        whole *= step
        off = self._off * _length(whole) + self._long * _length(hidden - whole)
        best = float(logits.max())
        (left,) = np.nonzero(logits >= best - 2.001 * off - 1e-5 * (1 + abs(best)))  # the last for rounding
        return left if 0 < len(left) <= self.MAX_CANDIDATES else None


def _length(x: Vector) -> Any:
    return np.sqrt(x.dot(x))
