"""Training speed: Saccade compared with plain training loops over transformers' Marian and torch's nn.Transformer, and
with an upper limit: the time that the model's matrix products alone take.

    python benchmarks/train.py DIR [--sizes tiny base] [--rounds 5] [--updates 6] [--json]

DIR holds Multi30k: train.en.gz, train.de.gz, val.en.gz, val.de.gz. All systems get the same batches of 4,096 padded
tokens, and have the same sizes, loss, gradient clipping and AdamW. Each runs in its own process. They take turns, so
that a slow minute of the machine affects all of them; the reported ratios are medians of the ratios within a round.

The limit computes every matrix product of an update (the forward product and both backward products) at the model's
shapes, without padding: either with all threads on each product or with one thread per shard of the batch, whichever is
faster. There are two limits. The limit of torch.mm, with preallocated outputs, bounds every program that uses torch's
own products, as both peers do. The other limit uses oneDNN where Saccade does (`parts/fast_linear.py`); elsewhere the
two are equal.

Memory is the peak size of the process over the largest batches, minus its size before the first update.
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

from saccade.config import plain
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
CHUNK_ROWS = (512, 1024, 2048, 4096)  # chunk sizes of the output layer that the limit tries; it uses the fastest

Step = Callable[[Batch], None]


def recipe(folder: Path, size: str) -> Recipe:
    """The preset on Multi30k with a joint vocabulary; post-norm, because both peers are."""
    data = {
        split: {"kind": "pairs", "src": f"{name}.en.gz", "tgt": f"{name}.de.gz"}
        for split, name in (("train", "train"), ("dev", "val"))
    }
    return recipe_of(
        {
            "extends": f"transformer-{size}",
            "data": {"folder": str(folder), **data, "tokenizer": {"kind": "sentencepiece", "size": 8000}},
            "task": {"kind": "translation", "smoothing": SMOOTHING},
            "model": {"block": {"connection": "post"}},
            "train": {"batch_tokens": 4096, "clip": CLIP},
        }
    )


def sizes(job: TrainingJob) -> Sizes:
    model = plain(job.recipe.model)
    block = model["encoder"]["block"]
    return Sizes(
        vocabulary=job.codecs.target.size,
        dim=model["dim"],
        depth=model["encoder"]["depth"],
        heads=block["self"]["heads"],
        inner=block["feed_forward"]["inner"],
        dropout=model["dropout"]["residual"],
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
    """All matrix products of an update, with preallocated outputs, computed by torch.mm or as Saccade computes them."""

    def __init__(self, sizes: Sizes, as_saccade: bool):
        self.sizes, self._as_saccade = sizes, as_saccade and fast_linear.prefers_onednn()
        self._buffers: dict[tuple[str, int], Tensor] = {}
        self._chunk_rows = min(CHUNK_ROWS, key=lambda chunk: timed(lambda: self.output(4096, chunk)))

    def __call__(self, batch: Batch) -> None:
        s, d = batch.source_tokens, self.sizes.dim
        t, inner = batch.target_tokens, self.sizes.inner
        assert batch.source is not None
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
            self.linear(t, d, d)  # cross-attention: queries of the target, then keys and values of the source
            self.linear(s, d, 2 * d)
            self.attention(rows, longest_t, longest_s)
            self.linear(t, d, d)
            self.linear(t, d, inner)
            self.linear(t, inner, d)
        self.output(t, self._chunk_rows)

    def linear(self, rows: int, inputs: int, outputs: int) -> None:
        """y = x W, and the gradients of x and W."""
        if self._as_saccade:
            rows = fast_linear.padded_count(rows)
            x, weight, y = (
                self.buffer("x", rows, inputs),
                self.buffer("w", outputs, inputs),
                self.buffer("y", rows, outputs),
            )
            fast_linear.linear_no_grad(x, weight)
            fast_linear.linear_no_grad(y, weight.t())
            # the weight gradient yᵀx; where there are more outputs than inputs, its transpose xᵀy, which Saccade's
            # output layer accumulates
            fast_linear.linear_no_grad(*(y.t(), x.t()) if outputs <= inputs else (x.t(), y.t()))
            return
        x, weight, y = (
            self.buffer("x", rows, inputs),
            self.buffer("w", inputs, outputs),
            self.buffer("y", rows, outputs),
        )
        torch.mm(x, weight, out=y)
        torch.mm(y, weight.T, out=x)
        torch.mm(x.T, y, out=weight)

    def attention(self, rows: int, queries: int, keys: int) -> None:
        """The scores and the weighted sum, and the gradients of queries, keys, weights and values."""
        batch, width = rows * self.sizes.heads, self.sizes.dim // self.sizes.heads
        q, k = self.buffer("q", batch, queries, width), self.buffer("k", batch, keys, width)
        weights = self.buffer("a", batch, queries, keys)
        for _ in range(2):  # six products of these shapes, two forward and four backward; the buffers stand in for both
            torch.bmm(q, k.transpose(1, 2), out=weights)
            torch.bmm(weights, k, out=q)
            torch.bmm(weights.transpose(1, 2), q, out=k)

    def output(self, rows: int, chunk: int) -> None:
        """The output layer, in chunks of rows."""
        for first in range(0, rows, chunk):
            self.linear(min(chunk, rows - first), self.sizes.dim, self.sizes.vocabulary)

    def buffer(self, name: str, *shape: int) -> Tensor:
        """A tensor of this shape in the buffer of this name. Its values are zero and stay zero."""
        count = torch.Size(shape).numel()
        stored = self._buffers.get((name, len(shape)))
        if stored is None or stored.numel() < count:
            stored = self._buffers[name, len(shape)] = torch.zeros(2 * count)
        return stored[:count].view(shape)


class Limit:
    """The matrix products of an update, computed in the faster of two ways: all threads on each product, or one thread
    per shard of the batch."""

    def __init__(self, sizes: Sizes, as_saccade: bool):
        threads = torch.get_num_threads()
        self._all_threads = Products(sizes, as_saccade)
        self._pool = ThreadPoolExecutor(threads, "limit", torch.set_num_threads, (1,))
        self._shard_products = [*self._pool.map(lambda _: Products(sizes, as_saccade), range(threads))]
        self._faster: Step | None = None

    def __call__(self, batch: Batch) -> None:
        if self._faster is None:
            self._faster = min((self._all_threads, self._thread_per_shard), key=lambda step: timed(lambda: step(batch)))
        self._faster(batch)

    def _thread_per_shard(self, batch: Batch) -> None:
        for _ in self._pool.map(
            lambda products, shard: products(shard), self._shard_products, batch.split(len(self._shard_products))
        ):
            pass  # the iteration raises an error of a thread


def timed(work: Callable[[], Any]) -> float:
    """The shortest of four measured times."""
    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


# ── one process per system ────────────────────────────────────────────────────────────────────────────


def worker(system: str, size: str, folder: Path, scratch: Path) -> None:
    """For each number on stdin, run so many updates and print their time and tokens; for `peak`, print the peak
    memory."""
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
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of learning the tokenizer
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
    """A memory value of this process, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


