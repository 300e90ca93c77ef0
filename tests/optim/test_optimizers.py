"""Muon against torch's implementation, and which weights it updates."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from contracts.variants import named
from saccade.errors import BuildError
from saccade.optim.muon import compute_dtype, orthogonalized
from saccade.optim.optimizers import muon

SHAPES = [(8, 8), (16, 8), (8, 16), (8, 8)]


def updated(weights: list[nn.Parameter], optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The weights after six updates with random gradients and a decreasing learning rate."""
    generator = torch.Generator().manual_seed(1)
    for step in range(6):
        for group in optimizer.param_groups:
            group["lr"] = 0.02 / (1 + step)
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=generator)
        optimizer.step()
    return [weight.detach() for weight in weights]


def test_updates_of_matrices_equal_those_of_torchs_muon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.optim.muon.compute_dtype", lambda _: torch.bfloat16)  # torch's Muon always uses it
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(columns, rows, bias=False) for rows, columns in SHAPES)
    our_weights = [layer.weight for layer in layers]
    their_weights = [nn.Parameter(weight.detach().clone()) for weight in our_weights]
    torch_muon = torch.optim.Muon(their_weights, momentum=0.9, weight_decay=0.3, adjust_lr_fn="match_rms_adamw")
    layers.append(nn.LayerNorm(3))  # AdamW needs at least one parameter
    ours = updated(our_weights, muon(layers, momentum=0.9, weight_decay=0.3))
    for actual, expected in zip(ours, updated(their_weights, torch_muon), strict=True):
        torch.testing.assert_close(actual, expected, atol=2e-3, rtol=0)


@pytest.mark.parametrize("shape", [(3, 6, 6), (2, 5, 9), (2, 9, 5)], ids=str)
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32], ids=str)
def test_orthogonalized_matrices_have_singular_values_near_one_and_the_same_singular_vectors(
    shape: tuple[int, ...], precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saccade.optim.muon.compute_dtype", lambda _: precision)
    torch.manual_seed(0)
    matrices = torch.linalg.qr(torch.randn(shape))[0] * 1e-3
    result = orthogonalized(matrices)
    assert result.dtype == torch.float32
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.6
    assert values.max() < 1.3
    svd = torch.linalg.svd(matrices, full_matrices=False)
    assert (result * (svd.U @ svd.Vh)).sum() > 0.6 * values.numel(), "the singular vectors differ"


def test_embeddings_head_norms_and_biases_are_updated_by_adamw() -> None:
    model = named("default").fresh(0)
    optimizer = muon(model)
    names = {id(weight): name for name, weight in model.named_parameters()}
    muon_names, *adamw_names = [[names[id(weight)] for weight in group["params"]] for group in optimizer.param_groups]
    assert muon_names
    assert all(name.endswith(".weight") and ".layers." in name for name in muon_names)
    assert not [name for name in muon_names if "norm" in name or "embed" in name]
    assert sorted(names.values()) == sorted(muon_names + [name for group in adamw_names for name in group])


class Experts(nn.Module):
    """Two stacks of three matrices, and a kernel that is no stack of matrices."""

    stacked_matrices = ("experts",)

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.Parameter(torch.randn(2, 3, 5, 9))
        self.kernel = nn.Parameter(torch.randn(4, 5, 3))


def test_stacked_matrices_are_updated_as_each_of_them_alone() -> None:
    torch.manual_seed(0)
    experts = Experts()
    layers = nn.ModuleList(nn.Linear(9, 5, bias=False) for _ in range(6))
    with torch.no_grad():
        for layer, matrix in zip(layers, experts.experts.flatten(0, 1), strict=True):
            layer.weight.copy_(matrix)
    optimizers = muon(experts, weight_decay=0.3), muon(nn.ModuleList([*layers, nn.LayerNorm(3)]), weight_decay=0.3)
    for step in range(3):
        gradient = torch.randn(2, 3, 5, 9, generator=torch.Generator().manual_seed(step))
        experts.experts.grad = gradient.clone()
        for layer, own in zip(layers, gradient.flatten(0, 1), strict=True):
            layer.weight.grad = own.clone()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 0.02
            optimizer.step()
    separate = torch.stack([layer.weight.detach() for layer in layers])
    torch.testing.assert_close(experts.experts.detach().flatten(0, 1), separate)


def test_muon_takes_only_the_stacked_matrices_that_a_part_names() -> None:
    model = nn.ModuleDict({"part": Experts(), "head": Experts()})
    taken = {id(weight) for weight in muon(model).param_groups[0]["params"]}
    assert [name for name, weight in model.named_parameters() if id(weight) in taken] == ["part.experts"]


def test_weight_without_gradient_is_not_updated() -> None:
    layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    before = layers[1].weight.detach().clone()
    optimizer = muon(layers, weight_decay=0.1)
    layers[0](torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert torch.equal(layers[1].weight, before)


def test_muon_refuses_sharded_matrices(tmp_path: Path) -> None:
    layer = nn.Linear(3, 3)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/here", rank=0, world_size=1)
    try:
        fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
        experts = fully_shard(Experts(), mesh=init_device_mesh("cpu", (1,)))
        for sharded in (layer, experts):
            with pytest.raises(BuildError, match=r'train\.parallelism = "replicated"'):
                muon(sharded)
    finally:
        torch.distributed.destroy_process_group()


def test_compute_dtype_is_bfloat16_only_if_the_cpu_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for supported, expected in ((True, torch.bfloat16), (False, torch.float32)):
        compute_dtype.cache_clear()
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda supported=supported: {"avx512_bf16": supported})
        assert compute_dtype("cpu") == expected
    compute_dtype.cache_clear()
