"""Training, resuming and all uses of a run on a GPU: shown on a simulated one (see `simulated`)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from devices.simulated import SimulatedDevice, simulated_device
from saccade import api
from saccade.errors import ConfigError
from saccade.recipe import Recipe, recipe_of
from saccade.training.loop import train
from training.helpers import Recorder, train_run

TEXT: dict[str, Any] = {
    "data": {
        split: {"kind": "copy", "rows": rows, "shortest": 1, "longest": 4, "symbols": 6, "split": split}
        for split, rows in (("train", 30), ("dev", 3), ("test", 4))
    }
    | {"tokenizer": "words", "longest": 20},
    "model": {
        "dim": 16,
        "block": {"self": {"heads": 2}, "cross": {"heads": 2}, "feed_forward": {"inner": 16}},
        "encoder": {"depth": 1},
        "decoder": {"depth": 1},
    },
    "train": {"updates": 4, "batch_tokens": 40, "validate_every": 2, "log_every": 2, "average": 2},
}


class DeviceGenerator:
    """Stands for the random generator of the GPU: its state, which checkpoints hold."""

    def __init__(self) -> None:
        self.state = torch.arange(16, dtype=torch.uint8)

    def get(self, device: torch.device) -> Tensor:
        return self.state

    def set(self, state: Tensor, device: torch.device) -> None:
        self.state = state


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, without_shape_checks: None) -> Iterator[SimulatedDevice]:
    """A machine with a GPU."""
    monkeypatch.setattr("saccade.devices._is_available", lambda kind: kind in ("cpu", "cuda"))
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    with simulated_device() as device:
        yield device


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> DeviceGenerator:
    generator = DeviceGenerator()
    monkeypatch.setattr("torch.cuda.get_rng_state", generator.get)
    monkeypatch.setattr("torch.cuda.set_rng_state", generator.set)
    return generator


def text_recipe(**changes: Any) -> Recipe:
    return recipe_of(TEXT, changes)


def weights(run: Path) -> dict[str, Tensor]:
    return load_file(run / "checkpoints" / "step-0000004" / "weights.safetensors")


def test_training_on_device_has_the_result_of_training_on_cpu(
    tmp_path: Path, gpu: SimulatedDevice, generator: DeviceGenerator
) -> None:
    for device in ("cpu", "cuda"):
        train(
            text_recipe(model={"dropout": {"residual": 0.0, "embedding": 0.0}}, train={"device": device}),
            tmp_path / device,
            Recorder(),
        )
    on_cpu, on_device = weights(tmp_path / "cpu"), weights(tmp_path / "cuda")
    for name, tensor in on_cpu.items():
        if "key.bias" not in name:  # its gradient is zero up to rounding, which AdamW makes large
            torch.testing.assert_close(on_device[name], tensor, rtol=1e-2, atol=1e-4, msg=name)


def test_resume_on_device_restores_the_state_of_its_generator(
    tmp_path: Path, gpu: SimulatedDevice, generator: DeviceGenerator
) -> None:
    run = tmp_path / "run"
    train_run(text_recipe(), run, until=3)
    generator.state = torch.zeros(16, dtype=torch.uint8)
    warnings = train_run(text_recipe(), run).warnings
    assert torch.equal(generator.state, torch.arange(16, dtype=torch.uint8))
    assert warnings == []


def test_resume_on_another_device_warns(tmp_path: Path, gpu: SimulatedDevice, generator: DeviceGenerator) -> None:
    run = tmp_path / "run"
    train_run(text_recipe(train={"device": "cuda"}), run, until=3)
    warnings = train_run(text_recipe(train={"device": "cpu"}), run, allow_change=True).warnings
    assert warnings == ["warning: the result will not be bit-exact: device changed from cuda to cpu"]


def test_trained_run_is_used_on_device(tmp_path: Path, gpu: SimulatedDevice, generator: DeviceGenerator) -> None:
    train(text_recipe(train={"device": "cpu"}), tmp_path / "run", Recorder())
    on_cpu, on_device = (api.load(tmp_path / "run", device=device) for device in ("cpu", "auto"))
    texts, pairs = ["a b", "", "c"], [("a b", "b a"), ("c", "c")]
    uses: dict[str, Callable[[api.Run], Any]] = {
        "beam": lambda run: run.translate(texts, beam=2),
        "greedy": lambda run: run.translate(texts, beam=1),
        "single": lambda run: run.translate(texts[:1], beam=1),
        "align": lambda run: run.align(pairs),
    }
    for name, use in uses.items():
        assert use(on_device) == use(on_cpu), name
    assert on_device.score(pairs) == pytest.approx(on_cpu.score(pairs), rel=1e-4)
    maps = [run.attention("a b", "b a").maps for run in (on_device, on_cpu)]
    for name, attention_map in maps[1].items():
        np.testing.assert_allclose(maps[0][name].weights, attention_map.weights, rtol=1e-4, atol=1e-6)
    scores = [run.evaluate() for run in (on_device, on_cpu)]
    assert scores[0]["perplexity"] == pytest.approx(scores[1]["perplexity"], rel=1e-4)
    assert "copy to the CPU" in gpu.reads


@pytest.mark.parametrize("task", ["tagging", "classification"])
def test_labels_are_predicted_on_device(
    task: str, tmp_path: Path, gpu: SimulatedDevice, generator: DeviceGenerator
) -> None:
    recipe = recipe_of(label_recipe(task, tmp_path))
    train(recipe, tmp_path / "run", Recorder())
    on_cpu, on_device = (api.load(tmp_path / "run", device=device) for device in ("cpu", "cuda"))
    if task == "tagging":
        assert on_device.tag(["a b a b a", "b"]) == on_cpu.tag(["a b a b a", "b"])
    else:
        for found, expected in zip(*(run.probabilities(["a b", "b"]) for run in (on_device, on_cpu)), strict=True):
            assert found == pytest.approx(expected, rel=1e-4)


def label_recipe(task: str, folder: Path) -> dict[str, Any]:
    """A small recipe for a task that predicts labels, with its data."""
    kind, text = ("columns", "a\tX\nb\tY\n\nb\tY\n\n" * 4) if task == "tagging" else ("labeled", "X\ta b\nY\tb\n" * 4)
    (folder / "data.txt").write_text(text, "utf-8")
    source = {"kind": kind, "file": "data.txt"}
    return {
        "data": {"folder": str(folder), "tokenizer": "words", "longest": 4}
        | dict.fromkeys(("train", "dev", "test"), source),
        "task": task,
        "model": {"dim": 16, "head": "linear"}
        | {"encoder": {"depth": 1, "block": {"self": {"heads": 2}, "feed_forward": {"inner": 16}}}},
        "train": {"updates": 2, "batch_tokens": 16, "validate_every": 2, "log_every": 2},
    }


def test_engines_without_torch_refuse_a_gpu(tmp_path: Path, gpu: SimulatedDevice, generator: DeviceGenerator) -> None:
    train(text_recipe(), tmp_path / "run", Recorder())
    with pytest.raises(ConfigError, match=r'^device: "cuda" needs engine = "torch", got engine = "ctranslate2"'):
        api.load(tmp_path / "run", engine="ctranslate2", device="cuda")
