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
from saccade.errors import ConfigError
from saccade.models.assemble import DECODERS, ENCODERS, ModelConfig, assemble
from saccade.models.blocks import BLOCKS, Dropouts
from saccade.models.stacks import STACKS
from saccade.optim.optimizers import OPTIMIZERS
from saccade.optim.schedules import SCHEDULES
from saccade.parts import (
    CELLS,
    CONNECTIONS,
    CONTEXTS,
    EMBEDDINGS,
    FEED_FORWARDS,
    HEADS,
    MIXERS,
    NORMALIZERS,
    NORMS,
    POOLS,
    POSITIONS,
    READOUTS,
    SCORES,
    LayerNorm,
    TokenEmbedding,
)
from saccade.recipe import TASKS
from saccade.tasks.guides import GUIDES
from saccade.training.progress import Silent

WIDTH = 24  # the default of eight heads divides it
DATA = Path(__file__).parent

ATTENTION = {"dim": WIDTH, "causal": False, "cross": True, "dropout": 0.1}

# For each slot, by the key at which it is built: its table, and the wiring that its site gives. Where one key has two
# tables, a word in brackets tells them apart.
SITES: dict[str, tuple[Mapping[str, Callable[..., Any]], dict[str, Any]]] = {
    "encoder": (ENCODERS, {"vocabulary": 13, "frames": 0, "dim": WIDTH, "dropouts": Dropouts()}),
    "decoder": (DECODERS, {"vocabulary": 13, "dim": WIDTH, "dropouts": Dropouts(), "causal": True, "reads": True}),
    "embedding": (EMBEDDINGS, {"vocabulary": 13, "frames": 3, "dim": WIDTH}),
    "position": (POSITIONS, {"dim": WIDTH}),
    "stack": (STACKS, {"dim": WIDTH, "depth": 2}),
    "block": (BLOCKS, {"dim": WIDTH, "causal": True, "reads": True, "dropouts": Dropouts()}),
    "self": (MIXERS, ATTENTION | {"causal": True, "cross": False}),
    "cross": (MIXERS, ATTENTION),
    "cross (recurrent)": (CONTEXTS, ATTENTION),
    "score": (SCORES, {"heads": 2, "width": 12}),
    "normalizer": (NORMALIZERS, {}),
    "cell": (CELLS, {"inputs": 13, "dim": WIDTH, "depth": 2, "bidirectional": True, "dropout": 0.1}),
    "pool": (POOLS, {"backward_width": 12}),
    "readout": (READOUTS, {"dim": WIDTH, "context": 7}),
    "feed_forward": (FEED_FORWARDS, {"dim": WIDTH, "dropout": 0.1}),
    "connection": (CONNECTIONS, {"dim": WIDTH, "norm": LayerNorm, "dropout": 0.1}),
    "norm": (NORMS, {"dim": WIDTH}),
    "head": (HEADS, {"vocabulary": 13, "dim": WIDTH, "tied_weight": TokenEmbedding(13, WIDTH).tied_weight}),
    "data.train": (SOURCES, {"folder": DATA}),
    "data.dev": (SOURCES, {"folder": DATA}),
    "data.test": (SOURCES, {"folder": DATA}),
    "data.tokenizer": (TOKENIZERS, {}),
    "task": (TASKS, {}),
    "guide": (GUIDES, {}),
    "train.optimizer": (OPTIMIZERS, {"model": torch.nn.Linear(3, 3)}),
    "train.schedule": (SCHEDULES, {"updates": 100}),
    "decode.search": (SEARCHES, {}),
    "train.validation.search": (SEARCHES, {}),
}
# An encoder may be a decoder's class, which asks whether it is causal and reads: no answer means no. A decoder may be
# an encoder's, which asks for the width of frames: a decoder reads none.
LEFT_OUT = {"encoder": {"causal", "reads"}, "decoder": {"frames"}}
# Wiring that has a default, because there is something else to give instead; by hand one of the two is needed.
ONE_OF = {"encoder": {"vocabulary"}, "decoder": {"vocabulary"}, "head": {"tied_weight"}}

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
        if p.kind is p.POSITIONAL_OR_KEYWORD and (p.default is p.empty or p.name in ONE_OF.get(at, ()))
    ]
    chosen = build(Slot(table).fill({"kind": kind, **needed(table, kind)}), at, **site)
    by_hand = part(**{name: site[name] for name in required}, **needed(table, kind))
    assert type(chosen) is type(by_hand)


