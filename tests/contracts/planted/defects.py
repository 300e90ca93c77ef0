"""What the tests of planted defects share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from contracts.checks.common import perturbed
from contracts.variants import named

Patch = pytest.MonkeyPatch
Check = Callable[[], None]


@dataclass(frozen=True)
class Defect:
    """A defect, the function that plants it, and the checks that must fail because of it."""

    name: str
    plant: Callable[[Patch], None]
    checks: tuple[Check, ...]


def patched(target: Any, name: str, value: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(target, name, value)


def on_model(check: Callable[[Any], None], label: str = "default") -> Check:
    """The check of a model, applied to the variant of this label."""
    return lambda: check(perturbed(named(label).fresh()))


def each(defects: Sequence[Defect]) -> pytest.MarkDecorator:
    """Parametrize a test by each defect and each of its checks."""
    return pytest.mark.parametrize(
        ("defect", "check"),
        [(defect, check) for defect in defects for check in defect.checks],
        ids=[f"{defect.name}-{number}" for defect in defects for number in range(len(defect.checks))],
    )


def assert_check_fails(defect: Defect, check: Check, monkeypatch: Patch) -> None:
    """The check passes on the sound code and fails with the defect."""
    monkeypatch.setattr("saccade.parts.heads.LOGIT_CHUNK_ROWS", 8)
    check()
    defect.plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()
