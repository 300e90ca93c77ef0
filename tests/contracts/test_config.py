"""Every kind of every slot can be built, its caller passes all of its wiring, and TOML holds all of its options."""

import inspect
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from contracts.checks.config import check_toml, check_wiring
from contracts.variants import VARIANTS, Variant, every_choice, options
from saccade import api
from saccade.config import Slot, build, python_layer, resolve, to_toml
from saccade.data.sources import SOURCES
from saccade.data.tokenizers import TOKENIZERS
from saccade.decode.search import SEARCHES
from saccade.errors import ConfigError
from saccade.inputs import Frames, Tokens
from saccade.models.assemble import DECODERS, ENCODERS, ModelConfig, assemble
from saccade.models.blocks import BLOCKS, NO_DROPOUT
from saccade.models.initializations import INITIALIZATIONS
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
    NO_POSITION,
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

WIDTH = 24  # a multiple of 8, the default number of heads
DATA = Path(__file__).parent

ATTENTION = {"dim": WIDTH, "causal": False, "cross": True, "dropout": 0.1, "position": NO_POSITION}
STACKED = {"dim": WIDTH, "causal": True, "cross_attention": True, "dropouts": NO_DROPOUT}

# Config key of a slot → its table and the wiring that the code which builds the slot (its caller) passes. A key with
# two tables occurs twice, the second time with a remark in parentheses.
SLOTS: dict[str, tuple[Mapping[str, Callable[..., Any]], dict[str, Any]]] = {
    "encoder": (ENCODERS, {"input": Tokens(13), "summary": True, "dim": WIDTH, "dropouts": NO_DROPOUT}),
    "decoder": (DECODERS, STACKED | {"input": Tokens(13), "reads_summary": True}),
    "embedding": (EMBEDDINGS, {"input": Tokens(13), "dim": WIDTH}),
    "position": (POSITIONS, {"dim": WIDTH, "causal": True}),
    "init": (INITIALIZATIONS, {}),
    "stack": (STACKS, {"dim": WIDTH, "depth": 2}),
    "block": (BLOCKS, STACKED | {"position": NO_POSITION}),
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
    "head": (HEADS, {"vocabulary": 13, "dim": WIDTH, "tied_weight": TokenEmbedding(Tokens(13), WIDTH).tied_weight}),
    "data.train": (SOURCES, {"folder": DATA, "config_key": "data.train"}),
    "data.dev": (SOURCES, {"folder": DATA, "config_key": "data.dev"}),
    "data.test": (SOURCES, {"folder": DATA, "config_key": "data.test"}),
    "data.tokenizer": (TOKENIZERS, {}),
    "task": (TASKS, {"has_encoder": True}),
    "guide": (GUIDES, {}),
    "train.optimizer": (OPTIMIZERS, {"model": torch.nn.Linear(3, 3)}),
    "train.schedule": (SCHEDULES, {"updates": 100}),
    "decode.search": (SEARCHES, {}),
    "train.validation.search": (SEARCHES, {}),
}
# Wiring that a kind may have although its caller does not pass it, because it has a default: a class that also serves
# as decoder has `causal` and `cross_attention`, one that also serves as encoder has `summary`.
NOT_PASSED = {"encoder": {"causal", "cross_attention"}, "decoder": {"summary"}}
# Wiring that has a default but must be given all the same: a tied head needs `tied_weight`.
ONE_OF = {"head": {"tied_weight"}}

KINDS = [(key, kind) for key, (table, _) in SLOTS.items() for kind in table]
every_kind = pytest.mark.parametrize(("key", "kind"), KINDS, ids=[f"{key}={kind}" for key, kind in KINDS])


def required_options(table: Mapping[str, Callable[..., Any]], kind: str) -> dict[str, Any]:
    """A value for each option that has no default; all of these are file names."""
    return {name: "name" for name, field in options(table, kind).items() if field.is_required()}


@every_kind
def test_kind_builds_with_defaults_from_recipe_and_in_code(key: str, kind: str) -> None:
    table, wiring = SLOTS[key]
    wiring = wiring | ({"input": Frames(3)} if kind == "series" and key == "embedding" else {})
    part = table[kind]
    required = [
        p.name
        for p in inspect.signature(part).parameters.values()
        if p.kind is p.POSITIONAL_OR_KEYWORD and (p.default is p.empty or p.name in ONE_OF.get(key, ()))
    ]
    from_recipe = build(Slot(table).fill({"kind": kind, **required_options(table, kind)}), key, **wiring)
    in_code = part(**{name: wiring[name] for name in required}, **required_options(table, kind))
    assert type(from_recipe) is type(in_code)


