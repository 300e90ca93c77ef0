"""Freezing: weights that keep their values during a training."""

import difflib
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from torch import nn

from saccade.errors import ConfigError, plural

MAX_SHOWN = 5  # names in a warning


def freeze(model: nn.Module, patterns: Sequence[str]) -> str:
    """Freeze the weights whose names match a pattern of `train.freeze` (`*` and `?` as in file names), and return a
    message about it. They get no gradients and no optimizer state. A shared weight has several names and is frozen if
    one of them matches."""
    if not patterns:
        return ""
    named = dict(model.named_parameters(remove_duplicate=False))
    matched = [name for pattern in patterns for name in _matching(pattern, named)]
    for name in matched:
        named[name].requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise ConfigError(
            f"train.freeze: {', '.join(map(repr, patterns))} match all weights, so nothing would be trained; leave "
            "some out"
        )
    total = sum(p.numel() for p in model.parameters())
    frozen = sum(not p.requires_grad for p in model.parameters())
    return (
        f"training {sum(p.numel() for p in trained):,} of {total:,} parameters; {plural(frozen, 'tensor')} frozen by "
        f"train.freeze{_also_frozen(named, matched)}"
    )


def warn_of_untrained(model: nn.Module, parent_weights: Collection[str]) -> str:
    """A warning if weights are frozen that are not the parent's: nobody has trained them; "" if there are none."""
    names = [name for name, p in model.named_parameters() if not p.requires_grad and name not in parent_weights]
    if not names:
        return ""
    shown = ", ".join(names[:MAX_SHOWN]) + (f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else "")
    return f"warning: train.freeze keeps the initial values of {shown}; set train.start_from, or freeze less"


def _matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern matches; an error if there are none."""
    matching = [name for name in names if fnmatchcase(name, pattern)]
    if not matching:
        prefixes = {
            ".".join(parts[:end]) for name in names if (parts := name.split(".")) for end in range(1, len(parts))
        }
        candidates = [*(f"{prefix}.*" for prefix in prefixes), *names] if "*" in pattern else [*names, *prefixes]
        nearest = difflib.get_close_matches(pattern, sorted(candidates), 1, cutoff=0)[0]
        nearest = f"{nearest}.*" if nearest in prefixes else nearest
        raise ConfigError(f"train.freeze: '{pattern}' matches the name of no weight; did you mean '{nearest}'?")
    return matching


def _also_frozen(named: dict[str, nn.Parameter], matched: Sequence[str]) -> str:
    """The names of shared weights that no pattern matches, but that are frozen under another name."""
    names = [name for name, parameter in named.items() if not parameter.requires_grad and name not in {*matched}]
    return f", among them {', '.join(names)}, which is shared" if names else ""
