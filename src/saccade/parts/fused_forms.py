"""Fused forms: a part may offer the same computation in fewer calls, for inference only (no dropout, no notes).

A part offers one by a method `fused()` and by `fused_options`, the options that its fused form knows of. A class that
has another option has no fused form, nor does a subclass: what is not known is computed by the module itself.
"""

from typing import Any

from torch import nn

from saccade.config import option_keys


def knows_all_options(part_class: type, known: set[str]) -> bool:
    """Whether a class has no other options than these."""
    return option_keys(part_class) <= known


def fused_form(part: nn.Module) -> Any:
    """The fused form of a part; None if it has none for these options."""
    own = vars(type(part))
    if "fused" not in own or not knows_all_options(type(part), own.get("fused_options", set())):
        return None
    return own["fused"](part)
