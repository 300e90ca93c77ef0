"""A recurrent translator of Saccade against the same one as PyTorch tutorials write it (peers/tutorial_gru.py).

    python benchmarks/recurrent.py DIR [--rounds 7] [--updates 5] [--dim 256] [--json]

DIR holds Multi30k: train.de.gz, train.en.gz, test_2016_flickr.de.gz, test_2016_flickr.en.gz. Both systems get the same
sentences in the same pieces, the same widths, Adam and dropout. They take turns, and medians are given.

Training: real target tokens a second, batches included. The tutorial is fed in its own way (128 random sentences,
padded to the longest), then with Saccade's batches of like lengths, then also with Saccade's narrower output layer:
with that it is the same model.

Decoding: sentences a second from text to text, greedy, 32 a batch. Saccade works on a batch for each core, a thread
each; the tutorial on one batch with all threads. How long a half-trained model writes is luck, so every output is made
as long as its reference: the weights do not matter, and all systems write the same tokens.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from peers import tutorial_gru
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from saccade.config import Choice
from saccade.data import batches as saccade_batches
from saccade.data.tokenizers import END, PAD, START
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

SENTENCES = 128  # in a batch of a tutorial
AT_ONCE = 32  # sentences that are decoded together
RATE = 1e-3
DROPOUT = 0.1

Work = Callable[[], int]  # does a piece of work and says how much it was


def recipe(folder: Path, dim: int) -> Recipe:
    """The tutorial's model and training in Saccade's words. The test text stands where validation text would."""
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


def plan(job: TrainingJob) -> Iterator[list[saccade_batches.Batch]]:
    """Saccade's batches, update after update."""
    settings, start = job.recipe.train, saccade_batches.SamplerState()
    corpus, seed = job.train.corpus, job.recipe.seed
    for batches, _ in saccade_batches.updates(corpus, settings.batch_tokens, settings.update_tokens, seed, start):
        yield batches


def learning(job: TrainingJob) -> Work:
    """Updates of Saccade."""
    state, batches_of_updates = TrainingState(), plan(job)

    def work() -> int:
        job.model.train()
        batches = next(batches_of_updates)
        update(job, state, batches)
        state.step += 1
        return sum(batch.target_tokens for batch in batches)

    return work


def peer_learning(model: tutorial_gru.Translator, batches: Iterator[tutorial_gru.Batch]) -> Work:
    """Updates of the tutorial."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    loss_function = nn.CrossEntropyLoss(ignore_index=PAD)

    def work() -> int:
        batch = next(batches)
        tutorial_gru.train_step(model, optimizer, loss_function, batch)
        return int((batch[3] != PAD).sum())

    return work


def random_batches(job: TrainingJob) -> Iterator[tutorial_gru.Batch]:
    """For ever: sentences as a shuffle brings them together, what is left over at the end of an epoch left out."""
    corpus, random = job.train.corpus, np.random.default_rng(job.recipe.seed)
    while True:
        order = random.permutation(len(corpus))
        for first in range(0, len(corpus) - SENTENCES + 1, SENTENCES):
            rows = order[first : first + SENTENCES].tolist()
            sources, lengths = padded([corpus.source(row).tolist() for row in rows])
            targets = [corpus.target(row).tolist() for row in rows]
            inputs = pad_sequence([torch.tensor([START, *ids]) for ids in targets], True, PAD)
            yield sources, lengths, inputs, padded(targets)[0]


def padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Ids with their ends, and their lengths."""
    ids = [torch.tensor([*row, END]) for row in rows]
    return pad_sequence(ids, True, PAD), torch.tensor([len(row) for row in ids])


def bucketed_batches(job: TrainingJob) -> Iterator[tutorial_gru.Batch]:
    """Saccade's batches as the tutorial reads them."""
    for batches in plan(job):
        for batch in batches:
            assert batch.inputs is not None
            source = batch.source.values
            yield source, (source != PAD).sum(1), batch.inputs.values, batch.outputs.values


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────


class NeverEnding:
    """A model that never ends an output by itself."""

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
    """Saccade's search, with outputs of given lengths (the end symbol included)."""

    def run_forced(
        search: Search, model: StepModel, memory: Memory, constraints: Constraints, sentence_ids: list[int], *rest: Any
    ) -> SearchResults:
        forced = Constraints.of([lengths[number] for number in sentence_ids])
        return loops.run_search(search, NeverEnding(model), memory, forced, sentence_ids, *rest)

    with mock.patch.object(search_engine, "run_search", run_forced):
        yield


