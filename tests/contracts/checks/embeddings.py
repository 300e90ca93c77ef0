"""The contract of an embedding: values → vectors and their Places."""

from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.checks.common import TARGET_LENGTHS, assert_close, assert_differs, padding_mask, progress
from contracts.variants import B, D, T
from saccade.errors import BuildError


def check_embedding(embedding: Any, values: Tensor, vocabulary: int) -> None:
    """Values [B T …] become vectors [B T D] at the right positions; padding has no effect on them. `tied_weight` gives
    a head one row per token, or, if there is no table (vocabulary 0), an error that says what to do."""
    generator = torch.Generator().manual_seed(0)
    keep, starts = padding_mask(TARGET_LENGTHS), [0, 2, 5]
    x, places = embedding(values, keep, progress(*starts))
    assert x.shape == (B, T, D)
    assert torch.equal(places.keep, keep)
    assert places.padded
    for at, start, length in zip(places.at.tolist(), starts, TARGET_LENGTHS, strict=True):
        assert at[:length] == list(range(start, start + length))
        assert max(at) < places.end
    assert not embedding(values, None)[1].padded
    noisy, _ = embedding(torch.where(keep.view(B, T, *[1] * (values.dim() - 2)), values, 3), keep)
    for row, length in enumerate(TARGET_LENGTHS):
        single, _ = embedding(values[[row], :length], None)
        assert_close(x[row, :length], single[0], f"row {row}")
        assert_close(noisy[row, :length], single[0], f"row {row} with noise in its padding")
    assert_differs(x[0, 0], x[0, 1], "the value")
    hidden = torch.randn(11, D, generator=generator)
    if vocabulary:
        projected, weight = embedding.tied_weight(hidden)
        assert (projected @ weight.T).shape == (11, vocabulary)
        return
    with pytest.raises(BuildError, match=r"model\.head"):
        embedding.tied_weight(hidden)