@every_kind
def test_caller_passes_all_wiring_of_kind(key: str, kind: str) -> None:
    table, wiring = SLOTS[key]
    check_wiring(table[kind], {*wiring, *NOT_PASSED.get(key, ())})


def test_listed_wiring_is_what_callers_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two short trainings build something for each slot; `build` records what it is passed."""
    passed: dict[str, set[str]] = {}

    def recording_build(factory: Callable[..., Any], key: str, /, **wiring: Any) -> Any:
        passed.setdefault(key, set()).update(wiring)
        return build(factory, key, **wiring)

    for name, module in list(sys.modules.items()):
        if name.startswith("saccade.") and getattr(module, "build", None) is build:
            monkeypatch.setattr(module, "build", recording_build)
    for kind in ("stacked", "recurrent"):
        api.train(small_recipe(kind), tmp_path / kind, report=Silent())
    listed: dict[str, set[str]] = {}
    for key, (_, wiring) in SLOTS.items():
        listed.setdefault(key.partition(" ")[0], set()).update(wiring)
    assert passed == listed


def small_recipe(kind: str) -> dict[str, Any]:
    text, side = {"kind": "copy", "rows": 20}, {"kind": kind, "depth": 1}
    return {
        "data": {"train": text, "dev": text | {"split": "dev", "rows": 3}, "tokenizer": "words"},
        "model": {"dim": WIDTH, "encoder": side, "decoder": side},
        "train": {"updates": 1, "validate_every": 1},
    }


CHOICES = [(key, label, tree) for key, (table, _) in SLOTS.items() for label, tree in every_choice(table)]


@pytest.mark.parametrize(
    ("key", "tree"), [(key, tree) for key, _, tree in CHOICES], ids=[f"{key}={label}" for key, label, _ in CHOICES]
)
def test_toml_holds_all_options_of_choice(key: str, tree: dict[str, Any]) -> None:
    table, _ = SLOTS[key]
    check_toml(table, tree | required_options(table, tree["kind"]))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_model_config_survives_toml(variant: Variant) -> None:
    written = to_toml(variant.config)
    assert resolve(ModelConfig, [python_layer(tomllib.loads(written))]).config == variant.config


# ── errors ────────────────────────────────────────────────────────────────────────────────────────

RECURRENT = {"kind": "recurrent"}
INVALID_MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "an odd width": ({"dim": 7, "encoder": RECURRENT, "decoder": RECURRENT}, "model.encoder.cell"),
    "a coverage loss without coverage": (
        {"decoder": RECURRENT | {"cross": {"coverage_loss": 0.5}}},
        "model.decoder.cross.coverage_loss",
    ),
    "heads that do not divide the width": (
        {"decoder": RECURRENT | {"cross": {"kind": "multi_head", "heads": 7}}},
        "model.decoder.cross",
    ),
    "a series embedding in the decoder": (
        {"decoder": {"embedding": "series"}},
        "model.decoder.embedding",
    ),
    "a series embedding in a recurrent decoder": (
        {"decoder": RECURRENT | {"embedding": "series"}},
        "model.decoder.embedding",
    ),
    "shared embeddings with different options": (
        {"shared_embeddings": True, "encoder": RECURRENT | {"embedding": {"scaled": False}}, "decoder": RECURRENT},
        "model.shared_embeddings",
    ),
    "shared embeddings without an encoder": (
        {"shared_embeddings": True, "encoder": "none", "decoder": {"kind": "stacked"}},
        "model.shared_embeddings",
    ),
    "separate embeddings without an encoder": (
        {"shared_embeddings": False, "encoder": "none", "decoder": {"kind": "stacked"}},
        "model.shared_embeddings",
    ),
}


@pytest.mark.parametrize(("tree", "key"), [pytest.param(*case, id=label) for label, case in INVALID_MODELS.items()])
def test_error_of_model_that_cannot_be_built_names_config_key(tree: dict[str, Any], key: str) -> None:
    config = resolve(ModelConfig, [python_layer({"dim": WIDTH} | tree)]).config
    with pytest.raises(ConfigError) as raised:
        assemble(config, Tokens(13), 13)
    assert str(raised.value).startswith(f"{key}: ")


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ({"decoder": RECURRENT | {"attend": "during"}}, "decoder.attend"),
        (
            {"decoder": RECURRENT | {"cross": {"normalizer": {"kind": "hard", "baseline_decay": 1.0}}}},
            "decoder.cross.normalizer.baseline_decay",
        ),
        (
            {"decoder": RECURRENT | {"cross": {"normalizer": {"kind": "hard", "entropy_weight": -1.0}}}},
            "decoder.cross.normalizer.entropy_weight",
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
def test_error_of_invalid_value_names_config_key(tree: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(ModelConfig, [python_layer(tree)])
    assert str(raised.value).startswith(f"{key}: ")
