"""The output head for a single hypothesis. Its matrix-vector product is bound by memory bandwidth: for a vocabulary of
10,000 tokens, reading its 5 MB of weights takes longer than computing two layers. So the argmax comes from a shortlist
that is computed in int8."""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from saccade.decode.constraints import FORBIDDEN_IDS
from saccade.decode.engine import check_finite

Vector = np.ndarray  # float32


class SingleOutputHead:
    """logits = W h + b for one hidden state h. The weights are stored column by column, which torch's product reads
    almost twice as fast as row by row."""

    def __init__(self, weight: Tensor, bias: Tensor):
        self._columns, self._bias = weight.t().contiguous().t(), bias
        self._use_shortlist = has_fast_int8()

    def log_probs(self, hidden: Vector) -> Vector:
        log_probs = self._logits(hidden).log_softmax(-1).numpy()
        check_finite(float(log_probs[0]))  # one entry is enough: softmax spreads NaN over the whole row
        return log_probs

    def argmax(self, hidden: Vector) -> int:
        """The most likely token that is allowed in an output."""
        shortlist = self._shortlist(hidden) if self._use_shortlist else None
        if shortlist is None:
            logits = self._logits(hidden).numpy()
            check_finite(float(logits.sum()))
            logits[FORBIDDEN_IDS] = -np.inf
            return int(logits.argmax())
        if len(shortlist) == 1:
            return int(shortlist[0])
        return int(shortlist[self._logits_of(shortlist, hidden).argmax()])

    def _logits(self, hidden: Vector) -> Tensor:
        return torch.addmv(self._bias, self._columns, torch.from_numpy(hidden))

    def _logits_of(self, tokens: np.ndarray, hidden: Vector) -> Vector:
        return self._columns.numpy()[tokens].dot(hidden) + self._bias.numpy()[tokens]

    @cached_property
    def _shortlist(self) -> "Int8Shortlist":
        return Int8Shortlist(self._columns, self._bias)


def has_fast_int8() -> bool:
    """Whether this CPU has int8 dot products (AVX-512 VNNI), and this torch has the operation that uses them."""
    return torch.cpu.get_capabilities().get("avx512_vnni", False) and hasattr(torch, "_int_mm")


class Int8Shortlist:
    """The tokens that can have the largest logit. The int8 product reads a quarter of the bytes, and its error is
    bounded: W = Ŵ + E and h = ĥ + e give |W h − Ŵ ĥ| ≤ |E| |ĥ| + |W| |e| (Cauchy–Schwarz). Usually one or two tokens
    remain."""

    MAX_CANDIDATES = 256  # with more than these the shortlist saves nothing

    def __init__(self, weight: Tensor, bias: Tensor):
        step = weight.abs().amax(1).clamp(min=1e-30) / 127
        quantized = (weight / step[:, None]).round()
        self._weight, self._step = quantized.to(torch.int8).contiguous().t(), step.numpy()
        self._max_row_error = float((weight - quantized * step[:, None]).norm(dim=1).max())
        self._max_row_norm = float(weight.norm(dim=1).max())
        self._bias = bias.numpy().copy()
        self._bias[FORBIDDEN_IDS] = -np.inf

    def __call__(self, hidden: Vector) -> np.ndarray | None:
        """The candidate tokens; None if there are too many, or if a value is not finite."""
        step = float(np.abs(hidden).max()) / 127 or 1.0
        quantized = np.rint(hidden * (1 / step))
        # reshape, not [None]: that has a stride of 0, for which _int_mm gives wrong results
        row = torch.from_numpy(quantized.astype(np.int8).reshape(1, -1))
        logits = torch._int_mm(row, self._weight).numpy()[0].astype(np.float32)  # pyright: ignore[reportPrivateImportUsage]
        logits *= self._step
        logits *= step
        logits += self._bias
        quantized *= step
        error = self._max_row_error * _norm(quantized) + self._max_row_norm * _norm(hidden - quantized)
        best = float(logits.max())
        # the approximate logits of the best token and of a candidate may each be off by `error`; 0.001 · error and
        # `rounding` cover float32 rounding
        rounding = 1e-5 * (1 + abs(best))
        (candidates,) = np.nonzero(logits >= best - 2.001 * error - rounding)
        return candidates if 0 < len(candidates) <= self.MAX_CANDIDATES else None


def _norm(x: Vector) -> float:
    return np.sqrt(x.dot(x))
