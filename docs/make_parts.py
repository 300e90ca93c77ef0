"""Write docs/parts.md from the tables of kinds in the code: `python docs/make_parts.py`. A test checks that the page is
up to date."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path

from saccade.config import plain, schema
from saccade.data.sources import SOURCES
from saccade.data.tokenizers import TOKENIZERS
from saccade.decode.search import SEARCHES
from saccade.models.assemble import DECODERS, ENCODERS
from saccade.models.blocks import BLOCKS
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
    NORMALIZERS,
    NORMS,
    POOLS,
    POSITIONS,
    READOUTS,
    SCORES,
)
from saccade.tasks import TASKS
from saccade.tasks.guides import GUIDES

TABLES: dict[str, Mapping[str, Callable[..., object]]] = {
    "model.encoder": ENCODERS,
    "model.decoder": DECODERS,
    "model.head": HEADS,
    "model.init": INITIALIZATIONS,
    "model.encoder.cell, model.decoder.cell": CELLS,
    "model.decoder.cross": CONTEXTS,
    "model.decoder.readout": READOUTS,
    "model.encoder.pool": POOLS,
    "model.encoder.embedding": EMBEDDINGS,
    "model.encoder.position": POSITIONS,
    "model.encoder.stack": STACKS,
    "model.block": BLOCKS,
    "model.block.self, model.block.cross": MIXERS,
    "model.block.self.score": SCORES,
    "model.block.self.normalizer": NORMALIZERS,
    "model.block.feed_forward": FEED_FORWARDS,
    "model.block.connection": CONNECTIONS,
    "model.block.norm": NORMS,
    "data.train, data.dev, data.test": SOURCES,
    "data.tokenizer": TOKENIZERS,
    "task": TASKS,
    "task.guide": GUIDES,
    "train.optimizer": OPTIMIZERS,
    "train.schedule": SCHEDULES,
    "decode.search": SEARCHES,
}
OWNERS = {"model.decoder.cross": "recurrent", "task.guide": "translation"}  # the only kind that has this slot


def options(kind: str, implementation: Callable[..., object]) -> str:
    """`name = default` of each option, only `name` if it has no default."""
    fields = schema(kind, implementation).model_fields
    texts = [name if field.is_required() else f"{name} = {as_text(field.default)}" for name, field in fields.items()]
    return ", ".join(f"`{text}`" for text in texts)


def as_text(default: object) -> str:
    """A default as text, with TOML's true and false; for a class of one of the tables, the name of its kind."""
    if callable(default):
        return next(kind for table in TABLES.values() for kind, entry in table.items() if entry is default)
    if default == "":
        return '""'
    return str(plain(default)).replace("True", "true").replace("False", "false")


def page() -> str:
    lines = ["# All slots and kinds", "", "Generated from the tables in the code by `python docs/make_parts.py`.", ""]
    for key, table in TABLES.items():
        owner = f" of `{OWNERS[key]}`" if key in OWNERS else ""
        lines += [f"## `{key}`{owner}", "", "| kind | description | options |", "|---|---|---|"]
        for kind, implementation in table.items():
            description = " ".join((inspect.getdoc(implementation) or "").split("\n\n")[0].split()).replace("|", "\\|")
            lines.append(f"| `{kind}` | {description} | {options(kind, implementation)} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    Path(__file__).with_name("parts.md").write_text(page(), encoding="utf-8")
