"""Translation speed from raw text to raw text: Saccade's engines beside transformers' generate and CTranslate2's own
API, which run the same weights, exported by Saccade.

    python benchmarks/translate.py RUN TEXT [--batches 1 64] [--beams 1 5] [--sentences 300] [--rounds 3] [--json]

RUN is a trained Transformer that transformers can load; TEXT its source language, a sentence a line. With
batch 1 each sentence is translated when the one before it is done; with 64 all are given at once, at most 64 go through
the model together, and every system gets them sorted by length if it does not sort by itself. CTranslate2's API runs as
its documentation advises for CPUs: a translator for each core with one thread, sorted batches. The systems take turns,
and the medians of their ratios within a round are given.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import saccade
from saccade.config import plain, python_layer, resolve
from saccade.decode.engine import DecodeConfig, Engine, in_order
from saccade.lines import file_lines

Translate = Callable[[Sequence[str]], list[str]]
ENGINES = ("torch", "ctranslate2", "onnx")


class Cell:
    """One size of batch and beam: what every system is asked for."""

    def __init__(self, batch: int, beam: int, sentences: Sequence[str]):
        self.batch, self.beam, self.sentences = batch, beam, sentences

    @property
    def name(self) -> str:
        return f"batch {self.batch}, beam {self.beam}"


# ── Saccade ───────────────────────────────────────────────────────────────────────────────────────


def settings(run: Any, cell: Cell) -> DecodeConfig:
    """A search of this width, with room for so many sentences at a time."""
    lengths = [len(ids) + 1 for ids in run.codecs.source.encode(cell.sentences)]
    search = {"kind": "beam", "size": cell.beam} if cell.beam > 1 else "greedy"
    room = {"batch_tokens": int(cell.batch * statistics.mean(lengths) * cell.beam) + 1}
    tree = {**plain(run.recipe.decode), "search": search, "scores": False, **room}  # as `saccade translate` asks
    return resolve(DecodeConfig, [python_layer(tree)]).config


def of_engine(engine: Engine, decode: DecodeConfig, batch: int) -> Translate:
    def one_by_one(sentences: Sequence[str]) -> list[str]:
        return [next(in_order(engine.generate([sentence], decode)))[0].text for sentence in sentences]

    def together(sentences: Sequence[str]) -> list[str]:
        return [outputs[0].text for outputs in in_order(engine.generate(sentences, decode))]

    return one_by_one if batch == 1 else together


# ── the peers ─────────────────────────────────────────────────────────────────────────────────────


def in_sorted_batches(sentences: Sequence[str], batch: int, work: Translate) -> list[str]:
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    found = {}
    for first in range(0, len(order), batch):
        rows = order[first : first + batch]
        found |= dict(zip(rows, work([sentences[i] for i in rows]), strict=True))
    return [found[i] for i in range(len(sentences))]


class Transformers:
    """`generate` on the exported folder."""

    def __init__(self, folder: Path):
        from transformers import AutoModelForSeq2SeqLM, MarianTokenizer

        self.tokenizer: Any = MarianTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    def on(self, cell: Cell) -> Translate:
        import torch

        def work(sentences: Sequence[str]) -> list[str]:
            inputs = self.tokenizer(list(sentences), return_tensors="pt", padding=True)
            longest = 2 * inputs["input_ids"].shape[1] + 10
            with torch.inference_mode():
                found = self.model.generate(**inputs, num_beams=cell.beam, max_length=longest, early_stopping=False)
            return self.tokenizer.batch_decode(found, skip_special_tokens=True)

        def best(sentences: Sequence[str]) -> list[str]:
            if cell.batch > 1:
                return in_sorted_batches(sentences, cell.batch, work)
            return [work([sentence])[0] for sentence in sentences]

        return best


class CTranslate2:
    """Its Python API on the exported folder."""

    def __init__(self, folder: Path, run: Any, quantization: str):
        import ctranslate2

        self.source, self.target = run.codecs.source, run.codecs.target
        self.names, self.ids = self.source.vocabulary(), {n: i for i, n in enumerate(self.target.vocabulary())}
        cores = len(os.sched_getaffinity(0))
        self.one = ctranslate2.Translator(str(folder), compute_type=quantization, inter_threads=1, intra_threads=1)
        self.many = ctranslate2.Translator(str(folder), compute_type=quantization, inter_threads=cores, intra_threads=1)

    def on(self, cell: Cell) -> Translate:
        def work(sentences: Sequence[str], translator: Any) -> list[str]:
            pieces = [[self.names[i] for i in ids] for ids in self.source.encode(sentences)]
            longest = 2 * max(map(len, pieces)) + 10
            found = translator.translate_batch(
                pieces, beam_size=cell.beam, max_batch_size=cell.batch, max_decoding_length=longest
            )
            return [self.target.decode([self.ids[name] for name in each.hypotheses[0]]) for each in found]

        if cell.batch == 1:
            return lambda sentences: [work([sentence], self.one)[0] for sentence in sentences]
        return lambda sentences: work(sentences, self.many)


# ── turns ─────────────────────────────────────────────────────────────────────────────────────────


class Systems:
    """All that are compared, on one run."""

    def __init__(self, folder: Path, scratch: Path):
        from saccade.formats import ctranslate2, marian

        self.run = saccade.load(folder)
        self.engines = {name: saccade.load(folder, engine=name).engine for name in ENGINES}
        marian.write(self.run, scratch / "hf")
        ctranslate2.write(self.run, scratch / "ct2", "float32")
        self.transformers = Transformers(scratch / "hf")
        self.ctranslate2 = CTranslate2(scratch / "ct2", self.run, "float32")

    def on(self, cell: Cell) -> dict[str, Translate]:
        decode = settings(self.run, cell)
        ours = {f"saccade {name}": of_engine(engine, decode, cell.batch) for name, engine in self.engines.items()}
        return {**ours, "transformers": self.transformers.on(cell), "ctranslate2": self.ctranslate2.on(cell)}


def take_turns(
    works: dict[str, Translate], sentences: Sequence[str], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[str]]]:
    """Sentences a second of every system in every round, and what it wrote in the last one."""
    few = sentences[: max(4, len(sentences) // 10)]
    for work in works.values():
        work(few)
    speeds: dict[str, list[float]] = {name: [] for name in works}
    texts: dict[str, list[str]] = {}
    for turn in range(rounds):
        for name, work in [*works.items()][:: -1 if turn % 2 else 1]:  # so that none always comes after the same
            began = time.perf_counter()
            texts[name] = work(sentences)
            speeds[name].append(len(sentences) / (time.perf_counter() - began))
    return speeds, texts


def measure(systems: Systems, cell: Cell, rounds: int) -> dict[str, Any]:
    """Sentences a second of every system; how many outputs are the torch engine's; ratios."""
    speeds, texts = take_turns(systems.on(cell), cell.sentences, rounds)
    tokens = sum(len(ids) + 1 for ids in systems.run.codecs.target.encode(texts["saccade torch"]))
    a_sentence = tokens / len(cell.sentences)

    def ratio(ours: str, theirs: str) -> float:
        return statistics.median(a / b for a, b in zip(speeds[ours], speeds[theirs], strict=True))

    return {
        "sentences_per_second": {name: statistics.median(each) for name, each in speeds.items()},
        "tokens_per_second": {name: a_sentence * statistics.median(each) for name, each in speeds.items()},
        "same_as_torch": {
            name: sum(a == b for a, b in zip(found, texts["saccade torch"], strict=True)) / len(found)
            for name, found in texts.items()
        },
        "torch_to_transformers": ratio("saccade torch", "transformers"),
        "auto_to_ctranslate2": ratio("saccade ctranslate2", "ctranslate2"),
    }


def told(name: str, found: dict[str, Any]) -> str:
    lines = [f"{name}:"]
    for system, speed in found["sentences_per_second"].items():
        tokens, same = found["tokens_per_second"][system], found["same_as_torch"][system]
        lines.append(f"  {system:20} {speed:8.1f} sentences/s  {tokens:8.0f} tokens/s  {same:.1%} as torch")
    lines.append(f"  the torch engine is {found['torch_to_transformers']:.2f} × transformers' generate")
    lines.append(f"  auto (CTranslate2) is {found['auto_to_ctranslate2']:.2f} × CTranslate2's own API")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("run", type=Path)
    parser.add_argument("text")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--sentences", type=int, default=300, help="at batch 1; three times as many in batches")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    text = [*islice(file_lines(given.text), 3 * given.sentences)]
    with TemporaryDirectory() as scratch:
        systems = Systems(given.run, Path(scratch))
        found = {}
        for batch in given.batches:
            for beam in given.beams:
                cell = Cell(batch, beam, text[: given.sentences] if batch == 1 else text)
                found[cell.name] = measure(systems, cell, given.rounds)
                print(told(cell.name, found[cell.name]), file=sys.stderr if given.json else sys.stdout, flush=True)
    if given.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
