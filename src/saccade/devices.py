"""Devices and precisions: where a model is computed, and in which number format.

The batches of a model on a GPU are made on the CPU and moved where they are made; results come back as Python numbers
or NumPy arrays. Nothing below this module asks which device there is: it looks at the tensors it is given.
"""

import os
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from saccade.errors import ConfigError

DeviceName = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["float32", "bfloat16"]
CPU = torch.device("cpu")


# ── the choice of a device ────────────────────────────────────────────────────────────────────────


def choose_device(name: DeviceName, key: str) -> torch.device:
    """The device of this name; `auto` is cuda, else mps, else the CPU. `key` is the config key or option that gave the
    name."""
    available = list(filter(_is_available, ("cuda", "mps", "cpu")))
    kind = available[0] if name == "auto" else name
    if kind not in available:
        known = ", ".join(available)
        raise ConfigError(f'{key}: this machine has no device "{kind}"; use auto or one that it has ({known})')
    return torch.device("cuda", torch.cuda.current_device()) if kind == "cuda" else torch.device(kind)


def device_of_rank(name: DeviceName, key: str) -> torch.device:
    """The device of one of several ranks: with cuda, each rank of a machine takes a GPU of its own."""
    if name == "mps":
        raise ConfigError(f'{key}: "mps" cannot be used by several ranks; start one process, or use "cpu"')
    if name == "cpu" or (name == "auto" and not _is_available("cuda")):
        return CPU
    choose_device(name, key)
    local_rank, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if local_rank >= count:
        raise ConfigError(
            f"{key}: rank {local_rank} of this machine has no cuda device, because there are only {count}; start fewer "
            'ranks, or use "cpu"'
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def _is_available(kind: str) -> bool:
    if kind == "cpu":
        return True
    return torch.cuda.is_available() if kind == "cuda" else torch.backends.mps.is_available()


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's weights."""
    return next((parameter.device for parameter in model.parameters()), CPU)


@contextmanager
def on_cpu(model: nn.Module) -> Iterator[None]:
    """Move a model to the CPU for the time of the `with` block."""
    device = device_of(model)
    model.to(CPU)
    try:
        yield
    finally:
        model.to(device)


def peak_memory(device: torch.device) -> int:
    """The most bytes that were allocated at once: on a cuda device, otherwise in the memory of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# ── precision ─────────────────────────────────────────────────────────────────────────────────────


def check_precision(precision: Precision, device: torch.device, key: str) -> None:
    """Refuse bfloat16 on a GPU that does not compute it."""
    if precision == "bfloat16" and not _computes_bfloat16(device):
        raise ConfigError(f'{key}: this {device.type} device does not compute in bfloat16; use "float32"')


def _computes_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" or torch.backends.mps.is_macos_or_newer(14, 0)


def mixed_precision(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A context for the forward pass. With bfloat16, torch.autocast computes matrix products and attention in bfloat16;
    weights, sums, softmax and losses stay float32."""
    if precision == "float32":
        return nullcontext()
    # The cache of converted weights is shared by all threads, and would be cleared by whichever leaves first.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=device.type != "cpu")


def is_mixed(x: Tensor) -> bool:
    """Whether operations on this tensor run in mixed precision now."""
    return torch.is_autocast_enabled(x.device.type)


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """A context in which operations on the device of `x` keep the precision of their inputs."""
    return torch.autocast(x.device.type, enabled=False)


# ── random numbers ────────────────────────────────────────────────────────────────────────────────


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of torch's global generators by name: that of the CPU, and that of the device."""
    states = {"random": torch.get_rng_state()}
    if device.type == "cuda":
        states["random_cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["random_mps"] = torch.mps.get_rng_state()
    return states


def restore_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore those states of `random_states` that this device has."""
    if "random" in states:
        torch.set_rng_state(states["random"])
    if device.type == "cuda" and "random_cuda" in states:
        torch.cuda.set_rng_state(states["random_cuda"], device)
    if device.type == "mps" and "random_mps" in states:
        torch.mps.set_rng_state(states["random_mps"])


RANDOM_STATES = ("random", "random_cuda", "random_mps")


def fork_random_states(device: torch.device) -> AbstractContextManager[object]:
    """A context after which torch's global generators are as before: that of the CPU, and that of the device."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device.index or 0], device_type=device.type)
