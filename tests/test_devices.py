"""The choice of a device and of a precision."""

import typing
from pathlib import Path

import pytest
import torch

from saccade import devices
from saccade.cli import main
from saccade.cli.app import Device
from saccade.devices import CPU, DeviceName, check_precision, choose_device, device_of_rank
from saccade.errors import ConfigError
from saccade.serve.settings import Settings
from saccade.training.loop import train
from saccade.training.progress import Silent


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The kinds of devices that the machine has; a test adds to them."""
    kinds = {"cpu"}
    monkeypatch.setattr(devices, "_is_available", lambda kind: kind in kinds)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", lambda device: None)
    return kinds


@pytest.mark.parametrize(
    ("others", "expected"), [((), "cpu"), (("mps",), "mps"), (("cuda",), "cuda:0"), (("cuda", "mps"), "cuda:0")]
)
def test_auto_is_cuda_then_mps_then_cpu(others: tuple[str, ...], expected: str, machine: set[str]) -> None:
    machine |= {*others}
    assert choose_device("auto", "device") == torch.device(expected)
    assert choose_device("cpu", "device") == CPU


@pytest.mark.parametrize("name", ["cuda", "mps", "tpu"])
def test_absent_device_is_refused(name: DeviceName, machine: set[str]) -> None:
    with pytest.raises(ConfigError, match=rf'^train\.device: this machine has no device "{name}"; use auto or .*\(cpu'):
        choose_device(name, "train.device")


def test_each_rank_has_a_gpu_of_its_own(machine: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_of_rank("auto", "train.device") == CPU
    machine.add("cuda")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert device_of_rank("auto", "train.device") == torch.device("cuda", 1)
    assert device_of_rank("cpu", "train.device") == CPU
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ConfigError, match=r"^train\.device: rank 2 of this machine has no cuda device"):
        device_of_rank("cuda", "train.device")


def test_several_ranks_on_mps_are_refused(machine: set[str]) -> None:
    machine.add("mps")
    assert device_of_rank("auto", "train.device") == CPU
    with pytest.raises(ConfigError, match=r'^train\.device: "mps" cannot be used by several ranks'):
        device_of_rank("mps", "train.device")


def test_bfloat16_is_refused_where_the_device_does_not_compute_it(monkeypatch: pytest.MonkeyPatch) -> None:
    check_precision("bfloat16", CPU, "train.precision")
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: False)
    check_precision("float32", torch.device("cuda", 0), "train.precision")
    with pytest.raises(ConfigError, match=r"^train\.precision: this cuda device does not compute in bfloat16"):
        check_precision("bfloat16", torch.device("cuda", 0), "train.precision")


def test_training_on_an_absent_device_is_refused(tmp_path: Path, machine: set[str]) -> None:
    from saccade.recipe import recipe_of

    with pytest.raises(ConfigError, match=r'^train\.device: this machine has no device "cuda"'):
        train(recipe_of({"extends": "demo"}, {"train": {"device": "cuda"}}), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_command_line_knows_all_devices() -> None:
    names = set(typing.get_args(DeviceName))
    assert {*typing.get_args(typing.get_args(Device)[0])} == names
    assert {*typing.get_args(typing.get_type_hints(Settings)["device"])} == names


def test_gpu_needs_the_torch_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text("", "utf-8")
    for option in (["--engine", "ctranslate2"], ["--quantization", "int8"]):
        assert main(["translate", str(tmp_path), "--device", "cuda", *option]) == 2
        assert "--device cuda needs --engine torch" in capsys.readouterr().err
