"""Properties of single position encodings."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.checks.common import assert_close, assert_differs, perturbed, progress
from contracts.checks.positions import check_position
from saccade.errors import BuildError, SaccadeError
from saccade.models.blocks import Standard
from saccade.parts import MultiHead, Unprojected
from saccade.parts.positions import NO_POSITION, Learned, Position, Role, Rotary, Sinusoidal, T5Bias
from saccade.places import Memory, Places

B, T, D = 3, 7, 22
RELATIVE = [lambda causal: Rotary(), lambda causal: T5Bias(D, causal, buckets=8, max_distance=5)]


@pytest.mark.parametrize("make", RELATIVE, ids=["rotary", "t5"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mixer", [MultiHead, Unprojected])
def test_shifting_all_positions_changes_nothing(make: Any, causal: bool, mixer: Any) -> None:
    torch.manual_seed(0)
    options = {"heads": 2} if mixer is MultiHead else {}
    attention, x = perturbed(mixer(D, causal, position=make(causal), **options)), torch.randn(B, T, D)
    outputs = [attention(x, Places.of(x, None, progress(first)), attention.start(None, B))[0] for first in (0, 1000)]
    assert_close(outputs[1], outputs[0], "the output after a shift", 1e-3)
    places = Places.of(x, None)
    stretched = Places(places.keep, 2 * places.at, False, 2 * places.end)
    assert_differs(attention(x, stretched, attention.start(None, B))[0], outputs[0], "other distances")


def test_rotary_positions_keep_lengths_and_leave_position_0_as_it_is() -> None:
    x = torch.randn(B, 2, T, 11)
    rotary = Rotary(share=0.8).for_attention(2, 11, causal=True)
    turned = rotary.turn(x, Places.of(x[:, 0], None), "query")
    assert_close(turned.norm(dim=-1), x.norm(dim=-1), "the length")
    assert torch.equal(turned[:, :, 0], x[:, :, 0])
    assert torch.equal(turned[..., 8:], x[..., 8:]), "values outside of the share were turned"
    assert_differs(turned[:, :, 1:, :8], x[:, :, 1:, :8], "the angle")


def test_rotary_positions_need_at_least_one_pair() -> None:
    with pytest.raises(BuildError, match="less than one pair"):
        MultiHead(D, heads=2, position=Rotary(share=0.1))


def test_t5_bias_is_shared_from_the_largest_distance_on() -> None:
    bias = T5Bias(D, causal=False).for_attention(2, 11, causal=False)
    x = torch.zeros(1, 200, D)
    biases = bias.bias(x.view(1, 2, 200, 11), Places.of(x, None), Places.of(x, None))
    far = biases[0, :, 0, 128:]
    assert torch.equal(far, far[:, :1].expand_as(far))
    assert len(biases[0, 0, 0].unique()) == 16, "distance 0 and 15 buckets after the query"
    assert len(biases[0, 0].unique()) == 31


def test_t5_bias_needs_equal_heads_in_all_layers() -> None:
    bias = T5Bias(D)
    MultiHead(D, heads=2, position=bias)
    with pytest.raises(BuildError, match=r"has 11 heads, but .* each of 2 heads"):
        MultiHead(D, heads=11, position=bias)


@pytest.mark.parametrize(("buckets", "max_distance"), [(30, 128), (32, 8)])
def test_t5_bias_rejects_sizes_without_logarithmic_buckets(buckets: int, max_distance: int) -> None:
    with pytest.raises(BuildError, match="max_distance above"):
        T5Bias(D, buckets=buckets, max_distance=max_distance)


@pytest.mark.parametrize("position", [Sinusoidal(D), Learned(D)])
def test_encoding_that_only_embeds_is_no_concern_of_attention(position: Position) -> None:
    assert MultiHead(D, heads=2, position=position).position is NO_POSITION


def test_cross_attention_has_no_positions() -> None:
    mixer = partial(MultiHead, heads=2)
    block = Standard(D, causal=True, cross_attention=True, position=Rotary(), self_=mixer, cross=mixer)
    assert isinstance(block.get_submodule("self.position"), Rotary)
    assert block.get_submodule("cross.position") is NO_POSITION


@pytest.mark.parametrize("mixer", [partial(MultiHead, heads=2), Unprojected])
@pytest.mark.parametrize("make", RELATIVE, ids=["rotary", "t5"])
def test_cross_attention_refuses_a_position_encoding_inside_attention(mixer: Any, make: Any) -> None:
    states = torch.randn(B, T, D)
    with pytest.raises(SaccadeError, match="cross-attention has no position encoding"):
        mixer(D, position=make(False)).start(Memory(states, Places.of(states, None)), B)


class Shaw(Position):
    """Relative positions of Shaw et al. 2018, which use `bias` and `gather`; `turn` adds to the values."""

    def __init__(self, width: int, reach: int):
        super().__init__()
        self.keys, self.values = (nn.Parameter(torch.randn(2 * reach + 1, width)) for _ in range(2))
        self.reach = reach

    def turn(self, x: Tensor, places: Places, role: Role) -> Tensor:
        return x + places.at[:, None, :, None] if role == "value" else x

    def bias(self, query: Tensor, queries: Places, keys: Places) -> Tensor:
        return torch.einsum("bhtk,btsk->bhts", query, self.keys[self._index(queries, keys)])

    def gather(self, weights: Tensor, queries: Places, keys: Places) -> Tensor:
        return torch.einsum("bhts,btsk->bhtk", weights, self.values[self._index(queries, keys)])

    def _index(self, queries: Places, keys: Places) -> Tensor:
        return (keys.at[:, None] - queries.at[:, :, None]).clamp(-self.reach, self.reach) + self.reach


@pytest.mark.parametrize("causal", [False, True])
def test_attention_adds_what_a_position_turns_and_biases_and_gathers(causal: bool) -> None:
    """e_ij = q_i (k_j + a_c) / √K and z_i = Σ_j softmax(e)_ij (v_j + j + b_c) with c = clip(j − i)."""
    torch.manual_seed(0)
    position = Shaw(11, reach=2)
    attention, x = perturbed(MultiHead(D, causal, heads=2, position=position)), torch.randn(B, T, D)
    actual, _ = attention(x, Places.of(x, None), attention.start(None, B))
    q, k, v = (part(x).view(B, T, 2, 11) for part in (attention.query, attention.key, attention.value))
    z = torch.zeros(B, T, 2, 11)
    for i in range(T):
        keys = range(i + 1 if causal else T)
        c = [min(max(j - i, -2), 2) + 2 for j in keys]
        e = torch.stack([(q[:, i] * (k[:, j] + position.keys[c[j]])).sum(-1) for j in keys], -1) / math.sqrt(11)
        weights = e.softmax(-1)
        z[:, i] = sum(weights[..., j, None] * (v[:, j] + j + position.values[c[j]]) for j in keys)
    assert_close(actual, attention.out(z.flatten(2)), "the output")


def test_position_of_the_tests_satisfies_the_contract() -> None:
    check_position(lambda causal: Shaw(11, reach=2))
