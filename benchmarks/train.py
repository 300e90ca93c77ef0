"""Training speed: Saccade beside the plain loops over transformers' Marian and torch's nn.Transformer, and beside the
limit: the time that the matrix products of the model take alone.

    python benchmarks/train.py DIR [--sizes tiny base] [--rounds 5] [--updates 6] [--json]

DIR holds Multi30k: train.en.gz, train.de.gz, val.en.gz, val.de.gz. All systems get the same batches of 4,096 padded
tokens, the same sizes, loss, clipping and AdamW. Each lives in a process of its own; they take turns, so that a slow
minute of the machine hits all of them, and the medians of the ratios within a round are given.

The limit runs every product of an update (forward, and both of backward) at the model's own shapes, real tokens only:
with all threads on each product, or a thread for each part of the batch, whichever is faster. There are two of them.
That of torch.mm, into memory that is there already, is what no program can pass that multiplies as torch does by
itself, as both peers do. The other multiplies with oneDNN where Saccade does (`parts/fast_linear.py`), and is the same
where it does not.

Memory is what the process grows by over its size before the first update, at its peak over the largest batches.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peers.transformer_loops import Marian, Sizes, TorchTransformer, train_step
from torch import Tensor

from saccade.data.batches import Batch, SamplerState, updates
from saccade.parts import fast_linear
from saccade.recipe import Recipe, recipe_of
from saccade.runs.folder import RunFolder
from saccade.training.dry_run import largest_batch
from saccade.training.job import TrainingJob, prepare
from saccade.training.loop import update
from saccade.training.progress import Silent
from saccade.training.state import TrainingState

SYSTEMS = ("saccade", "marian", "nn_transformer", "torch_limit", "limit")
SMOOTHING, CLIP = 0.1, 1.0
CHUNKS = (512, 1024, 2048, 4096)  # rows of the output product that the limit tries; the fastest counts

Step = Callable[[Batch], None]


def recipe(folder: Path, size: str) -> Recipe:
    """The preset on Multi30k with joint pieces; post-norm, since both peers are."""
    text = {
        split: {"kind": "pairs", "src": f"{name}.en.gz", "tgt": f"{name}.de.gz"}
        for split, name in (("train", "train"), ("dev", "val"))
    }
    return recipe_of(
        {
            "extends": f"transformer-{size}",
            "data": {"folder": str(folder), **text, "tokenizer": {"kind": "sentencepiece", "size": 8000}},
            "task": {"kind": "translation", "smoothing": SMOOTHING},
            "model": {"block": {"connection": "post"}},
            "train": {"batch_tokens": 4096, "clip": CLIP},
        }
    )


def sizes(job: TrainingJob) -> Sizes:
    model = job.recipe.model
    block = model.encoder.options["block"].options
    return Sizes(
        vocabulary=job.codecs.source.size,
        dim=model.dim,
        depth=model.encoder.options["depth"],
        heads=block["self"].options["heads"],
        inner=block["feed_forward"].options["inner"],
        dropout=model.dropout.residual,
    )


# ── the systems ───────────────────────────────────────────────────────────────────────────────────


def saccade_step(job: TrainingJob) -> Step:
    state = TrainingState()
    job.model.train()
    return lambda batch: update(job, state, [batch])


def peer_step(job: TrainingJob, peer: Callable[[Sizes], torch.nn.Module]) -> Step:
    torch.manual_seed(1)
    model = peer(sizes(job)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    return lambda batch: train_step(model, optimizer, batch, SMOOTHING, CLIP)


class Products:
    """All matrix products of an update, in memory that is there already, by torch.mm or as Saccade multiplies."""

    def __init__(self, sizes: Sizes, as_saccade: bool):
        self.sizes, self._as_saccade = sizes, as_saccade and fast_linear.prefers_onednn()
        self._cross_part: dict[tuple[str, int], Tensor] = {}
        self._chunk = min(CHUNKS, key=lambda chunk: timed(lambda: self.output(4096, chunk)))

    def __call__(self, batch: Batch) -> None:
        s, d = batch.source_tokens, self.sizes.dim
        t, inner = batch.target_tokens, self.sizes.inner
        rows, longest_s, longest_t = *batch.source.values.shape, batch.outputs.values.shape[1]
        for _ in range(self.sizes.depth):
            self.linear(s, d, 3 * d)  # queries, keys and values of the source
            self.attention(rows, longest_s, longest_s)
            self.linear(s, d, d)
            self.linear(s, d, inner)
            self.linear(s, inner, d)
            self.linear(t, d, 3 * d)
            self.attention(rows, longest_t, longest_t)
            self.linear(t, d, d)
            self.linear(t, d, d)  # queries of the target, then keys and values of the memory
            self.linear(s, d, 2 * d)
            self.attention(rows, longest_t, longest_s)
            self.linear(t, d, d)
            self.linear(t, d, inner)
            self.linear(t, inner, d)
        self.output(t, self._chunk)

    def linear(self, rows: int, inputs: int, outputs: int) -> None:
        """y = x W, then the gradients of x and W."""
        if self._as_saccade:
            rows = fast_linear.padded_count(rows)
            x, turned, y = self.of("x", rows, inputs), self.of("w", outputs, inputs), self.of("y", rows, outputs)
            fast_linear.linear_no_grad(x, turned)
            fast_linear.linear_no_grad(y, turned.t())
            fast_linear.linear_no_grad(*(y.t(), x.t()) if outputs <= inputs else (x.t(), y.t()))
            return
        x, weight, y = self.of("x", rows, inputs), self.of("w", inputs, outputs), self.of("y", rows, outputs)
        torch.mm(x, weight, out=y)
        torch.mm(y, weight.T, out=x)
        torch.mm(x.T, y, out=weight)

    def attention(self, rows: int, queries: int, keys: int) -> None:
        """Scores and their use, then the gradients of queries, keys, weights and values."""
        batch, width = rows * self.sizes.heads, self.sizes.dim // self.sizes.heads
        q, k = self.of("q", batch, queries, width), self.of("k", batch, keys, width)
        weights = self.of("a", batch, queries, keys)
        for _ in range(2):
            torch.bmm(q, k.transpose(1, 2), out=weights)
            torch.bmm(weights, k, out=q)
            torch.bmm(weights.transpose(1, 2), q, out=k)

    def output(self, rows: int, chunk: int) -> None:
        """The product with the table, a chunk of rows at a time."""
        for first in range(0, rows, chunk):
            self.linear(min(chunk, rows - first), self.sizes.dim, self.sizes.vocabulary)

    def of(self, name: str, *shape: int) -> Tensor:
        """A tensor of this shape in memory kept under this name. Its numbers are small and stay so."""
        count = torch.Size(shape).numel()
        known = self._cross_part.get((name, len(shape)))
        if known is None or known.numel() < count:
            known = self._cross_part[name, len(shape)] = torch.zeros(2 * count)
        return known[:count].view(shape)


class Limit:
    """The products of an update in the faster of two ways: all threads on each, or a thread for each part."""

    def __init__(self, sizes: Sizes, as_saccade: bool):
        threads = torch.get_num_threads()
        self._whole = Products(sizes, as_saccade)
        self._pool = ThreadPoolExecutor(threads, "limit", torch.set_num_threads, (1,))
        self._parts = [*self._pool.map(lambda _: Products(sizes, as_saccade), range(threads))]
        self._faster: Step | None = None

    def __call__(self, batch: Batch) -> None:
        if self._faster is None:
            self._faster = min((self._whole, self._side_by_side), key=lambda way: timed(lambda: way(batch)))
        self._faster(batch)

    def _side_by_side(self, batch: Batch) -> None:
        for _ in self._pool.map(lambda each, part: each(part), self._parts, batch.split(len(self._parts))):
            pass  # an error would be raised here


def timed(work: Callable[[], Any]) -> float:
    """The fastest of a few times."""
    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


# ── a process for each ────────────────────────────────────────────────────────────────────────────


def worker(system: str, size: str, folder: Path, scratch: Path) -> None:
    """Answer each number on stdin with what so many updates brought; answer `peak` with the memory they took."""
    job = prepare(recipe(folder, size), RunFolder(scratch), Silent())
    before = memory("VmRSS")
    steps: dict[str, Callable[[], Step]] = {
        "saccade": lambda: saccade_step(job),
        "marian": lambda: peer_step(job, Marian),
        "nn_transformer": lambda: peer_step(job, TorchTransformer),
        "torch_limit": lambda: Limit(sizes(job), as_saccade=False),
        "limit": lambda: Limit(sizes(job), as_saccade=True),
    }
    step = steps[system]()
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far was that of learning the tokenizer
    before = memory("VmRSS")
    plan = batches(job)
    step(job.train.corpus.batch(largest_batch(job)))
    for line in sys.stdin:
        if line.strip() == "peak":
            answer: dict[str, float] = {"before": before, "peak": memory("VmHWM")}
        else:
            chosen = [*islice(plan, int(line))]
            began = time.perf_counter()
            for batch in chosen:
                step(batch)
            answer = {"seconds": time.perf_counter() - began, "tokens": sum(b.target_tokens for b in chosen)}
        print(json.dumps(answer), flush=True)


def batches(job: TrainingJob) -> Iterator[Batch]:
    for update_batches, _ in updates(job.train.corpus, 4096, 0, job.recipe.seed, SamplerState()):
        yield from update_batches


def memory(name: str) -> float:
    """Megabytes of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


