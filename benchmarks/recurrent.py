"""Speed of a recurrent translation model: Saccade compared with the code of PyTorch tutorials (peers/tutorial_gru.py).

    python benchmarks/recurrent.py DIR [--rounds 7] [--updates 5] [--dim 256] [--json]

DIR holds Multi30k: train.de.gz, train.en.gz, test_2016_flickr.de.gz, test_2016_flickr.en.gz. Both systems have the same
tokenizer, sentences, widths, optimizer (Adam) and dropout. They run in turns; the results are medians over the rounds.

Training: target tokens per second without padding, including the time to make the batches. The tutorial's model is
measured with its own batches (128 random sentences, padded to the longest), then with Saccade's batches of similar
lengths, and finally also with Saccade's narrower output layer, which makes the two models the same.

Decoding: sentences per second from text to text, greedy, 32 sentences per batch. Saccade decodes one batch per core,
with one thread each; the tutorial decodes one batch with all threads. Every output is forced to the length of its
reference, so all systems do the same number of steps whatever the weights are; the weights are not trained.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
import torch
from peers import tutorial_gru
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from saccade.config import Choice
from saccade.data import batches as saccade_batches
from saccade.data.sources.rows import Pair
from saccade.data.tokenizers import END, PAD, START, Tokenizer
from saccade.decode import loops, search_engine
from saccade.decode.constraints import Constraints
from saccade.decode.engine import DecodeConfig
from saccade.decode.loops import SearchResults, SingleHypothesis, SingleRow, StepModel
from saccade.decode.search import Greedy, Search
from saccade.decode.torch_engine import torch_engine
from saccade.places import Memory
from saccade.recipe import Recipe, recipe_of
from saccade.runs.folder import RunFolder
from saccade.training.job import TrainingJob, prepare
from saccade.training.loop import update
from saccade.training.progress import Silent
from saccade.training.state import TrainingState

TUTORIAL_BATCH = 128  # sentences per training batch in the tutorials
DECODING_BATCH = 32  # sentences per batch in decoding
RATE = 1e-3
DROPOUT = 0.1

Work = Callable[[], int]  # trains or decodes, and returns the number of target tokens or sentences


def recipe(folder: Path, dim: int) -> Recipe:
    """The tutorial's model and training as a recipe. The test set takes the place of the development set, so that the
    prepared job holds the text to decode."""
    text = {
        split: {"kind": "pairs", "src": f"{name}.de.gz", "tgt": f"{name}.en.gz"}
        for split, name in (("train", "train"), ("dev", "test_2016_flickr"))
    }
    decoder = {
        "kind": "recurrent",
        "cell": "gru",
        "cross": {"kind": "unprojected", "score": "additive"},
        "attend": "before",
    }
    return recipe_of(
        {
            "data": {"folder": str(folder), **text, "tokenizer": {"kind": "sentencepiece", "size": 8000}},
            "task": {"kind": "translation", "smoothing": 0.0},
            "model": {
                "dim": dim,
                "encoder": {"kind": "recurrent", "cell": "gru", "bidirectional": True},
                "decoder": decoder,
                "head": "linear",
                "shared_embeddings": False,
                "dropout": {"embedding": DROPOUT, "residual": 0.0},
            },
            "train": {"schedule": {"kind": "constant", "rate": RATE}, "clip": 1.0},
        }
    )


# ── training ──────────────────────────────────────────────────────────────────────────────────────


def saccade_updates(job: TrainingJob) -> Iterator[list[saccade_batches.Batch]]:
    """Saccade's training batches, one list per update."""
    settings, start = job.recipe.train, saccade_batches.SamplerState()
    corpus, seed = job.train.corpus, job.recipe.seed
    for batches, _ in saccade_batches.updates(corpus, settings.batch_tokens, settings.update_tokens, seed, start):
        yield batches


def saccade_training(job: TrainingJob) -> Work:
    """One update by Saccade; returns its number of target tokens."""
    state, batches_of_updates = TrainingState(), saccade_updates(job)

    def work() -> int:
        job.model.train()
        batches = next(batches_of_updates)
        update(job, state, batches)
        state.step += 1
        return sum(batch.target_tokens for batch in batches)

    return work


