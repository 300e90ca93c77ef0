"""Model configs for every choice of every slot, generated from the tables: a new kind needs no new test."""

import itertools
import random
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pydantic.fields import FieldInfo

from saccade.config import Slot, python_layer, resolve, schema, with_tuples
from saccade.errors import ConfigError
from saccade.inputs import Tokens
from saccade.models.assemble import Model, ModelConfig, assemble

# Batch, target length, source length, width, vocabulary: all different, so that swapped axes are noticed; D is even
# for 2 heads.
B, T, S, D, V = 3, 7, 5, 22, 13
OTHER_V = 17
MIXTURES = 6  # the number of random models that can be built
NOT_FOR_TEXT = {"series"}
SMALL = {"heads": 2, "inner": 11, "depth": 2, "longest": 31, "rank": 3}  # for every kind that has the option

Fields = Mapping[str, FieldInfo]
Table = Mapping[str, Callable[..., Any]]


def options(table: Table, kind: str) -> Fields:
    return schema(kind, table[kind]).model_fields


def slot_of(field: FieldInfo) -> Slot | None:
    return next((m for m in field.metadata if isinstance(m, Slot)), None)


def small(table: Table, kind: str) -> dict[str, Any]:
    """The config of a kind with small sizes, also in its own slots."""
    return {"kind": kind, **small_fields(options(table, kind))}


def small_fields(fields: Fields) -> dict[str, Any]:
    tree: dict[str, Any] = {name: SMALL[name] for name in fields if name in SMALL}
    for name, field in fields.items():
        if slot := slot_of(field):
            tree[name] = small(slot.table, slot.kind_of(field.default))
    return tree


def values(field: FieldInfo) -> list[Any]:
    """All values of a boolean or Literal option; no values for any other option."""
    if field.annotation is bool:
        return [True, False]
    return list(typing.get_args(field.annotation)) if typing.get_origin(field.annotation) is typing.Literal else []