class Worker:
    """One system in a process of its own."""

    def __init__(self, system: str, size: str, folder: Path, scratch: Path):
        command = [
            sys.executable,
            __file__,
            str(folder),
            "--worker",
            system,
            "--sizes",
            size,
            "--scratch",
            str(scratch),
        ]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question: str | int) -> dict[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(question, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


# ── turns ─────────────────────────────────────────────────────────────────────────────────────────


def measure(size: str, folder: Path, rounds: int, count: int) -> dict[str, float]:
    with TemporaryDirectory() as scratch:
        workers = {system: Worker(system, size, folder, Path(scratch)) for system in SYSTEMS}
        try:
            for each in workers.values():
                each.ask(2)
            speeds: dict[str, list[float]] = {system: [] for system in SYSTEMS}
            for turn in range(rounds):
                for system in SYSTEMS:
                    answer = workers[system].ask(count)
                    speeds[system].append(answer["tokens"] / answer["seconds"])
                told = ", ".join(f"{system} {speeds[system][-1]:,.0f}" for system in SYSTEMS)
                print(f"{size}, round {turn + 1} of {rounds}: {told} target tokens/s", file=sys.stderr)
            peaks = {system: each.ask("peak") for system, each in workers.items()}
        finally:
            for each in workers.values():
                each.close()
    return result(speeds, peaks)


def result(speeds: dict[str, list[float]], peaks: dict[str, dict[str, float]]) -> dict[str, float]:
    def ratio(to: str) -> float:
        return statistics.median(a / b for a, b in zip(speeds["saccade"], speeds[to], strict=True))

    grown = {system: peak["peak"] - peak["before"] for system, peak in peaks.items()}
    return {
        "tokens_per_second": statistics.median(speeds["saccade"]),
        "marian_tokens_per_second": statistics.median(speeds["marian"]),
        "nn_transformer_tokens_per_second": statistics.median(speeds["nn_transformer"]),
        "limit_tokens_per_second": statistics.median(speeds["limit"]),
        "torch_limit_tokens_per_second": statistics.median(speeds["torch_limit"]),
        "ratio_to_marian": ratio("marian"),
        "ratio_to_nn_transformer": ratio("nn_transformer"),
        "share_of_limit": ratio("limit"),
        "share_of_torch_limit": ratio("torch_limit"),
        "peak_memory_mb": grown["saccade"],
        "marian_peak_memory_mb": grown["marian"],
        "peak_memory_ratio": grown["saccade"] / grown["marian"],
        "peak_process_ratio": peaks["saccade"]["peak"] / peaks["marian"]["peak"],
    }


def lines(size: str, found: dict[str, float]) -> Iterator[str]:
    yield f"transformer-{size}: {found['tokens_per_second']:,.0f} target tokens/s"
    yield f"  {found['ratio_to_marian']:.2f} × transformers' Marian ({found['marian_tokens_per_second']:,.0f})"
    torch_speed = found["nn_transformer_tokens_per_second"]
    yield f"  {found['ratio_to_nn_transformer']:.2f} × nn.Transformer ({torch_speed:,.0f})"
    yield f"  {found['share_of_limit']:.0%} of the limit ({found['limit_tokens_per_second']:,.0f})"
    torch_limit = found["torch_limit_tokens_per_second"]
    yield f"  {found['share_of_torch_limit']:.0%} of the limit of torch.mm ({torch_limit:,.0f})"
    yield (
        f"  memory of an update {found['peak_memory_mb']:,.0f} MB, {found['peak_memory_ratio']:.2f} of Marian's; "
        f"of the whole process {found['peak_process_ratio']:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", nargs="+", default=["tiny", "base"], choices=["tiny", "base"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker, given.sizes[0], given.folder, given.scratch)
        return
    found = {size: measure(size, given.folder, given.rounds, given.updates) for size in given.sizes}
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(line for size, each in found.items() for line in lines(size, each)))


if __name__ == "__main__":
    main()
