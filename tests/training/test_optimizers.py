"""Muon beside torch's own, and which weights it takes."""

from pathlib import Path

import pytest
import torch
from tests.contracts.variants import named
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from saccade.errors import BuildError
from saccade.optim.muon import compute_dtype, orthogonal
from saccade.optim.optimizers import muon

SHAPES = [(8, 8), (16, 8), (8, 16), (8, 8)]


def learned(weights: list[nn.Parameter], optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The weights after a few updates with a rate that changes."""
    draw = torch.Generator().manual_seed(1)
    for step in range(6):
        for group in optimizer.param_groups:
            group["lr"] = 0.02 / (1 + step)
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=draw)
        optimizer.step()
    return [weight.detach() for weight in weights]


def test_matrices_go_where_torchs_muon_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.optim.muon.compute_dtype", lambda _: torch.bfloat16)  # as torch's, on every machine
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(columns, rows, bias=False) for rows, columns in SHAPES)
    mine = [layer.weight for layer in layers]
    theirs = [nn.Parameter(weight.detach().clone()) for weight in mine]
    peer = torch.optim.Muon(theirs, momentum=0.9, weight_decay=0.3, adjust_lr_fn="match_rms_adamw")
    layers.append(nn.LayerNorm(3))  # somebody must be left for AdamW
    ours = learned(mine, muon(layers, momentum=0.9, weight_decay=0.3))
    for one, other in zip(ours, learned(theirs, peer), strict=True):
        torch.testing.assert_close(one, other, atol=2e-3, rtol=0)


@pytest.mark.parametrize("shape", [(3, 6, 6), (2, 5, 9), (2, 9, 5)], ids=str)
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32], ids=str)
def test_singular_values_are_brought_to_one(
    shape: tuple[int, ...], precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saccade.optim.muon.compute_dtype", lambda _: precision)
    torch.manual_seed(0)
    matrices = torch.linalg.qr(torch.randn(shape))[0] * 1e-3
    found = orthogonal(matrices)
    assert found.dtype == torch.float32
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.6
    assert values.max() < 1.3
    whitened = torch.linalg.svd(matrices, full_matrices=False)
    assert (found * (whitened.U @ whitened.Vh)).sum() > 0.6 * values.numel(), "they point elsewhere"


def test_words_head_norms_and_biases_are_adamws() -> None:
    model = named("default").fresh(0)
    optimizer = muon(model)
    names = {id(weight): name for name, weight in model.named_parameters()}
    own, *rest = [[names[id(weight)] for weight in group["params"]] for group in optimizer.param_groups]
    assert own
    assert all(name.endswith(".weight") and ".layers." in name for name in own)
    assert not [name for name in own if "norm" in name or "embed" in name]
    assert sorted(names.values()) == sorted(own + [name for group in rest for name in group])


def test_a_weight_without_a_gradient_stays() -> None:
    layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    before = layers[1].weight.detach().clone()
    optimizer = muon(layers, weight_decay=0.1)
    layers[0](torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert torch.equal(layers[1].weight, before)


def test_a_shard_of_a_matrix_is_refused(tmp_path: Path) -> None:
    layer = nn.Linear(3, 3)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/here", rank=0, world_size=1)
    try:
        fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
        with pytest.raises(BuildError, match=r'train\.ranks = "replicated"'):
            muon(layer)
    finally:
        torch.distributed.destroy_process_group()


def test_bfloat16_only_where_the_machine_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for able, expected in ((True, torch.bfloat16), (False, torch.float32)):
        compute_dtype.cache_clear()
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda able=able: {"avx512_bf16": able})
        assert compute_dtype("cpu") == expected
    compute_dtype.cache_clear()
