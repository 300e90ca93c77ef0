"""Freezing: weights that keep their values during a training."""

import difflib
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from torch import nn

from saccade.errors import ConfigError, plural
from saccade.parts.heads import TiedHead

MAX_SHOWN = 5  # names in a warning


def freeze(model: nn.Module, patterns: Sequence[str]) -> str:
    """Freeze the weights whose names match a pattern of `train.freeze` (`*` and `?` as in file names), and return a
    message about it. They get no gradients and no optimizer state. A shared weight has several names and is frozen if
    one of them matches."""
    if not patterns:
        return ""
    named = dict(model.named_parameters(remove_duplicate=False))
    matched = [name for pattern in patterns for name in _matching(pattern, named, model)]
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


def _matching(pattern: str, names: Collection[str], model: nn.Module) -> list[str]:
    """The names that a pattern matches; an error if there are none."""
    matching = [name for name in names if fnmatchcase(name, pattern)]
    if not matching:
        reason = _shared_table(pattern, model) or f"matches the name of no weight{_nearest(pattern, names)}"
        raise ConfigError(f"train.freeze: '{pattern}' {reason}")
    return matching


def _shared_table(pattern: str, model: nn.Module) -> str:
    """What to freeze instead of a tied head; "" if the pattern is not for one."""
    head = getattr(model, "head", None)
    if not isinstance(head, TiedHead) or not pattern.startswith("head"):
        return ""
    side = "encoder" if getattr(model, "decoder", None) is None else "decoder"
    return f"matches no weight: a tied head has no matrix of its own; freeze its table with '{side}.embedding.*'"


def _nearest(pattern: str, names: Collection[str]) -> str:
    """The end of an error message: the most similar pattern that begins like this one, or how the names begin."""
    prefixes = {".".join(parts[:end]) for name in names if (parts := name.split(".")) for end in range(1, len(parts))}
    candidates = [*(f"{prefix}.*" for prefix in prefixes), *names] if "*" in pattern else [*names, *prefixes]
    similar = [name for name in sorted(candidates) if name.startswith(pattern[:1])]
    if not similar:
        return f"; the names begin with {', '.join(sorted({name.partition('.')[0] for name in names}))}"
    nearest = difflib.get_close_matches(pattern, similar, 1, cutoff=0)[0]
    return f"; did you mean '{nearest}.*'?" if nearest in prefixes else f"; did you mean '{nearest}'?"


def _also_frozen(named: dict[str, nn.Parameter], matched: Sequence[str]) -> str:
    """The names of shared weights that no pattern matches, but that are frozen under another name."""
    names = [name for name, parameter in named.items() if not parameter.requires_grad and name not in {*matched}]
    return f", among them {', '.join(names)}, which is shared" if names else ""