def tutorial_training(model: tutorial_gru.Translator, batches: Iterator[tutorial_gru.Batch]) -> Work:
    """One update by the tutorial's loop; returns its number of target tokens."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    loss_function = nn.CrossEntropyLoss(ignore_index=PAD)

    def work() -> int:
        batch = next(batches)
        tutorial_gru.train_step(model, optimizer, loss_function, batch)
        return int((batch[3] != PAD).sum())

    return work


def random_batches(job: TrainingJob) -> Iterator[tutorial_gru.Batch]:
    """Endless batches of randomly shuffled sentences; the incomplete last batch of an epoch is dropped."""
    corpus, random = job.train.corpus, np.random.default_rng(job.recipe.seed)
    while True:
        order = random.permutation(len(corpus))
        for first in range(0, len(corpus) - TUTORIAL_BATCH + 1, TUTORIAL_BATCH):
            rows = order[first : first + TUTORIAL_BATCH].tolist()
            sources, lengths = padded([corpus.source(row).tolist() for row in rows])
            targets = [corpus.target(row).tolist() for row in rows]
            inputs = pad_sequence([torch.tensor([START, *ids]) for ids in targets], True, PAD)
            yield sources, lengths, inputs, padded(targets)[0]


def padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Padded ids [B T] with the end symbol, and the lengths [B]."""
    ids = [torch.tensor([*row, END]) for row in rows]
    return pad_sequence(ids, True, PAD), torch.tensor([len(row) for row in ids])


def bucketed_batches(job: TrainingJob) -> Iterator[tutorial_gru.Batch]:
    """Saccade's batches in the form that the tutorial's model takes."""
    for batches in saccade_updates(job):
        for batch in batches:
            assert batch.source is not None
            assert batch.inputs is not None
            source = batch.source.values
            yield source, (source != PAD).sum(1), batch.inputs.values, batch.outputs.values


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────


class EndlessModel:
    """A step model that never generates the end symbol."""

    def __init__(self, model: StepModel):
        self.model = model

    def start(self, memory: Memory, rows: int) -> Any:
        return self.model.start(memory, rows)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        log_probs, state = self.model.step(tokens, state)
        log_probs[:, END] = -1e9
        return log_probs, state

    def single(self, memory: Memory) -> SingleHypothesis:
        return SingleRow(self, memory)


@contextmanager
def forced_lengths(lengths: Sequence[int]) -> Iterator[None]:
    """Force the outputs of Saccade's search to the given lengths (including the end symbol)."""

    def run_forced(
        search: Search, model: StepModel, memory: Memory, constraints: Constraints, sentence_ids: list[int], *rest: Any
    ) -> SearchResults:
        forced = Constraints.of([lengths[number] for number in sentence_ids])
        return loops.run_search(search, EndlessModel(model), memory, forced, sentence_ids, *rest)

    with mock.patch.object(search_engine, "run_search", run_forced):
        yield


