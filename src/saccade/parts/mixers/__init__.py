"""Mixers: how places exchange what they know.

`start(memory | None, rows) → state`; `(x, places, state) → (y, state)`. The whole pass is one long step from a
fresh state, so there is one path.
"""

from collections.abc import Callable
from typing import Annotated

from torch import nn

from saccade.config import Slot
from saccade.parts.mixers.attention import MultiHead
from saccade.parts.mixers.unprojected import Unprojected

MIXERS: dict[str, Callable[..., nn.Module]] = {"multi_head": MultiHead, "unprojected": Unprojected}

MixerSlot = Annotated[Callable[..., nn.Module], Slot(MIXERS)]
