"""Translation speed from raw text to raw text: Saccade's engines, transformers' generate and CTranslate2's own API, all
with the same weights, exported by Saccade.

    python benchmarks/translate.py RUN TEXT [--batches 1 64] [--beams 1 5] [--sentences 300] [--rounds 3] [--json]

RUN is a trained Transformer that transformers can load; TEXT has one source sentence per line. With batch 1 each
sentence is translated when the one before it is finished; with 64 all are passed at once. transformers and
CTranslate2's API get batches of at most 64 sentences, sorted by length; Saccade's engines limit the padded tokens of a
batch, here to 64 × the mean length. CTranslate2's API is used as its documentation advises
for CPUs: one worker per core with one thread each, and sorted batches. The systems run in turns, and the ratios are
medians over the rounds.
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


class Condition:
    """A batch size, a beam size and the sentences that every system translates."""

    def __init__(self, batch: int, beam: int, sentences: Sequence[str]):
        self.batch, self.beam, self.sentences = batch, beam, sentences

    @property
    def name(self) -> str:
        return f"batch {self.batch}, beam {self.beam}"


# ── Saccade ───────────────────────────────────────────────────────────────────────────────────────


def settings(run: Any, condition: Condition) -> DecodeConfig:
    """Decode settings with the beam size of the condition, and batches of about its batch size."""
    lengths = [len(ids) + 1 for ids in run.codecs.source.encode(condition.sentences)]
    search = {"kind": "beam", "size": condition.beam} if condition.beam > 1 else "greedy"
    batch = {"batch_tokens": int(condition.batch * statistics.mean(lengths) * condition.beam) + 1}
    tree = {**plain(run.recipe.decode), "search": search, "scores": False, **batch}  # like `saccade translate`
    return resolve(DecodeConfig, [python_layer(tree)]).config


def engine_translate(engine: Engine, decode: DecodeConfig, batch: int) -> Translate:
    def one_at_a_time(sentences: Sequence[str]) -> list[str]:
        return [next(in_order(engine.generate([sentence], decode)))[0].text for sentence in sentences]

    def all_at_once(sentences: Sequence[str]) -> list[str]:
        return [outputs[0].text for outputs in in_order(engine.generate(sentences, decode))]

    return one_at_a_time if batch == 1 else all_at_once


# ── other systems ─────────────────────────────────────────────────────────────────────────────────────


def in_sorted_batches(sentences: Sequence[str], batch: int, translate: Translate) -> list[str]:
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    translations = {}
    for first in range(0, len(order), batch):
        rows = order[first : first + batch]
        translations |= dict(zip(rows, translate([sentences[i] for i in rows]), strict=True))
    return [translations[i] for i in range(len(sentences))]


class Transformers:
    """`generate` on the exported folder."""

    def __init__(self, folder: Path):
        from transformers import AutoModelForSeq2SeqLM, MarianTokenizer

        self.tokenizer: Any = MarianTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    def translator(self, condition: Condition) -> Translate:
        import torch

        def translate_batch(sentences: Sequence[str]) -> list[str]:
            inputs = self.tokenizer(list(sentences), return_tensors="pt", padding=True)
            longest = 2 * inputs["input_ids"].shape[1] + 10
            with torch.inference_mode():
                ids = self.model.generate(**inputs, num_beams=condition.beam, max_length=longest, early_stopping=False)
            return self.tokenizer.batch_decode(ids, skip_special_tokens=True)

        def translate(sentences: Sequence[str]) -> list[str]:
            if condition.batch > 1:
                return in_sorted_batches(sentences, condition.batch, translate_batch)
            return [translate_batch([sentence])[0] for sentence in sentences]

        return translate


class CTranslate2:
    """CTranslate2's Python API on the exported folder."""

    def __init__(self, folder: Path, run: Any, quantization: str):
        import ctranslate2

        self.source, self.target = run.codecs.source, run.codecs.target
        self.names, self.ids = self.source.vocabulary(), {n: i for i, n in enumerate(self.target.vocabulary())}
        cores = len(os.sched_getaffinity(0))
        self.single = ctranslate2.Translator(str(folder), compute_type=quantization, inter_threads=1, intra_threads=1)
        self.parallel = ctranslate2.Translator(
            str(folder), compute_type=quantization, inter_threads=cores, intra_threads=1
        )

    def translator(self, condition: Condition) -> Translate:
        def translate(sentences: Sequence[str], translator: Any) -> list[str]:
            pieces = [[self.names[i] for i in ids] for ids in self.source.encode(sentences)]
            longest = 2 * max(map(len, pieces)) + 10
            results = translator.translate_batch(
                pieces, beam_size=condition.beam, max_batch_size=condition.batch, max_decoding_length=longest
            )
            return [self.target.decode([self.ids[name] for name in result.hypotheses[0]]) for result in results]

        if condition.batch == 1:
            return lambda sentences: [translate([sentence], self.single)[0] for sentence in sentences]
        return lambda sentences: translate(sentences, self.parallel)