@contextmanager
def forced_tutorial_lengths(model: tutorial_gru.Translator, lengths: Tensor) -> Iterator[None]:
    """Force the outputs of the tutorial's decoder to the given lengths [B] (including the end symbol)."""
    step = 0

    def end(module: nn.Module, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
        nonlocal step
        step += 1
        output[0][:, END] = torch.where(lengths == step, 1e9, -1e9)

    hook = model.decoder.register_forward_hook(end)
    try:
        yield
    finally:
        hook.remove()


class TestText:
    """The source sentences, and the forced length of each output (including the end symbol)."""

    def __init__(self, job: TrainingJob):
        self.tokenizer = cast(Tokenizer, job.codecs.source)  # one tokenizer for both languages
        pairs = [row for row in job.dev if isinstance(row, Pair)]
        self.sources = [pair.source for pair in pairs]
        self.source_lengths = [len(ids) + 1 for ids in self.tokenizer.encode(self.sources)]
        self.lengths = [len(ids) + 1 for ids in self.tokenizer.encode([pair.target for pair in pairs])]

    def by_length(self) -> list[int]:
        """The row numbers, sorted by source length."""
        return sorted(range(len(self.sources)), key=lambda row: self.source_lengths[row])


def saccade_decoding(job: TrainingJob, text: TestText, batch_tokens: int) -> Work:
    """Decode all sentences with Saccade's torch engine."""
    engine = torch_engine(job.model, text.tokenizer, text.tokenizer)
    decode = DecodeConfig(search=Choice("greedy", Greedy, {}), batch_tokens=batch_tokens)

    def work() -> int:
        with forced_lengths(text.lengths):
            outputs = dict(engine.generate(text.sources, decode))
        assert [len(outputs[row][0].ids) for row in range(len(outputs))] == text.lengths
        return len(outputs)

    return work


def tutorial_decoding(model: tutorial_gru.Translator, text: TestText, order: Sequence[int], stop: bool) -> Work:
    """Decode all sentences in the given order with the tutorial's greedy search. Without `stop`, every batch runs as
    many steps as the longest reference of the whole test set."""
    longest = max(text.lengths)

    def work() -> int:
        translations: dict[int, str] = {}
        for first in range(0, len(order), DECODING_BATCH):
            rows = order[first : first + DECODING_BATCH]
            sources, lengths = padded(text.tokenizer.encode([text.sources[row] for row in rows]))
            ends = [text.lengths[row] for row in rows]
            with forced_tutorial_lengths(model, torch.tensor(ends)):
                outputs = tutorial_gru.greedy(model, sources, lengths, longest, stop)
            assert [len(ids) + 1 for ids in outputs] == ends
            translations |= {row: text.tokenizer.decode(ids) for row, ids in zip(rows, outputs, strict=True)}
        return len(translations)

    return work


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────


def median_speeds(works: dict[str, Work], rounds: int, repeats: int) -> dict[str, float]:
    """The median speed of each system, without a first warm-up round. They take turns, so that a slow minute of the
    machine affects all of them."""
    speeds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            began = time.perf_counter()
            done = sum(work() for _ in range(repeats))
            if number > 0:
                speeds[name].append(done / (time.perf_counter() - began))
    return {name: statistics.median(each) for name, each in speeds.items()}


def show(title: str, unit: str, speeds: dict[str, float]) -> None:
    """Print a table whose first row is Saccade; the last column is Saccade's speed relative to that of the row."""
    saccade_speed = next(iter(speeds.values()))
    print(f"\n{title}")
    for name, speed in speeds.items():
        print(f"  {name:<50} {speed:10,.1f} {unit}   {saccade_speed / speed:6.2f} ×")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder that holds Multi30k")
    parser.add_argument("--rounds", type=int, default=7, help="measured rounds")
    parser.add_argument("--updates", type=int, default=5, help="updates per round")
    parser.add_argument("--dim", type=int, default=256, help="width of embeddings and hidden states")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    job = prepare(recipe(options.folder, options.dim), RunFolder(Path("no-run")), Silent())
    tutorial, same = (
        tutorial_gru.Translator(job.codecs.target.size, options.dim, DROPOUT, narrow=narrow) for narrow in (False, True)
    )
    text = TestText(job)
    batch_tokens = DECODING_BATCH * round(statistics.mean(text.source_lengths))
    training: dict[str, Work] = {
        "Saccade": saccade_training(job),
        "tutorial, 128 random sentences": tutorial_training(tutorial, random_batches(job)),
        "tutorial, Saccade's batches": tutorial_training(tutorial, bucketed_batches(job)),
        "tutorial, Saccade's batches and output layer": tutorial_training(same, bucketed_batches(job)),
    }
    in_file = range(len(text.sources))
    decoding: dict[str, Work] = {
        "Saccade, about 32 sentences per batch": saccade_decoding(job, text, batch_tokens),
        "Saccade, default batches": saccade_decoding(job, text, job.recipe.decode.batch_tokens),
        "tutorial, always all steps": tutorial_decoding(tutorial, text, in_file, stop=False),
        "tutorial, until all outputs have ended": tutorial_decoding(tutorial, text, in_file, stop=True),
        "the same, sorted, with Saccade's output layer": tutorial_decoding(same, text, text.by_length(), stop=True),
    }
    sizes = {"Saccade": job.model, "tutorial": tutorial, "tutorial, Saccade's output layer": same}
    parameters = {name: sum(p.numel() for p in model.parameters()) for name, model in sizes.items()}
    training_speeds = median_speeds(training, options.rounds, options.updates)
    decoding_speeds = median_speeds(decoding, options.rounds, 1)
    if options.json:
        print(
            json.dumps({"parameters": parameters, "training": training_speeds, "decoding": decoding_speeds}, indent=1)
        )
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, width {options.dim}")
    print("parameters: " + "; ".join(f"{name} {count:,}" for name, count in parameters.items()))
    show("training; speed of Saccade relative to the row", "target tokens/s", training_speeds)
    show("greedy decoding; speed of Saccade relative to the row", "sentences/s", decoding_speeds)


if __name__ == "__main__":
    main()
