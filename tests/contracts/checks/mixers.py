"""The contract of a mixer: self-attention, cross-attention, and zeros for a query whose keys are all masked."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import nn

from contracts.checks.common import SOURCE_LENGTHS, assert_close, assert_differs, padding_mask, perturbed, progress
from contracts.checks.running import samples_attention
from contracts.variants import B, D, S, T
from saccade.notes import capture
from saccade.places import Memory, Places


def check_mixer(make: Callable[[bool], nn.Module]) -> None:
    """Self-attention keeps the shape of its input, also in a later step. If all keys are padding, the output is the
    last projection of zeros, and all gradients are finite; padding has no gradient. `make(causal)` builds the
    mixer."""
    generator = torch.Generator().manual_seed(0)
    x, states = torch.randn(B, T, D, generator=generator), torch.randn(B, S, D, generator=generator)
    for causal in (False, True):
        mixer = perturbed(make(causal)).eval()
        y, state = mixer(x, Places.of(x, None), mixer.start(None, B))
        assert y.shape == x.shape
        later, _ = mixer(x[:, :2], Places.of(x[:, :2], None, progress(T)), state)
        assert later.shape == (B, 2, D)
    keep = padding_mask(SOURCE_LENGTHS)
    keep[1] = False
    mixer = perturbed(make(False))
    for capturing in (False, True):
        mixer.train().zero_grad()
        leaf, memory_leaf = x.clone().requires_grad_(), states.clone().requires_grad_()
        with capture(mixer) if capturing else nullcontext():
            memory = Memory(memory_leaf, Places.of(states, keep), memory_leaf[:, 0])
            y, _ = mixer(leaf, Places.of(leaf, None), mixer.start(memory, B))
        zeros = mixer.out(torch.zeros(T, D))  # the last projection of every mixer is `out`
        assert_close(y[1], zeros, "the output where all keys are padding")
        assert_differs(y[0], zeros, "a memory that is not all padding")
        y.square().sum().backward()
        gradients = {"memory": memory_leaf.grad} | ({} if samples_attention(mixer) else {"x": leaf.grad})
        for name, gradient in gradients.items():
            assert gradient is not None, f"{name} has no gradient"
            assert gradient.isfinite().all(), f"the gradient of {name} is not finite"
        assert not memory_leaf.grad[1].any(), "padding has a gradient"
