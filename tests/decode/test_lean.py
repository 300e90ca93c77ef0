"""A lean step gives what the modules give, over every model that fits it; what does not fit keeps to its modules."""

from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.checks import shaken
from saccade.config import python_layer, resolve
from saccade.decode.lean import LeanStep, fits
from saccade.decode.torch_engine import Modules
from saccade.models.assemble import Model, ModelConfig, assemble, spread_block
from saccade.notes import capture
from saccade.places import select

V, D = 23, 12
SHORT = torch.arange(7) < torch.tensor([7, 3, 5])[:, None]


def model_of(changes: dict[str, Any]) -> Model:
    block = {"self": {"heads": 2}, "memory": {"heads": 3}, "feed_forward": {"inner": 17}} | changes.pop("block", {})
    tree = {"dim": D, "block": block, "encoder": {"depth": 1}, "decoder": {"depth": 3}} | changes
    config = resolve(ModelConfig, [python_layer(tree)], spread_block).config
    torch.manual_seed(0)
    return shaken(assemble(config, V, V), by=0.2).eval()


FITTING: dict[str, dict[str, Any]] = {
    "pre-norm": {},
    "post-norm": {"block": {"connection": "post"}},
    "learned places": {"decoder": {"depth": 2, "position": {"kind": "learned", "longest": 20}}},
    "dot score": {"block": {"self": {"heads": 2, "score": "dot"}, "memory": {"heads": 3, "score": "dot"}}},
    "own widths": {"block": {"self": {"heads": 2, "key_width": 5, "value_width": 3}, "memory": {"heads": 4}}},
    "gelu": {"block": {"feed_forward": {"inner": 9, "activation": "gelu"}}},
    "linear head": {"head": "linear"},
    "tied head with a bias": {"head": {"kind": "tied", "bias": True}},
}
OTHERS: dict[str, dict[str, Any]] = {
    "recurrent": {"decoder": {"kind": "recurrent"}, "block": {}},
    "sparse pick": {"block": {"memory": {"heads": 3, "pick": "sparsemax"}}},
    "additive score": {"block": {"self": {"heads": 2, "score": "additive"}}},
    "bare": {"block": {"self": "bare"}},
}


def log_probs(steps: Any, model: Model, keep: Tensor | None, beam: int) -> Tensor:
    """Of a search that moves hypotheses and lets a sentence leave."""
    dice = torch.Generator().manual_seed(1)
    memory = model.encoder.encode(torch.randint(4, V, (3, 7), generator=dice), keep)
    state = select(steps.start(memory, 3), torch.arange(3).repeat_interleave(beam))
    found = []
    for step in range(9):
        rows = 3 if step < 4 else 2
        tokens = torch.randint(4, V, (rows * beam,), generator=dice)
        said, state = steps.step(tokens, state)
        found.append(said.flatten())
        moved = torch.arange(rows)[:, None] * beam + torch.randint(0, beam, (rows, beam), generator=dice)
        state = select(state, moved.flatten())
        if step == 3:
            stay = torch.tensor([0, 2])
            state = select(state, (stay[:, None] * beam + torch.arange(beam)).flatten(), stay)
    return torch.cat(found)


@pytest.mark.parametrize("name", FITTING)
@pytest.mark.parametrize("keep", [None, SHORT], ids=["whole", "padded"])
@pytest.mark.parametrize("beam", [1, 4])
@torch.inference_mode()
def test_it_gives_what_the_modules_give(name: str, keep: Tensor | None, beam: int) -> None:
    model = model_of(dict(FITTING[name]))
    assert fits(model)
    lean, modules = log_probs(LeanStep(model), model, keep, beam), log_probs(Modules(model), model, keep, beam)
    torch.testing.assert_close(lean, modules, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_it_knows_places_as_far_as_the_model_does() -> None:
    model = model_of({})
    steps: list[Any] = [LeanStep(model), Modules(model)]
    memory = model.encoder.encode(torch.randint(4, V, (1, 7)), None)
    states = [each.start(memory, 1) for each in steps]
    for token in torch.randint(4, V, (150, 1)):
        (lean, states[0]), (plain, states[1]) = (e.step(token, s) for e, s in zip(steps, states, strict=True))
    torch.testing.assert_close(lean, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", OTHERS)
def test_other_parts_keep_to_their_modules(name: str) -> None:
    assert not fits(model_of(dict(OTHERS[name])))


def test_who_listens_is_told() -> None:
    model = model_of({})
    with capture(model):
        assert not fits(model)
    assert fits(model)
