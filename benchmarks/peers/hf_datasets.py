"""Encoding pairs of text with Hugging Face: `datasets.map(batched=True, num_proc=…)` over a BPE tokenizer of
`tokenizers`. The result is a memory-mapped Arrow file."""

# pyright: reportMissingImports=false
# (the extra `benchmarks` is not installed where the types are checked)

import time
from itertools import islice
from pathlib import Path
from typing import Any

from datasets import Dataset, concatenate_datasets, load_dataset
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

VOCABULARY = 8000


def learn(files: list[Path], lines: int) -> Tokenizer:
    """Learn a tokenizer from the first lines of each file; as sentencepiece's, it normalizes to NFKC."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<pad>", "<unk>", "<s>", "</s>"])
    texts = (line.rstrip("\n") for path in files for line in islice(path.open(encoding="utf-8"), lines))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(source: Path, target: Path, tokenizer: Tokenizer, processes: int, cache: Path) -> dict[str, Any]:
    """Seconds to load the files, and to map them to ids."""

    def ids(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {
            f"{side}_ids": [encoding.ids for encoding in tokenizer.encode_batch(batch[side])]
            for side in ("source", "target")
        }

    began = time.monotonic()
    sides = [_lines(path, side, cache) for path, side in ((source, "source"), (target, "target"))]
    pairs = concatenate_datasets(sides, axis=1)
    loaded = time.monotonic()
    encoded = pairs.map(ids, batched=True, num_proc=processes, remove_columns=["source", "target"])
    ended = time.monotonic()
    return {"rows": len(encoded), "load_seconds": loaded - began, "map_seconds": ended - loaded}


def _lines(path: Path, side: str, cache: Path) -> Dataset:
    lines = load_dataset("text", data_files=str(path), split="train", cache_dir=str(cache))
    assert isinstance(lines, Dataset)
    return lines.rename_column("text", side)
