"""Fused forms: a part may offer the same computation in fewer calls, for inference only (no dropout, no notes).

A part offers one by a method `fused()` and by `fused_options`, the options that its fused form knows of. What is not
known is computed by the module itself: a class with another option, a subclass, and a module with a hook have no fused
form. A form that uses the weights of inner modules asks `is_exactly` about each of them: a LoRA layer in the place of a
linear layer has the same weights, but computes something else.
"""

from typing import TypeGuard, TypeVar

from torch import nn

from saccade.config import option_keys
from saccade.parts.fast_linear import FastLinear

Form = TypeVar("Form")
Part = TypeVar("Part")


def knows_all_options(part_class: type) -> bool:
    """Whether a class has no other options than its `fused_options`."""
    return option_keys(part_class) <= vars(part_class).get("fused_options", set())


def is_exactly(part: object, *classes: type[Part]) -> TypeGuard[Part]:
    """Whether a part computes what one of these classes defines: it is not of a subclass (as a module with
    parametrizations is), it has no hook, and its class has no options that are not in its `fused_options`."""
    return type(part) in classes and knows_all_options(type(part)) and not has_hook(part)


def are_linear(*layers: nn.Module) -> bool:
    """Whether these layers compute x @ weight.T + bias and nothing else."""
    return all(is_exactly(layer, FastLinear) for layer in layers)


def fused_form(part: object, form: type[Form]) -> Form | None:
    """The fused form of a part, if it is of this class; None if it has none for these options."""
    if "fused" not in vars(type(part)) or not is_exactly(part, type(part)):
        return None
    if isinstance(part, nn.Module) and any(map(has_hook, part.modules())):
        return None
    fused = vars(type(part))["fused"](part)
    return fused if isinstance(fused, form) else None


def has_hook(part: object) -> bool:
    return isinstance(part, nn.Module) and bool(part._forward_hooks or part._forward_pre_hooks)
