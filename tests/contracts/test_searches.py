"""Every search satisfies the contract of a search, for several kinds of decoder state."""

from typing import Any

import pytest

from contracts.checks.common import perturbed
from contracts.checks.searches import check_search
from contracts.choices import build_choice, every
from contracts.variants import Variant, named
from saccade.decode.search import SEARCHES

LABELS = [
    *("default", "recurrent-lstm-after-fed", "coverage", "hard-additive", "no-attention-every-step"),
    *("decoder-only-t5", "decoder-only-fed"),
]
QUICK = {"default", "recurrent-lstm-after-fed", "decoder-only-t5"}


@every(SEARCHES)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize(
    "variant",
    [pytest.param(named(label), marks=() if label in QUICK else pytest.mark.slow, id=label) for label in LABELS],
)
def test_search_satisfies_constraints_and_has_teacher_forced_log_probs(tree: Any, seed: int, variant: Variant) -> None:
    model = perturbed(variant.fresh(seed), seed)
    check_search(lambda: build_choice(SEARCHES, tree), model)