def changes(fields: Fields, base: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(label, tree) for every change of a single option or kind below `fields`."""
    for name, field in fields.items():
        for value in values(field):
            if value != field.default:
                yield f"{name}={value}", base | {name: value}
        if slot := slot_of(field):
            default = slot.kind_of(field.default)
            for kind in slot.table:
                choice = small(slot.table, kind)
                if kind != default:
                    yield f"{name}={kind}", base | {name: choice}
                for label, tree in changes(options(slot.table, kind), choice):
                    yield f"{name}{f'={kind}' if kind != default else ''}.{label}", base | {name: tree}


def mixture(fields: Fields, generator: random.Random) -> dict[str, Any]:
    """Random kinds and options everywhere, for defects that only a combination shows."""
    tree = small_fields(fields)
    for name, field in fields.items():
        if slot := slot_of(field):
            excluded = {*NOT_FOR_TEXT, *({"none"} if name in ("encoder", "decoder") else ())}
            kind = generator.choice([kind for kind in slot.table if kind not in excluded])
            tree[name] = {"kind": kind, **mixture(options(slot.table, kind), generator)}
        elif choices := values(field):
            tree[name] = generator.choice(choices)
    return tree


@dataclass(frozen=True, eq=False)
class Variant:
    """A model config that must satisfy the contracts."""

    label: str
    tree: dict[str, Any]
    source_vocabulary: int
    target_vocabulary: int

    def __str__(self) -> str:
        return self.label

    @property
    def config(self) -> ModelConfig:
        return resolve(ModelConfig, [python_layer(self.tree)]).config

    def fresh(self, seed: int = 0) -> Model:
        torch.manual_seed(seed)
        model = assemble(self.config, Tokens(self.source_vocabulary), self.target_vocabulary)
        model.vocabulary_sizes = self.source_vocabulary, self.target_vocabulary  # type: ignore[assignment]  # for random ids
        return model

    def changed(self, **keys: Any) -> "Variant":
        return Variant(self.label, self.tree | keys, self.source_vocabulary, self.target_vocabulary)


NO_DROPOUT = {"attention": 0.0, "residual": 0.0, "feed_forward": 0.0, "embedding": 0.0}


def _variant(label: str, tree: dict[str, Any]) -> Variant:
    tree = tree | {"dim": D, "dropout": NO_DROPOUT}
    if tree["encoder"] == "none":
        return Variant(label, tree, V, V)
    if tree.get("shared_embeddings", True):
        embedding = tree["encoder"]["embedding"]  # the table is shared, so both sides need the same options
        return Variant(label, tree | {"decoder": tree["decoder"] | {"embedding": embedding}}, V, V)
    return Variant(label, tree, V, OTHER_V)


# Combinations of recurrent models: (label, changes of the encoder, changes of the decoder).
COMBINATIONS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        f"recurrent-{cell}-{attend}{'-fed' if feeding else ''}",
        {"cell": cell},
        {"cell": cell, "attend": attend, "input_feeding": feeding},
    )
    for cell, attend, feeding in itertools.product(("gru", "lstm", "tanh"), ("before", "after"), (False, True))
] + [
    ("no-attention-at-start", {"bidirectional": False}, {"cross": "at_start", "readout": "plain"}),
    ("no-attention-fed", {}, {"cross": "at_start", "input_feeding": True}),
    ("no-attention-every-step", {}, {"cross": "every_step"}),
    ("coverage", {}, {"cross": {"kind": "unprojected", "score": "additive", "coverage": True, "coverage_loss": 0.5}}),
    ("coverage-after", {}, {"cross": {"kind": "unprojected", "score": "dot", "coverage": True}, "attend": "after"}),
    ("hard-additive", {}, {"cross": {"kind": "unprojected", "score": "additive", "normalizer": "hard"}}),
    ("free-widths", {}, {"cross": {"kind": "multi_head", "heads": 3, "key_width": 5, "value_width": 7}}),
]


# Decoders without an encoder: (label, options), made from the base variant and from the recurrent sides.
DECODER_ONLY: list[tuple[str, Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]]] = [
    ("decoder-only", lambda base, recurrent: base["decoder"]),
    ("decoder-only-rotary", lambda base, recurrent: base["decoder"] | {"position": "rotary"}),
    ("decoder-only-t5", lambda base, recurrent: base["decoder"] | {"position": "t5"}),
    ("decoder-only-recurrent", lambda base, recurrent: recurrent["decoder"] | {"cross": "at_start"}),
    (
        "decoder-only-fed",
        lambda base, recurrent: recurrent["decoder"] | {"cross": "at_start", "cell": "lstm", "input_feeding": True},
    ),
]


# Layers that differ from the others: (label, exceptions of the encoder, exceptions of the decoder).
EXCEPTIONS: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = [
    (
        "exceptions-gated-rms",
        [{"at": [1], "feed_forward": {"kind": "gated", "inner": 9}}],
        [{"at": [0], "norm": {"kind": "rms", "eps": 0.5}}],
    ),
    ("exceptions-post-norm", [{"at": [0], "connection": "post"}], [{"at": [1], "connection": "post"}]),
    (
        "exceptions-mixers",
        [{"at": [0, 1], "self": "unprojected"}],
        [{"at": [0], "self": {"heads": 11}}, {"at": [1], "cross": {"normalizer": "sparsemax"}}],
    ),
]


def _variants() -> Iterator[Variant]:
    fields = ModelConfig.model_fields
    base = small_fields(fields)
    recurrent = {side: small(fields_slot.table, "recurrent") for side, fields_slot in _sides(fields)}
    yield _variant("default", base)
    for label, tree in changes(fields, base):
        # these are not built or have no effect: a shared embedding is the encoder's, and a decoder has no pool; models
        # with only one side are below
        unused = label.startswith(
            (
                "encoder.block.cross",
                "decoder.embedding",
                "decoder.pool",
                "decoder=recurrent.emb",
                "encoder=none",
                "decoder=none",
            )
        )
        if not unused:
            # only a recurrent decoder uses the encoder's summary vector, which the pool computes
            decoder = {"decoder": recurrent["decoder"]} if ".pool" in label else {}
            yield _variant(label, tree | decoder)
    for label, encoder, decoder in COMBINATIONS:
        sides = {"encoder": recurrent["encoder"] | encoder, "decoder": recurrent["decoder"] | decoder}
        yield _variant(label, base | sides)
    for label, of_encoder, of_decoder in EXCEPTIONS:
        sides = {"encoder": base["encoder"] | {"exceptions": of_encoder}}
        yield _variant(label, base | sides | {"decoder": base["decoder"] | {"exceptions": of_decoder}})
    for label, decoder in DECODER_ONLY:
        yield _variant(label, base | {"encoder": "none", "decoder": decoder(base, recurrent)})
    mixtures = (_variant(f"mixture-{n}", mixture(fields, random.Random(n))) for n in itertools.count())
    yield from itertools.islice(filter(_can_be_built, mixtures), MIXTURES)  # most mixtures are invalid


def _sides(fields: Fields) -> Iterator[tuple[str, Slot]]:
    for side in ("encoder", "decoder"):
        slot = slot_of(fields[side])
        assert slot
        yield side, slot


def _can_be_built(variant: Variant) -> bool:
    try:
        variant.fresh()
    except ConfigError:
        return False
    return True


ALL = list(_variants())
VARIANTS = [variant for variant in ALL if _can_be_built(variant)]
INVALID = [variant for variant in ALL if variant not in VARIANTS]
DEFAULT = VARIANTS[0]


def named(label: str) -> Variant:
    return next(variant for variant in VARIANTS if variant.label == label)


def every_choice(table: Table) -> Iterator[tuple[str, dict[str, Any]]]:
    """(label, tree) of each kind of a table and of each single change below it."""
    for kind in table:
        choice = small(table, kind)
        yield kind, choice
        for label, tree in changes(options(table, kind), choice):
            yield f"{kind}.{label}", tree


def filled(table: Table, tree: Any) -> Any:
    """The choice that a recipe with this tree makes."""
    return Slot(table).fill(with_tuples(tree))
