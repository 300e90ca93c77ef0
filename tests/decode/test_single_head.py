"""The argmax from the int8 shortlist equals the argmax of the float32 logits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.tokenizers import PAD, START
from saccade.decode.single_head import Int8Shortlist, SingleOutputHead
from saccade.errors import RunError

TOKENS, D = 200, 24


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def reference_logits(weight: torch.Tensor, bias: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    logits = (weight.double() @ hidden.double() + bias.double()).float()
    logits[[PAD, START]] = -torch.inf
    return logits


@given(
    seed=st.integers(0, 2**31),
    size=st.sampled_from([1e-4, 0.1, 3.0]),
    spread=st.sampled_from([0.0, 0.01, 1.0]),
    duplicates=st.integers(0, 150),
)
@settings(max_examples=150, deadline=None)
def test_argmax_has_the_largest_logit(seed: int, size: float, spread: float, duplicates: int) -> None:
    """The weights of `duplicates` tokens differ by so little that they are equal in int8."""
    weight, bias, hidden = size * normal(seed, TOKENS, D), spread * normal(seed + 1, TOKENS), normal(seed + 2, D)
    weight[10 : 10 + duplicates] = weight[9] * (1 + 1e-3 * normal(seed + 3, duplicates, 1))
    expected = reference_logits(weight, bias, hidden)
    for use_shortlist in (True, False):
        head = SingleOutputHead(weight, bias)
        head._use_shortlist = use_shortlist
        token = head.argmax(hidden.numpy())
        assert expected[token] >= expected.max() - 1e-5 * (1 + expected.max().abs())


@given(seed=st.integers(0, 2**31), size=st.sampled_from([1e-3, 0.1, 3.0]))
@settings(max_examples=100, deadline=None)
def test_shortlist_contains_the_argmax(seed: int, size: float) -> None:
    weight, bias, hidden = size * normal(seed, TOKENS, D), 0.1 * normal(seed + 1, TOKENS), normal(seed + 2, D)
    weight[100:120] = weight[:20] + 1e-3 * size * normal(seed + 3, 20, D)
    candidates = Int8Shortlist(weight, bias)(hidden.numpy())
    assert candidates is not None
    assert int(reference_logits(weight, bias, hidden).argmax()) in candidates


def test_shortlist_is_short() -> None:
    weight, bias = 0.1 * normal(1, 5000, 128), torch.zeros(5000)
    shortlist = Int8Shortlist(weight, bias)
    results = [shortlist(normal(seed, 128).numpy()) for seed in range(50)]
    counts = [len(candidates) for candidates in results if candidates is not None]
    assert len(counts) == 50
    assert np.mean(counts) < 20


def test_equal_logits_give_no_shortlist() -> None:
    assert Int8Shortlist(torch.zeros(1000, D), torch.zeros(1000))(np.ones(D, np.float32)) is None
    assert SingleOutputHead(torch.zeros(1000, D), torch.zeros(1000)).argmax(np.ones(D, np.float32)) == min(
        {*range(4)} - {PAD, START}
    )


@pytest.mark.parametrize("use_shortlist", [True, False])
def test_argmax_is_never_padding_or_start(use_shortlist: bool) -> None:
    weight, hidden = 0.01 * normal(1, TOKENS, D), normal(2, D)
    weight[PAD], weight[START], weight[7] = 3 * hidden, 2 * hidden, hidden
    head = SingleOutputHead(weight, torch.zeros(TOKENS))
    head._use_shortlist = use_shortlist
    assert head.argmax(hidden.numpy()) == 7


@pytest.mark.parametrize("use_shortlist", [True, False])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_an_error(use_shortlist: bool, bad: float) -> None:
    weight, hidden = normal(1, TOKENS, D), normal(2, D)
    for tensor in (weight, hidden):
        original = tensor.clone()
        tensor.view(-1)[5] = bad
        head = SingleOutputHead(weight, torch.zeros(TOKENS))
        head._use_shortlist = use_shortlist
        with pytest.raises(RunError, match="output is NaN or infinite"), np.errstate(all="ignore"):
            head.argmax(hidden.numpy())
        with pytest.raises(RunError, match="output is NaN or infinite"):
            head.log_probs(hidden.numpy())
        tensor.copy_(original)


def test_log_probs_equal_log_softmax() -> None:
    weight, bias, hidden = normal(1, TOKENS, D), normal(2, TOKENS), normal(3, D)
    log_probs = torch.from_numpy(SingleOutputHead(weight, bias).log_probs(hidden.numpy()))
    torch.testing.assert_close(log_probs, (weight @ hidden + bias).log_softmax(0), rtol=1e-5, atol=1e-5)