@contextmanager
def as_long(model: tutorial_gru.Translator, lengths: Tensor) -> Iterator[None]:
    """The tutorial's decoder, with outputs of given lengths (the end included)."""
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
    """The sentences to translate, and how long each output shall be (the end included)."""

    def __init__(self, job: TrainingJob):
        self.tokenizer = job.codecs.source
        self.sources = [pair.source for pair in job.dev]
        self.source_lengths = [len(ids) + 1 for ids in self.tokenizer.encode(self.sources)]
        self.lengths = [len(ids) + 1 for ids in self.tokenizer.encode([pair.target for pair in job.dev])]

    def sorted(self) -> list[int]:
        return sorted(range(len(self.sources)), key=lambda row: self.source_lengths[row])


def decoding(job: TrainingJob, text: TestText, batch_tokens: int) -> Work:
    """All sentences by Saccade's engine."""
    engine = torch_engine(job.model, job.codecs.source, job.codecs.target)
    decode = DecodeConfig(search=Choice("greedy", Greedy, {}), batch_tokens=batch_tokens)

    def work() -> int:
        with forced_lengths(text.lengths):
            found = dict(engine.generate(text.sources, decode))
        assert [len(found[row][0].ids) for row in range(len(found))] == text.lengths
        return len(found)

    return work


def peer_decoding(model: tutorial_gru.Translator, text: TestText, order: Sequence[int], stop: bool) -> Work:
    """All sentences by the tutorial, in a given order. It may make as many steps as the longest reference needs."""
    longest = max(text.lengths)

    def work() -> int:
        found: dict[int, str] = {}
        for first in range(0, len(order), AT_ONCE):
            rows = order[first : first + AT_ONCE]
            sources, lengths = padded(text.tokenizer.encode([text.sources[row] for row in rows]))
            ends = [text.lengths[row] for row in rows]
            with as_long(model, torch.tensor(ends)):
                outputs = tutorial_gru.greedy(model, sources, lengths, longest, stop)
            assert [len(ids) + 1 for ids in outputs] == ends
            found |= {row: text.tokenizer.decode(ids) for row, ids in zip(rows, outputs, strict=True)}
        return len(found)

    return work


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────


def rates(works: dict[str, Work], rounds: int, repeats: int) -> dict[str, float]:
    """The median of work a second. All warm up, then they take turns, so that a slow minute hits all alike."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            began = time.perf_counter()
            done = sum(work() for _ in range(repeats))
            if number:
                found[name].append(done / (time.perf_counter() - began))
    return {name: statistics.median(each) for name, each in found.items()}


def show(title: str, unit: str, found: dict[str, float]) -> None:
    """A table; the first row is Saccade's, and how many times faster it is stands in the others."""
    ours = next(iter(found.values()))
    print(f"\n{title}")
    for name, rate in found.items():
        print(f"  {name:<50} {rate:10,.1f} {unit}   {ours / rate:6.2f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where Multi30k is")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each system")
    parser.add_argument("--updates", type=int, default=5, help="updates in a turn")
    parser.add_argument("--dim", type=int, default=256, help="width of everything")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    job = prepare(recipe(given.folder, given.dim), RunFolder(Path("no-run")), Silent())
    tutorial, same = (
        tutorial_gru.Translator(job.codecs.source.size, given.dim, DROPOUT, narrow=narrow) for narrow in (False, True)
    )
    text = TestText(job)
    at_once = AT_ONCE * round(statistics.mean(text.source_lengths))
    training: dict[str, Work] = {
        "Saccade": learning(job),
        "tutorial, 128 random sentences": peer_learning(tutorial, random_batches(job)),
        "tutorial, Saccade's batches": peer_learning(tutorial, bucketed_batches(job)),
        "tutorial, Saccade's batches and output layer": peer_learning(same, bucketed_batches(job)),
    }
    in_file = range(len(text.sources))
    writing: dict[str, Work] = {
        "Saccade, about 32 a batch": decoding(job, text, at_once),
        "Saccade, its usual batches": decoding(job, text, job.recipe.decode.batch_tokens),
        "tutorial, always all steps": peer_decoding(tutorial, text, in_file, stop=False),
        "tutorial, until all have ended": peer_decoding(tutorial, text, in_file, stop=True),
        "tutorial, the same, sorted, Saccade's output layer": peer_decoding(same, text, text.sorted(), stop=True),
    }
    sizes = {"Saccade": job.model, "tutorial": tutorial, "tutorial, Saccade's output layer": same}
    parameters = {name: sum(p.numel() for p in model.parameters()) for name, model in sizes.items()}
    trained, written = rates(training, given.rounds, given.updates), rates(writing, given.rounds, 1)
    if given.json:
        print(json.dumps({"parameters": parameters, "training": trained, "decoding": written}, indent=1))
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, width {given.dim}")
    print("parameters: " + "; ".join(f"{name} {count:,}" for name, count in parameters.items()))
    show("training, and Saccade's rate over it", "target tokens/s", trained)
    show("greedy decoding, and Saccade's rate over it", "sentences/s", written)


if __name__ == "__main__":
    main()
