"""Every model and every task can be trained on a GPU: shown on a simulated one (see `simulated`)."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from contracts.checks.common import perturbed
from contracts.checks.running import samples_attention, small_corpus
from contracts.test_models import every_variant
from contracts.variants import DEFAULT, NO_DROPOUT, Variant
from devices.updates import check_update
from saccade.data.batches import COLLATE_LABELS, Corpus
from saccade.inputs import Frames
from saccade.models.assemble import Model, assemble
from saccade.optim.optimizers import OPTIMIZERS
from saccade.parts.connections import PreNorm
from saccade.tasks.classification import Classification
from saccade.tasks.guides import GuidedHead
from saccade.tasks.labeling import Labeling
from saccade.tasks.tagging import Tagging
from saccade.tasks.translation import Translation

pytestmark = pytest.mark.usefixtures("without_shape_checks")


@every_variant
def test_update_on_device_equals_update_on_cpu(variant: Variant) -> None:
    model = perturbed(variant.fresh())
    task = Translation(has_encoder=model.encoder is not None)
    check_update(model, task, same_values=not samples_attention(model), batch_rows=[(0, 1, 2, 3)])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_updates_on_device(optimizer: str) -> None:
    check_update(perturbed(DEFAULT.fresh()), Translation(), optimizer=optimizer)


def test_dropout_masks_are_drawn_on_device() -> None:
    model = DEFAULT.changed(dropout=dict.fromkeys(NO_DROPOUT, 0.3)).fresh()
    check_update(model, Translation(), same_values=False)


def test_r_drop_on_device() -> None:
    check_update(perturbed(DEFAULT.fresh()), Translation(r_drop=2.0))


def test_guided_head_on_device() -> None:
    model = perturbed(DEFAULT.fresh())
    corpus = small_corpus(model)
    corpus.links = [np.array([[0, 0, 1.0]], dtype=np.float32)] * len(corpus)
    for step in ("input", "output"):
        check_update(model, Translation(guide=lambda step=step: GuidedHead(step=step)), corpus)


def label_model(task: type[Labeling], **changes: Any) -> Model:
    torch.manual_seed(0)
    config = DEFAULT.changed(decoder="none", head="linear", **changes).config
    return perturbed(assemble(config, Frames(3), 5, task.reads))


@pytest.mark.parametrize("task", [Tagging, Classification])
@pytest.mark.parametrize("kind", ["stacked", "recurrent"])
def test_label_tasks_update_on_device(task: type[Labeling], kind: str) -> None:
    encoder = (DEFAULT.tree["encoder"] if kind == "stacked" else {"kind": kind}) | {"embedding": "series"}
    random = np.random.default_rng(0)
    lengths = (4, 2, 5, 3)
    frames = [random.normal(size=(length, 3)).astype(np.float32) for length in lengths]
    labels = [random.integers(5, size=length if task is Tagging else 1) for length in lengths]
    check_update(label_model(task, encoder=encoder), task(smoothing=0.1), Corpus(frames, labels, COLLATE_LABELS))


def test_update_waits_for_the_device_a_few_times_only() -> None:
    """Twice for each of the two batches (the padding of each, and its loss), and once for the norm of the gradients."""
    assert len(check_update(perturbed(DEFAULT.fresh()), Translation())) <= 7


# ── planted defects ───────────────────────────────────────────────────────────────────────────────


class _OwnMask(torch.nn.Module):
    """A norm that makes a tensor on the CPU."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.ones(x.shape[-1])


class _NewOnCpu(torch.nn.Module):
    """A norm that makes a tensor like its input, but says that it is on the CPU."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x.new_zeros(1) + x.new_zeros(x.shape[-1], device="cpu")


class _ThroughNumpy(torch.nn.Module):
    """A norm that computes with NumPy."""

    def forward(self, x: Tensor) -> Tensor:
        return x * float(np.abs(x.detach().numpy()).max())


class _CpuGradient(torch.autograd.Function):
    """Its gradient is made on the CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * torch.ones(grads[0].shape)


class _OwnGradient(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return _CpuGradient.apply(x)


@pytest.mark.parametrize("defect", [_OwnMask, _NewOnCpu, _ThroughNumpy, _OwnGradient])
def test_planted_defect_is_noticed(defect: type[torch.nn.Module]) -> None:
    model = DEFAULT.fresh()
    residual = model.get_submodule("encoder.layers.0.residual_self")
    assert isinstance(residual, PreNorm)
    residual.norm = defect()
    with pytest.raises((RuntimeError, TypeError), match=r"two devices|can't convert cuda"):
        check_update(model, Translation())


def test_weight_that_stays_on_the_cpu_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = DEFAULT.fresh()
    table = model.get_parameter("encoder.embedding.table.weight").detach()
    monkeypatch.setattr("torch.nn.Embedding.forward", lambda self, ids: torch.nn.functional.embedding(ids, table))
    with pytest.raises(RuntimeError, match="two devices"):
        check_update(model, Translation())
