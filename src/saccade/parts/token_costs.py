"""What a target token costs in training. Tasks choose the terms; each head computes them in its own way."""

from dataclasses import dataclass, fields

from saccade.errors import BuildError


@dataclass(frozen=True)
class TokenCost:
    """(1 − smoothing) · (−log p(target)) + smoothing · the mean of −log p over the vocabulary (label smoothing: Szegedy
    et al. 2016), plus the terms that are not zero:

    `r_drop`: rows 2i and 2i + 1 are two passes over the same token, and r_drop · (KL(p‖q) + KL(q‖p)) / 2 of each such
    pair is added (R-Drop: Liang et al. 2021).
    """

    smoothing: float = 0.0
    r_drop: float = 0.0

    @property
    def terms(self) -> list[str]:
        """The names of the terms that are not zero, besides the cross-entropy."""
        return [field.name for field in fields(self) if getattr(self, field.name)]


CROSS_ENTROPY = TokenCost()


def check_cost_terms(cost: TokenCost, computed: frozenset[str], head: str) -> None:
    """Refuse a term that a head does not compute. `computed` are the terms that it does, `head` is its kind."""
    for term in cost.terms:
        if term not in computed:
            raise BuildError(f'the head "{head}" cannot compute it; set it to 0, or choose another model.head', (term,))
