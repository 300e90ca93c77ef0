"""Writes docs/parts.md from the tables themselves: `python docs/make_parts.py`. A test compares the two."""

import inspect
from pathlib import Path

from saccade.config import plain, schema
from saccade.data.sources import SOURCES
from saccade.data.tokenizers import TOKENIZERS
from saccade.decode.search import SEARCHES
from saccade.models.assemble import DECODERS, ENCODERS
from saccade.models.blocks import BLOCKS
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

TABLES = {
    "model.encoder": ENCODERS,
    "model.decoder": DECODERS,
    "model.head": HEADS,
    "model.encoder.cell, model.decoder.cell": CELLS,
    "model.decoder.cross (of `recurrent`)": CONTEXTS,
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
    "task.guide (of `translation`)": GUIDES,
    "train.optimizer": OPTIMIZERS,
    "train.schedule": SCHEDULES,
    "decode.search": SEARCHES,
}


def options(kind: str, part: object) -> str:
    """`name = default` for each option."""
    fields = schema(kind, part).model_fields  # type: ignore[arg-type]
    texts = [name if field.is_required() else f"{name} = {shown(field.default)}" for name, field in fields.items()]
    return ", ".join(f"`{text}`" for text in texts)


def shown(default: object) -> str:
    """A default as TOML would have it; a class by its kind."""
    if callable(default):
        return next(kind for table in TABLES.values() for kind, part in table.items() if part is default)
    return str(plain(default)).replace("True", "true").replace("False", "false")


def page() -> str:
    lines = ["# Every slot and its kinds", "", "Made by `python docs/make_parts.py` from the tables in the code.", ""]
    for key, table in TABLES.items():
        lines += [f"## `{key}`", "", "| kind | what | options |", "|---|---|---|"]
        for kind, part in table.items():
            what = " ".join((inspect.getdoc(part) or "").split("\n\n")[0].split()).replace("|", "\\|")
            lines.append(f"| `{kind}` | {what} | {options(kind, part)} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    Path(__file__).with_name("parts.md").write_text(page(), encoding="utf-8")
