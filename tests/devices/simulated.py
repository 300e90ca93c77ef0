"""A simulated GPU: tensors that Python code finds on `cuda`, while their values are computed on the CPU.

torch's FakeTensorMode judges every operation: it refuses those that mix devices and says on which device the result is.
Fake tensors alone have no values, so a program that reads one (`item`, `tolist`, indexing with a mask) stops there, and
a CPU build of torch cannot differentiate fake tensors on `cuda`. Here every tensor also has its values, so whole
trainings and searches run, and their results can be compared with those of the CPU. What this cannot show: the kernels
of a GPU, their rounding, random numbers and speed, autocast on `cuda`, and asynchronous execution.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import _engine_run_backward
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
aten = torch.ops.aten
# The shape or the value of their result depends on values, so FakeTensorMode cannot judge them. On a GPU they make the
# CPU wait for the device.
READING = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.equal.default,
    aten.is_nonzero.default,
    aten.masked_select.default,
    aten._pack_padded_sequence.default,
}
TRANSFERS: set[Any] = {Tensor.to, Tensor.cpu, Tensor.cuda}
PROPERTIES: dict[Any, Callable[[Tensor], object]] = {
    Tensor.device.__get__: lambda tensor: CUDA,  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: lambda tensor: False,  # type: ignore[attr-defined]
    Tensor.data_ptr: lambda tensor: tensor.values.data_ptr(),  # type: ignore[attr-defined]
    Tensor.is_cuda.__get__: lambda tensor: True,  # type: ignore[attr-defined]
}


class OnDevice(torch.Tensor):
    """A tensor of the simulated GPU. `values` is an ordinary tensor. torch's C++ code believes it to be on the CPU."""

    values: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, values: Tensor, requires_grad: bool = False) -> "OnDevice":
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=CPU,
            requires_grad=requires_grad,
        )
        tensor.values = values
        return tensor

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"OnDevice({self.values!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func}: used outside of the simulated device")


class SimulatedDevice:
    """What the two modes below share. `reads` lists the operations that made the CPU wait for the device.

    `caller` is the function that Python has called, if one of its arguments is on the device. Tensors that torch's C++
    code creates for such a call are on the device, too."""

    def __init__(self) -> None:
        self.reads: list[str] = []
        self.caller: Any = None


FAKE_MODE = FakeTensorMode()
VERDICTS: dict[Any, bool] = {}


