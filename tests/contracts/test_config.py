"""Every kind can be built from a recipe and by hand, says all of its options in TOML, and asks for what it is given."""

import inspect
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from contracts import checks
from contracts.variants import VARIANTS, Variant, every_choice, options
from saccade import api
from saccade.config import Slot, build, python_layer, resolve, to_toml
from saccade.data.sources import SOURCES
from saccade.data.tokenizers import TOKENIZERS
from saccade.decode.search import SEARCHES
from saccade.models.assemble import DECODERS, ENCODERS, ModelConfig
from saccade.models.blocks import BLOCKS, Dropouts
from saccade.models.stacks import STACKS
from saccade.optim.optimizers import OPTIMIZERS
from saccade.optim.schedules import SCHEDULES
from saccade.parts import (
    CONNECTIONS,
    EMBEDDINGS,
    FEED_FORWARDS,
    HEADS,
    MIXERS,
    NORMS,
    PICKS,
    POSITIONS,
    SCORES,
    LayerNorm,
    Words,
)
from saccade.recipe import TASKS
from saccade.training.progress import Silent

WIDTH = 24  # the default of eight heads divides it
DATA = Path(__file__).parent

# For each slot, by the key at which it is built: its table, and the wiring that its site gives.
SITES: dict[str, tuple[Mapping[str, Callable[..., Any]], dict[str, Any]]] = {
    "encoder": (ENCODERS, {"vocabulary": 13, "dim": WIDTH, "dropouts": Dropouts()}),
    "decoder": (DECODERS, {"vocabulary": 13, "dim": WIDTH, "dropouts": Dropouts(), "causal": True, "reads": True}),
    "embedding": (EMBEDDINGS, {"vocabulary": 13, "dim": WIDTH}),
    "position": (POSITIONS, {"dim": WIDTH}),
    "stack": (STACKS, {"dim": WIDTH, "depth": 2}),
    "block": (BLOCKS, {"dim": WIDTH, "causal": True, "reads": True, "dropouts": Dropouts()}),
    "self": (MIXERS, {"dim": WIDTH, "causal": True, "dropout": 0.1}),
    "memory": (MIXERS, {"dim": WIDTH, "causal": False, "dropout": 0.1}),
    "score": (SCORES, {}),
    "pick": (PICKS, {}),
    "feed_forward": (FEED_FORWARDS, {"dim": WIDTH, "dropout": 0.1}),
    "connection": (CONNECTIONS, {"dim": WIDTH, "norm": LayerNorm, "dropout": 0.1}),
    "norm": (NORMS, {"dim": WIDTH}),
    "head": (HEADS, {"vocabulary": 13, "dim": WIDTH, "turned": Words(13, WIDTH).turned}),
    "data.train": (SOURCES, {"folder": DATA}),
    "data.dev": (SOURCES, {"folder": DATA}),
    "data.test": (SOURCES, {"folder": DATA}),
    "data.tokenizer": (TOKENIZERS, {}),
    "task": (TASKS, {}),
    "train.optimizer": (OPTIMIZERS, {"parameters": [torch.nn.Parameter(torch.ones(3))]}),
    "train.schedule": (SCHEDULES, {"updates": 100}),
    "decode.search": (SEARCHES, {}),
    "train.validation.search": (SEARCHES, {}),
}
# An encoder may be a decoder's class, which asks whether it is causal and reads: no answer means no.
LEFT_OUT = {"encoder": {"causal", "reads"}}

MEMBERS = [(at, kind) for at, (table, _) in SITES.items() for kind in table]
every_member = pytest.mark.parametrize(("at", "kind"), MEMBERS, ids=[f"{at}={kind}" for at, kind in MEMBERS])


def needed(table: Mapping[str, Callable[..., Any]], kind: str) -> dict[str, Any]:
    """Something for each option that has no default: the names of files."""
    return {name: "name" for name, field in options(table, kind).items() if field.is_required()}


@every_member
def test_it_builds_by_default_from_a_recipe_and_by_hand(at: str, kind: str) -> None:
    table, site = SITES[at]
    part = table[kind]
    required = [
        p.name
        for p in inspect.signature(part).parameters.values()
        if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty
    ]
    chosen = build(Slot(table).fill({"kind": kind, **needed(table, kind)}), at, **site)
    by_hand = part(**{name: site[name] for name in required}, **needed(table, kind))
    assert type(chosen) is type(by_hand)


@every_member
def test_it_asks_only_for_wiring_that_its_site_gives(at: str, kind: str) -> None:
    table, site = SITES[at]
    checks.check_wiring(table[kind], {*site, *LEFT_OUT.get(at, ())})


def test_the_listed_wiring_is_what_the_sites_give(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The list above would rot; a training of two updates builds something at each site, and this one looks on."""
    seen: dict[str, set[str]] = {}

    def spy(factory: Callable[..., Any], at: str, /, **site: Any) -> Any:
        seen.setdefault(at, set()).update(site)
        return build(factory, at, **site)

    for name, module in list(sys.modules.items()):
        if name.startswith("saccade.") and getattr(module, "build", None) is build:
            monkeypatch.setattr(module, "build", spy)
    text = {"kind": "copy", "rows": 20}
    recipe = {
        "data": {"train": text, "dev": text | {"split": "dev", "rows": 3}, "tokenizer": "words"},
        "model": {"dim": WIDTH, "encoder": {"depth": 1}, "decoder": {"depth": 1}},
        "train": {"updates": 1, "validate_every": 1},
    }
    api.train(recipe, tmp_path / "run", report=Silent())
    assert seen == {at: set(site) for at, (_, site) in SITES.items()}


CHOICES = [(at, label, tree) for at, (table, _) in SITES.items() for label, tree in every_choice(table)]


@pytest.mark.parametrize(
    ("at", "tree"), [(at, tree) for at, _, tree in CHOICES], ids=[f"{at}={label}" for at, label, _ in CHOICES]
)
def test_its_options_come_back_from_toml(at: str, tree: dict[str, Any]) -> None:
    table, _ = SITES[at]
    checks.check_toml(table, tree | needed(table, tree["kind"]))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_model_is_rebuilt_from_its_toml(variant: Variant) -> None:
    written = to_toml(variant.config)
    assert resolve(ModelConfig, [python_layer(tomllib.loads(written))]).config == variant.config
