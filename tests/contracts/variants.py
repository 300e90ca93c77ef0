"""Every way to fill every slot, read off the tables: a new member is tested without a new line."""

import itertools
import random
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pydantic.fields import FieldInfo

from saccade.config import Slot, python_layer, resolve, schema
from saccade.errors import ConfigError
from saccade.models.assemble import Model, ModelConfig, assemble

B, T, S, D, V = 3, 7, 5, 22, 13  # primes, and twice a prime where two heads must fit: no two axes can be swapped
OTHER_V = 17
MIXTURES = 6
NOT_FOR_TEXT = {"series"}
SMALL = {
    "heads": 2,
    "inner": 11,
    "depth": 2,
    "longest": 31,
    "rank": 3,
}  # what a test can afford, wherever a kind has the option

Fields = Mapping[str, FieldInfo]
Table = Mapping[str, Callable[..., Any]]


def options(table: Table, kind: str) -> Fields:
    return schema(kind, table[kind]).model_fields


def slot_of(field: FieldInfo) -> Slot | None:
    return next((m for m in field.metadata if isinstance(m, Slot)), None)


def small(table: Table, kind: str) -> dict[str, Any]:
    """A choice of small sizes, in every slot below it too."""
    return {"kind": kind, **small_fields(options(table, kind))}


def small_fields(fields: Fields) -> dict[str, Any]:
    tree: dict[str, Any] = {name: SMALL[name] for name in fields if name in SMALL}
    for name, field in fields.items():
        if slot := slot_of(field):
            tree[name] = small(slot.table, slot.kind_of(field.default))
    return tree


def values(field: FieldInfo) -> list[Any]:
    """All values of an option that has few."""
    if field.annotation is bool:
        return [True, False]
    return list(typing.get_args(field.annotation)) if typing.get_origin(field.annotation) is typing.Literal else []


def changes(fields: Fields, base: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what differs, tree) for every change of a single thing below `fields`."""
    for name, field in fields.items():
        for value in values(field):
            if value != field.default:
                yield f"{name}={value}", base | {name: value}
        if slot := slot_of(field):
            usual = slot.kind_of(field.default)
            for kind in slot.table:
                chosen = small(slot.table, kind)
                if kind != usual:
                    yield f"{name}={kind}", base | {name: chosen}
                for label, tree in changes(options(slot.table, kind), chosen):
                    yield f"{name}{f'={kind}' if kind != usual else ''}.{label}", base | {name: tree}


def mixture(fields: Fields, dice: random.Random) -> dict[str, Any]:
    """Everything chosen by lot, for what only goes wrong in company."""
    tree = small_fields(fields)
    for name, field in fields.items():
        if slot := slot_of(field):
            kind = dice.choice([kind for kind in slot.table if kind not in NOT_FOR_TEXT])
            tree[name] = {"kind": kind, **mixture(options(slot.table, kind), dice)}
        elif several := values(field):
            tree[name] = dice.choice(several)
    return tree


@dataclass(frozen=True, eq=False)
class Variant:
    """A model to be held to the contracts."""

    label: str
    tree: dict[str, Any]
    source_words: int
    target_words: int

    def __str__(self) -> str:
        return self.label

    @property
    def config(self) -> ModelConfig:
        return resolve(ModelConfig, [python_layer(self.tree)]).config

    def fresh(self, seed: int = 0) -> Model:
        torch.manual_seed(seed)
        model = assemble(self.config, self.source_words, self.target_words)
        model.words = self.source_words, self.target_words  # type: ignore[assignment]  # for whoever draws ids
        return model

    def changed(self, **keys: Any) -> "Variant":
        return Variant(self.label, self.tree | keys, self.source_words, self.target_words)


NO_DROPOUT = {"attention": 0.0, "residual": 0.0, "feed_forward": 0.0, "embedding": 0.0}


def _variant(label: str, tree: dict[str, Any]) -> Variant:
    tree = tree | {"dim": D, "dropout": NO_DROPOUT}
    if tree.get("shared_embeddings", True):
        embedding = tree["encoder"]["embedding"]  # one table serves both sides, so they are alike
        return Variant(label, tree | {"decoder": tree["decoder"] | {"embedding": embedding}}, V, V)
    return Variant(label, tree, V, OTHER_V)


# What is told apart by company only: (label, encoder, decoder), over small sizes.
COMPANY: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (f"recurrent-{cell}-{attend}-{feeding}", {"cell": cell}, {"cell": cell, "attend": attend, "input_feeding": feeding})
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


def _variants() -> Iterator[Variant]:
    fields = ModelConfig.model_fields
    base = small_fields(fields)
    recurrent = {side: small(fields_slot.table, "recurrent") for side, fields_slot in _sides(fields)}
    yield _variant("default", base)
    for label, tree in changes(fields, base):
        # not built, or not read: a shared embedding is the encoder's, and a decoder has no pool
        unused = label.startswith(("encoder.block.cross", "decoder.embedding", "decoder.pool", "decoder=recurrent.emb"))
        if not unused:
            read = {"decoder": recurrent["decoder"]} if ".pool" in label else {}  # something must use the summary
            yield _variant(label, tree | read)
    for label, encoder, decoder in COMPANY:
        own = {"encoder": recurrent["encoder"] | encoder, "decoder": recurrent["decoder"] | decoder}
        yield _variant(label, base | own)
    mixed = (_variant(f"mixture-{n}", mixture(fields, random.Random(n))) for n in itertools.count())
    yield from itertools.islice(filter(_stands, mixed), MIXTURES)  # most refuse something, and would test nothing


def _sides(fields: Fields) -> Iterator[tuple[str, Slot]]:
    for side in ("encoder", "decoder"):
        slot = slot_of(fields[side])
        assert slot
        yield side, slot


def _stands(variant: Variant) -> bool:
    try:
        with torch.device("meta"):
            variant.fresh()
    except ConfigError:
        return False
    return True


EVERY = list(_variants())
VARIANTS = [variant for variant in EVERY if _stands(variant)]
REFUSED = [variant for variant in EVERY if variant not in VARIANTS]
DEFAULT = VARIANTS[0]


def named(label: str) -> Variant:
    return next(variant for variant in VARIANTS if variant.label == label)


def every_choice(table: Table) -> Iterator[tuple[str, dict[str, Any]]]:
    """(label, tree) of each kind of a table and of each single change below it."""
    for kind in table:
        chosen = small(table, kind)
        yield kind, chosen
        for label, tree in changes(options(table, kind), chosen):
            yield f"{kind}.{label}", tree


def filled(table: Table, tree: Any) -> Any:
    """A Choice as a recipe would make it."""
    return Slot(table).fill(python_values(tree))


def python_values(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: python_values(value) for key, value in tree.items()}
    return tuple(tree) if isinstance(tree, list) else tree