class Worker:
    """A system in its own process."""

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


# ── taking turns ─────────────────────────────────────────────────────────────────────────────────────────


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
                summary = ", ".join(f"{system} {speeds[system][-1]:,.0f}" for system in SYSTEMS)
                print(f"{size}, round {turn + 1} of {rounds}: {summary} target tokens/s", file=sys.stderr)
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


def lines(size: str, figures: dict[str, float]) -> Iterator[str]:
    yield f"transformer-{size}: {figures['tokens_per_second']:,.0f} target tokens/s"
    yield f"  {figures['ratio_to_marian']:.2f} × transformers' Marian ({figures['marian_tokens_per_second']:,.0f})"
    torch_speed = figures["nn_transformer_tokens_per_second"]
    yield f"  {figures['ratio_to_nn_transformer']:.2f} × nn.Transformer ({torch_speed:,.0f})"
    yield f"  {figures['share_of_limit']:.0%} of the limit ({figures['limit_tokens_per_second']:,.0f})"
    torch_limit = figures["torch_limit_tokens_per_second"]
    yield f"  {figures['share_of_torch_limit']:.0%} of the limit of torch.mm ({torch_limit:,.0f})"
    yield (
        f"  memory of an update {figures['peak_memory_mb']:,.0f} MB, {figures['peak_memory_ratio']:.2f} of Marian's; "
        f"of the whole process {figures['peak_process_ratio']:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of Multi30k")
    parser.add_argument("--sizes", nargs="+", default=["tiny", "base"], choices=["tiny", "base"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker, arguments.sizes[0], arguments.folder, arguments.scratch)
        return
    results = {size: measure(size, arguments.folder, arguments.rounds, arguments.updates) for size in arguments.sizes}
    if arguments.json:
        print(json.dumps(results, indent=2))
    else:
        print("\n".join(line for size, figures in results.items() for line in lines(size, figures)))


if __name__ == "__main__":
    main()
