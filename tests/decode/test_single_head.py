"""The argmax word of a head, found in eight bits, is the one that 32 bits find."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.tokenizers import PAD, START
from saccade.decode.single_head import Int8Shortlist, SingleOutputHead
from saccade.errors import RunError

WORDS, D = 200, 24


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def plainly(weight: torch.Tensor, bias: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    logits = (weight.double() @ hidden.double() + bias.double()).float()
    logits[[PAD, START]] = -torch.inf
    return logits


@given(
    seed=st.integers(0, 2**31),
    size=st.sampled_from([1e-4, 0.1, 3.0]),
    spread=st.sampled_from([0.0, 0.01, 1.0]),
    twins=st.integers(0, 150),
)
@settings(max_examples=150, deadline=None)
def test_no_word_is_likelier(seed: int, size: float, spread: float, twins: int) -> None:
    """`twins` words differ by so little that eight bits cannot tell them apart."""
    weight, bias, hidden = size * drawn(seed, WORDS, D), spread * drawn(seed + 1, WORDS), drawn(seed + 2, D)
    weight[10 : 10 + twins] = weight[9] * (1 + 1e-3 * drawn(seed + 3, twins, 1))
    expected = plainly(weight, bias, hidden)
    for sifts in (True, False):
        head = SingleOutputHead(weight, bias)
        head._use_shortlist = sifts
        found = head.argmax(hidden.numpy())
        assert expected[found] >= expected.max() - 1e-5 * (1 + expected.max().abs())


@given(seed=st.integers(0, 2**31), size=st.sampled_from([1e-3, 0.1, 3.0]))
@settings(max_examples=100, deadline=None)
def test_the_sieve_holds_every_word_that_can_be_it(seed: int, size: float) -> None:
    weight, bias, hidden = size * drawn(seed, WORDS, D), 0.1 * drawn(seed + 1, WORDS), drawn(seed + 2, D)
    weight[100:120] = weight[:20] + 1e-3 * size * drawn(seed + 3, 20, D)
    left = Int8Shortlist(weight, bias)(hidden.numpy())
    assert left is not None
    assert int(plainly(weight, bias, hidden).argmax()) in left


def test_it_lets_few_words_through() -> None:
    weight, bias = 0.1 * drawn(1, 5000, 128), torch.zeros(5000)
    sieve = Int8Shortlist(weight, bias)
    counts = [len(left) for seed in range(50) if (left := sieve(drawn(seed, 128).numpy())) is not None]
    assert len(counts) == 50
    assert np.mean(counts) < 20


def test_where_all_are_alike_it_gives_up() -> None:
    assert Int8Shortlist(torch.zeros(1000, D), torch.zeros(1000))(np.ones(D, np.float32)) is None
    assert SingleOutputHead(torch.zeros(1000, D), torch.zeros(1000)).argmax(np.ones(D, np.float32)) == min(
        {*range(4)} - {PAD, START}
    )


@pytest.mark.parametrize("sifts", [True, False])
def test_neither_padding_nor_a_start_is_written(sifts: bool) -> None:
    weight, hidden = 0.01 * drawn(1, WORDS, D), drawn(2, D)
    weight[PAD], weight[START], weight[7] = 3 * hidden, 2 * hidden, hidden
    head = SingleOutputHead(weight, torch.zeros(WORDS))
    head._use_shortlist = sifts
    assert head.argmax(hidden.numpy()) == 7


@pytest.mark.parametrize("sifts", [True, False])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_told(sifts: bool, bad: float) -> None:
    weight, hidden = drawn(1, WORDS, D), drawn(2, D)
    for spoiled in (weight, hidden):
        held = spoiled.clone()
        spoiled.view(-1)[5] = bad
        head = SingleOutputHead(weight, torch.zeros(WORDS))
        head._use_shortlist = sifts
        with pytest.raises(RunError, match="not finite"), np.errstate(all="ignore"):
            head.argmax(hidden.numpy())
        with pytest.raises(RunError, match="not finite"):
            head.log_probs(hidden.numpy())
        spoiled.copy_(held)


def test_log_probs_are_the_softmax() -> None:
    weight, bias, hidden = drawn(1, WORDS, D), drawn(2, WORDS), drawn(3, D)
    found = torch.from_numpy(SingleOutputHead(weight, bias).log_probs(hidden.numpy()))
    torch.testing.assert_close(found, (weight @ hidden + bias).log_softmax(0), rtol=1e-5, atol=1e-5)
