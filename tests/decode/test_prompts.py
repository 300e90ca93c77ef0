"""Searches of a model without an encoder, whose prompts have unequal lengths."""

from typing import Any

import pytest
import torch

from contracts.checks.common import perturbed
from contracts.variants import V, named
from saccade.data.batches import Padded
from saccade.decode.constraints import Constraints
from saccade.decode.loops import ScoredTokens, run_search
from saccade.decode.search import Beam, Greedy
from saccade.decode.torch_engine import FusedModel
from saccade.models.assemble import Model

LONGEST = 40
SEARCHES: dict[str, Any] = {"greedy": Greedy(), "beam": Beam(size=3)}


def outputs(model: Model, search: Any, prompts: list[Any], prefixes: list[list[int]]) -> list[ScoredTokens]:
    decodable = FusedModel(model)
    limits = [LONGEST - len(prompt) for prompt in prompts]
    memory = decodable.encode(Padded.of(prompts))
    constraints = Constraints.of(limits, prefixes)
    found = dict(run_search(search, decodable, memory, constraints, [*range(len(prompts))]))
    return [found[row][0] for row in range(len(prompts))]


@torch.inference_mode()
@pytest.mark.parametrize("name", SEARCHES)
def test_every_row_may_use_all_learned_positions_whatever_the_other_prompts(name: str) -> None:
    """The short prompt goes on when the long one has reached the limit and has left the batch."""
    variant = named("decoder-only")
    decoder = variant.tree["decoder"] | {"position": {"kind": "learned", "longest": LONGEST}}
    model = perturbed(variant.changed(decoder=decoder).fresh()).eval()
    generator = torch.Generator().manual_seed(0)
    prompts, prefixes = [], []
    for length in (30, 8, 14):
        prompts.append(torch.randint(4, V, (length,), generator=generator).numpy())
        # up to the limit, so that no row ends before
        prefixes.append(torch.randint(4, V, (LONGEST - length - 1,), generator=generator).tolist())
    together = outputs(model, SEARCHES[name], prompts, prefixes)
    for row, output in enumerate(together):
        (alone,) = outputs(model, SEARCHES[name], prompts[row : row + 1], prefixes[row : row + 1])
        assert output.tokens == alone.tokens
        assert len(output.tokens) == LONGEST - len(prompts[row])
        assert output.log_prob == pytest.approx(alone.log_prob, rel=1e-4)