# ── measurement ───────────────────────────────────────────────────────────────────────────────────


class Systems:
    """All systems that are compared, on one run."""

    def __init__(self, folder: Path, scratch: Path):
        from saccade.formats import ctranslate2, marian

        self.run = saccade.load(folder)
        self.engines = {name: saccade.load(folder, engine=name).engine for name in ENGINES}
        marian.write(self.run, scratch / "hf")
        ctranslate2.write(self.run, scratch / "ct2", "float32")
        self.transformers = Transformers(scratch / "hf")
        self.ctranslate2 = CTranslate2(scratch / "ct2", self.run, "float32")

    def translator(self, condition: Condition) -> dict[str, Translate]:
        decode = settings(self.run, condition)
        engines = {f"saccade {name}": engine_translate(e, decode, condition.batch) for name, e in self.engines.items()}
        return {
            **engines,
            "transformers": self.transformers.translator(condition),
            "ctranslate2": self.ctranslate2.translator(condition),
        }


def run_in_turns(
    systems: dict[str, Translate], sentences: Sequence[str], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[str]]]:
    """Sentences per second of every system in every round, and its translations in the last round."""
    warmup = sentences[: max(4, len(sentences) // 10)]
    for translate in systems.values():
        translate(warmup)
    speeds: dict[str, list[float]] = {name: [] for name in systems}
    texts: dict[str, list[str]] = {}
    for number in range(rounds):
        # every other round in reverse order, so that no system always runs after the same one
        for name, translate in [*systems.items()][:: -1 if number % 2 else 1]:
            began = time.perf_counter()
            texts[name] = translate(sentences)
            speeds[name].append(len(sentences) / (time.perf_counter() - began))
    return speeds, texts


def measure(systems: Systems, condition: Condition, rounds: int) -> dict[str, Any]:
    """Sentences and tokens per second of every system, the share of outputs equal to the torch engine's, and ratios."""
    speeds, texts = run_in_turns(systems.translator(condition), condition.sentences, rounds)
    tokens = sum(len(ids) + 1 for ids in systems.run.codecs.target.encode(texts["saccade torch"]))
    tokens_per_sentence = tokens / len(condition.sentences)

    def ratio(system: str, baseline: str) -> float:
        return statistics.median(a / b for a, b in zip(speeds[system], speeds[baseline], strict=True))

    return {
        "sentences_per_second": {name: statistics.median(values) for name, values in speeds.items()},
        "tokens_per_second": {name: tokens_per_sentence * statistics.median(values) for name, values in speeds.items()},
        "same_as_torch": {
            name: sum(a == b for a, b in zip(outputs, texts["saccade torch"], strict=True)) / len(outputs)
            for name, outputs in texts.items()
        },
        "torch_to_transformers": ratio("saccade torch", "transformers"),
        "engine_to_api": ratio("saccade ctranslate2", "ctranslate2"),
    }


def summary(name: str, results: dict[str, Any]) -> str:
    lines = [f"{name}:"]
    for system, speed in results["sentences_per_second"].items():
        tokens, same = results["tokens_per_second"][system], results["same_as_torch"][system]
        lines.append(f"  {system:20} {speed:8.1f} sentences/s  {tokens:8.0f} tokens/s  {same:.1%} same as torch")
    lines.append(f"  the torch engine is {results['torch_to_transformers']:.2f} × transformers' generate")
    lines.append(
        f"  Saccade's CTranslate2 engine (the choice of `auto`) is {results['engine_to_api']:.2f} × its own API"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("run", type=Path, help="a trained Transformer run")
    parser.add_argument("text", help="source sentences, one per line")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--sentences", type=int, default=300, help="at batch 1; three times as many for larger batches")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    text = [*islice(file_lines(arguments.text), 3 * arguments.sentences)]
    with TemporaryDirectory() as scratch:
        systems = Systems(arguments.run, Path(scratch))
        results = {}
        for batch in arguments.batches:
            for beam in arguments.beams:
                condition = Condition(batch, beam, text[: arguments.sentences] if batch == 1 else text)
                results[condition.name] = measure(systems, condition, arguments.rounds)
                print(
                    summary(condition.name, results[condition.name]),
                    file=sys.stderr if arguments.json else sys.stdout,
                    flush=True,
                )
    if arguments.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