def judge(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether the results of an operation are on the device. Raises an error if it mixes devices."""
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    # A device that torch's C++ code asks for is that of an OnDevice as it sees it; `_Calls` sees what Python asks for.
    kwargs = {name: value for name, value in kwargs.items() if name != "device"}
    key = (func, tuple((isinstance(leaf, OnDevice), leaf.dtype, leaf.dim() == 0) for leaf in leaves))
    if key not in VERDICTS:
        with FAKE_MODE:
            fake_args, fake_kwargs = tree_map_only(Tensor, _fake, (args, kwargs))
            result = func(*fake_args, **fake_kwargs)
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        VERDICTS[key] = any(result.device.type == CUDA.type for result in results)
    return VERDICTS[key]


class _Calls(TorchFunctionMode):
    """Calls from Python: creates tensors on `cuda`, moves them, and answers on which device a tensor is."""

    def __init__(self, device: SimulatedDevice):
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in PROPERTIES and isinstance(args[0], OnDevice):
            return PROPERTIES[func](args[0])
        if func in TRANSFERS:
            return self._transfer(func, *args, **kwargs)
        if func in (Tensor.tolist, Tensor.numpy) and isinstance(args[0], OnDevice):
            if func is Tensor.numpy:
                raise TypeError("can't convert cuda:0 device type tensor to numpy")
            self.device.reads.append("tolist")
            return args[0].values.tolist()
        wanted = kwargs.get("device")
        if wanted is None:
            return self._called(func, args, kwargs)
        if torch.device(wanted).type == CUDA.type:
            return to_device(func(*args, **{**kwargs, "device": CPU}))
        return _values(self._called(func, args, kwargs))

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        before = self.device.caller
        self.device.caller = func if any(isinstance(leaf, OnDevice) for leaf in tree_leaves((args, kwargs))) else None
        try:
            if func is Tensor.backward:
                one = torch.ones_like(args[0])
                with self:  # Python code that autograd calls is watched, too
                    _engine_run_backward(args[:1], (one,), False, False, (), True, accumulate_grad=True)
                return None
            return func(*args, **kwargs)
        finally:
            self.device.caller = before

    def _transfer(self, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """`to`, `cpu` and `cuda`."""
        target: torch.device | None = CPU if func is Tensor.cpu else CUDA if func is Tensor.cuda else None
        if func is Tensor.to:
            like = [argument.device for argument in args if isinstance(argument, Tensor)]
            target, dtype, *_ = torch._C._nn._parse_to(*(like or args), **kwargs)
            if dtype is not None:
                tensor = self._called(Tensor.to, (tensor, dtype), {})
        if target is None or (target.type == CUDA.type) is isinstance(tensor, OnDevice):
            return tensor
        assert not tensor.requires_grad or tensor.is_leaf, "a transfer that is differentiated is not simulated"
        if isinstance(tensor, OnDevice):
            self.device.reads.append("copy to the CPU")
            return tensor.values.clone()
        return to_device(tensor)


class _Operations(TorchDispatchMode):
    """Operations: computes the values of the results, and lets FakeTensorMode judge the devices."""

    def __init__(self, device: SimulatedDevice):
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():  # calls from here are not calls from the program
            return self._compute(func, args, kwargs or {})

    def _compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not any(isinstance(leaf, OnDevice) for leaf in leaves):
            result = func(*args, **kwargs)
            created = not leaves and self.device.caller is not None
            if self.device.caller is torch._VF._pad_packed_sequence and result.dtype is torch.long:
                created = False  # the lengths of the sequences are on the CPU
            return tree_map_only(Tensor, OnDevice, result) if created else result
        is_read = func in READING or (func is aten.index.Tensor and any(leaf.dtype is torch.bool for leaf in leaves))
        if is_read:
            self.device.reads.append(str(func))
            if not isinstance(leaves[0], OnDevice):
                raise RuntimeError(f"{func}: found two devices, the first argument is on the CPU")
        on_device = func is not aten.equal.default if is_read else judge(func, args, kwargs)
        result = func(*_values(args), **_values(kwargs))
        if func is aten._pack_padded_sequence.default:
            return OnDevice(result[0]), result[1]  # the number of rows of each step is on the CPU
        if on_device:
            result = tree_map_only(Tensor, OnDevice, result)
        return return_and_correct_aliasing(func, args, kwargs, result)


def _values(tree: Any) -> Any:
    return tree_map_only(OnDevice, lambda tensor: tensor.values, tree)


def _fake(tensor: Tensor) -> Tensor:
    device = CUDA if isinstance(tensor, OnDevice) else CPU
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def to_device(tensor: Tensor) -> Tensor:
    """A copy of a tensor on the simulated device."""
    copy = OnDevice(tensor.detach().clone(), tensor.requires_grad)
    return torch.nn.Parameter(copy, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else copy


def _enter_inference_mode(mode: Any) -> None:
    """Like `no_grad`, because an OnDevice cannot be an inference tensor."""
    mode.had_gradients = torch.is_grad_enabled()
    torch.set_grad_enabled(mode.had_gradients and not mode.mode)


def _exit_inference_mode(mode: Any, *error: object) -> None:
    torch.set_grad_enabled(mode.had_gradients)


@contextmanager
def simulated_device() -> Iterator[SimulatedDevice]:
    """Inside the `with` block, tensors can be on `cuda`."""
    device = SimulatedDevice()
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # a parameter cannot become an OnDevice in place
    try:
        with (
            torch.backends.cudnn.flags(enabled=False),
            patch.object(torch.inference_mode, "__enter__", _enter_inference_mode),
            patch.object(torch.inference_mode, "__exit__", _exit_inference_mode),
            _Operations(device),
            _Calls(device),
        ):
            yield device
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
