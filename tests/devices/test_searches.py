"""Every search runs on a GPU, fused and with modules: shown on a simulated one (see `simulated`)."""

import copy
from typing import cast

import numpy as np
import pytest
import torch

from contracts.checks.common import perturbed
from contracts.test_models import every_variant
from contracts.variants import Variant, named
from devices.simulated import CUDA, simulated_device
from saccade.data.batches import Padded
from saccade.data.tokenizers import END
from saccade.decode.constraints import Constraints
from saccade.decode.loops import ScoredTokens, StepModel, run_search
from saccade.decode.search import Beam, Greedy, Sample, Search
from saccade.decode.torch_engine import FusedModel, PromptedDecoder, UnfusedDecoder
from saccade.devices import CPU
from saccade.models.assemble import Model

pytestmark = pytest.mark.usefixtures("without_shape_checks")
SEARCHES: dict[str, Search] = {"greedy": Greedy(), "beam": Beam(size=3, best=2), "sample": Sample(top_k=5)}
SOURCES, LONGEST = [[4, 5, 6], [5], [6, 4]], [5, 3, 4]
PREFIXES = [[], [6, 4], [5]]


def outputs(
    model: Model, fused: bool, search: Search, device: torch.device, rows: int
) -> dict[int, list[ScoredTokens]]:
    """The hypotheses of the first sources, searched on the device."""
    source = Padded.of([np.array([*ids, END]) for ids in SOURCES[:rows]]).to(device)
    constraints = Constraints.of(LONGEST[:rows], PREFIXES[:rows]).to(device)
    with torch.inference_mode():
        decoder: StepModel
        if fused:
            decoder = FusedModel(model)
            memory = decoder.encode(source)
        else:
            decoder = PromptedDecoder(model) if model.encoder is None else UnfusedDecoder(model)
            memory = source if model.encoder is None else model.encode(source.values, source.keep)
        return dict(run_search(search, decoder, memory, constraints, list(range(rows))))


def check_search_on_device(model: Model, fused: bool, name: str, rows: int = 3) -> list[str]:
    """A search on the simulated device has the result of one on the CPU. Returns what the CPU waited for."""
    expected = outputs(model, fused, SEARCHES[name], CPU, rows)
    with simulated_device() as device:
        found = outputs(cast(Model, copy.deepcopy(model).to(CUDA)), fused, SEARCHES[name], CUDA, rows)
    assert found.keys() == expected.keys()
    for row, hypotheses in expected.items():
        assert [h.tokens for h in found[row]] == [h.tokens for h in hypotheses]
        assert [h.log_prob for h in found[row]] == pytest.approx([h.log_prob for h in hypotheses], rel=1e-4)
    return device.reads


@every_variant
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "modules"])
def test_beam_search_on_device_equals_that_on_cpu(variant: Variant, fused: bool) -> None:
    check_search_on_device(perturbed(variant.fresh()).eval(), fused, "beam")


@pytest.mark.parametrize("label", ["default", "decoder-only-rotary", "recurrent-lstm-after-fed"])
@pytest.mark.parametrize("name", ["greedy", "sample"])
@pytest.mark.parametrize("rows", [1, 3])
def test_other_searches_on_device_equal_those_on_cpu(label: str, name: str, rows: int) -> None:
    check_search_on_device(perturbed(named(label).fresh()).eval(), True, name, rows)


def test_step_of_search_waits_for_the_device_a_few_times_only() -> None:
    """A beam of at most five steps: each step checks that its result is finite, and reads which hypotheses ended."""
    reads = check_search_on_device(perturbed(named("default").fresh()).eval(), True, "beam")
    assert len(reads) <= 10 * 5


def test_planted_defect_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of positions that stays on the CPU."""
    monkeypatch.setattr("saccade.decode.fused.FusedEmbedding.encodings", lambda self, count: torch.zeros(40, 22))
    with pytest.raises(RuntimeError, match="two devices"):
        check_search_on_device(perturbed(named("default").fresh()).eval(), True, "beam")
