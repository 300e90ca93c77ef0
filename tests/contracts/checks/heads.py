"""The contract of a head: the loss of hidden states, computed in chunks, without all logits in memory."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from contracts.checks.common import assert_close
from contracts.variants import D
from saccade.parts.token_costs import CROSS_ENTROPY, TokenCost


def check_head_loss(owner: nn.Module, head: Any, rows: int, vocabulary: int, cost: TokenCost = CROSS_ENTROPY) -> None:
    """The loss and its gradients equal those of torch's cross-entropy on `log_probs` with the terms of `cost`; the cost
    per token is the plain cross-entropy. `owner` contains every weight that the head uses."""
    generator = torch.Generator().manual_seed(rows)
    target = torch.randint(vocabulary, (rows,), generator=generator)
    start = torch.randn(rows, D, generator=generator)
    gradients = []
    for own_loss in (True, False):
        owner.zero_grad()
        hidden = start.clone().requires_grad_()
        if own_loss:
            total, costs = head.loss(hidden, target, cost)
        else:
            log_probs = head.log_probs(hidden)
            expected = F.cross_entropy(log_probs, target, reduction="sum", label_smoothing=cost.smoothing)
            if cost.r_drop:
                expected = expected + cost.r_drop * symmetric_kl(log_probs[::2], log_probs[1::2])
            assert_close(total.detach(), expected.detach(), "the loss", 1e-5)
            per_token = F.nll_loss(log_probs, target, reduction="none").detach()
            assert_close(costs, per_token, "the cost per token", 1e-5)
            total = expected
        (0.37 * total).backward()  # the training loop may scale the loss before the backward pass
        gradients.append({"hidden": hidden.grad} | {name: weight.grad for name, weight in owner.named_parameters()})
    assert not costs.requires_grad, "the cost per token has a gradient"
    for name, expected_gradient in gradients[1].items():
        gradient = gradients[0][name]
        assert (gradient is None) == (expected_gradient is None), f"{name} should have a gradient, or should have none"
        if expected_gradient is not None:
            assert_close(gradient, expected_gradient, f"the gradient of {name}", 1e-5)


def symmetric_kl(first: Tensor, second: Tensor) -> Tensor:
    """(KL(p‖q) + KL(q‖p)) / 2, summed over rows of log-probabilities."""
    total = F.kl_div(second, first, reduction="sum", log_target=True) + F.kl_div(
        first, second, reduction="sum", log_target=True
    )
    return total / 2


class LargestTensor(TorchDispatchMode):
    """Records the size of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.numel = max([self.numel, *(t.numel() for t in tree_leaves(out) if isinstance(t, Tensor))])
        return out


def check_head_memory(head: Any, rows: int, vocabulary: int) -> None:
    """No tensor that computing the loss creates has half the size of all logits."""
    hidden = torch.randn(rows, D).requires_grad_()
    with LargestTensor() as largest:
        head.loss(hidden, torch.randint(vocabulary, (rows,)), TokenCost(0.1))[0].backward()
    assert largest.numel >= rows * D, "no operation was recorded"
    logits = rows * vocabulary
    assert largest.numel < logits / 2, f"a tensor has {largest.numel} values; all logits have {logits}"


class MatrixProducts(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += any(name in str(func) for name in ("mm", "linear"))
        return func(*args, **(kwargs or {}))


def check_head_without_gradients(head: Any, vocabulary: int, chunk: int) -> None:
    """Without gradients the loss takes one matrix product per chunk."""
    with torch.inference_mode(), MatrixProducts() as products:
        head.loss(torch.randn(5 * chunk, D), torch.randint(vocabulary, (5 * chunk,)))
    assert products.count == 5, f"{products.count} matrix products for 5 chunks"