@every_member
def test_it_asks_only_for_wiring_that_its_site_gives(at: str, kind: str) -> None:
    table, site = SITES[at]
    checks.check_wiring(table[kind], {*site, *LEFT_OUT.get(at, ())})


def test_the_listed_wiring_is_what_the_sites_give(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The list above would rot; trainings of one update build something at each site, and this one looks on."""
    seen: dict[str, set[str]] = {}

    def spy(factory: Callable[..., Any], at: str, /, **site: Any) -> Any:
        seen.setdefault(at, set()).update(site)
        return build(factory, at, **site)

    for name, module in list(sys.modules.items()):
        if name.startswith("saccade.") and getattr(module, "build", None) is build:
            monkeypatch.setattr(module, "build", spy)
    for kind in ("stacked", "recurrent"):
        api.train(small_recipe(kind), tmp_path / kind, report=Silent())
    series = {"dim": WIDTH, "head": "linear", "encoder": {"kind": "recurrent", "embedding": "series"}}
    assemble(resolve(ModelConfig, [python_layer(series)]).config, 3, 5, frames=True, writes=False)
    listed: dict[str, set[str]] = {}
    for at, (_, site) in SITES.items():
        listed.setdefault(at.partition(" ")[0], set()).update(site)
    assert seen == listed


def small_recipe(kind: str) -> dict[str, Any]:
    text, side = {"kind": "copy", "rows": 20}, {"kind": kind, "depth": 1}
    return {
        "data": {"train": text, "dev": text | {"split": "dev", "rows": 3}, "tokenizer": "words"},
        "model": {"dim": WIDTH, "encoder": side, "decoder": side},
        "train": {"updates": 1, "validate_every": 1},
    }


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


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────

RECURRENT = {"kind": "recurrent"}
REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "an odd width": ({"dim": 7, "encoder": RECURRENT, "decoder": RECURRENT}, "model.encoder.cell.bidirectional"),
    "a cost without a count": (
        {"decoder": RECURRENT | {"cross": {"coverage_loss": 0.5}}},
        "model.decoder.cross.coverage_loss",
    ),
    "heads that do not divide": (
        {"decoder": RECURRENT | {"cross": {"kind": "multi_head", "heads": 7}}},
        "model.decoder.cross",
    ),
    "a decoder of frames": (
        {"shared_embeddings": False, "decoder": {"embedding": "series"}},
        "model.decoder.embedding",
    ),
    "a recurrent decoder of frames": (
        {"shared_embeddings": False, "decoder": RECURRENT | {"embedding": "series"}},
        "model.decoder.embedding",
    ),
    "two embeddings that are one": (
        {"encoder": RECURRENT | {"embedding": {"scaled": False}}, "decoder": RECURRENT},
        "model.shared_embeddings",
    ),
}


@pytest.mark.parametrize(("tree", "key"), [pytest.param(*case, id=label) for label, case in REFUSALS.items()])
def test_what_cannot_be_built_is_refused_by_the_name_of_its_key(tree: dict[str, Any], key: str) -> None:
    config = resolve(ModelConfig, [python_layer({"dim": WIDTH} | tree)]).config
    with pytest.raises(ConfigError) as refused:
        assemble(config, 13, 13)
    assert str(refused.value).startswith(f"{key}: ")


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ({"decoder": RECURRENT | {"attend": "during"}}, "decoder.attend"),
        (
            {"decoder": RECURRENT | {"cross": {"normalizer": {"kind": "hard", "baseline_decay": 1.0}}}},
            "decoder.cross.normalizer.baseline_decay",
        ),
        (
            {"decoder": RECURRENT | {"cross": {"normalizer": {"kind": "hard", "entropy": -1.0}}}},
            "decoder.cross.normalizer.entropy",
        ),
        (
            {"decoder": RECURRENT | {"cross": {"score": {"kind": "reduced_rank", "rank": 0}}}},
            "decoder.cross.score.rank",
        ),
        ({"encoder": RECURRENT | {"cell": "gruu"}}, "encoder.cell"),
        ({"encoder": RECURRENT | {"bidirectionel": True}}, "encoder.bidirectionel"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_value_is_refused_by_the_name_of_its_key(tree: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve(ModelConfig, [python_layer(tree)])
    assert str(refused.value).startswith(f"{key}: ")
