"""Threaded replicas compute the gradients of the whole batch, with the same bits each time."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.checks.batches import random_corpus
from contracts.checks.common import perturbed
from saccade.config import python_layer, resolve
from saccade.data.batches import Batch, Corpus, Padded
from saccade.data.tokenizers import END
from saccade.inputs import Tokens
from saccade.models.assemble import Model, ModelConfig, Reads, assemble, expand_block, sides_with_blocks
from saccade.parts import fast_linear
from saccade.recipe import read_recipe
from saccade.runs.folder import RunFolder
from saccade.tasks.tagging import Tagging
from saccade.tasks.translation import Translation
from saccade.training import threads
from saccade.training.loop import train
from saccade.training.progress import Silent
from saccade.training.strategies import SingleProcessStrategy
from saccade.training.threads import ThreadedReplicas, can_thread

V, DIM = 100, 16
BLOCK = {"self": {"heads": 2}, "cross": {"heads": 2}, "feed_forward": {"inner": 24}}
STACKED = {"dim": DIM, "block": BLOCK, "encoder": {"depth": 2}, "decoder": {"depth": 2}}
RECURRENT = {"dim": DIM, "encoder": {"kind": "recurrent"}, "decoder": {"kind": "recurrent"}}
NO_DROPOUT = {"dropout": {"residual": 0.0, "embedding": 0.0}}
STOCHASTIC_DEPTH = {"block": BLOCK | {"connection": {"kind": "pre", "stochastic_depth": 0.5}}}
DEEP_RECURRENT = {
    "dim": DIM,
    "encoder": {"kind": "recurrent", "depth": 2},
    "decoder": {"kind": "recurrent", "depth": 2, "cell": "lstm", "attend": "after"},
}
DROPOUT = {"dropout": {"residual": 0.4, "embedding": 0.4, "attention": 0.2, "feed_forward": 0.2}}
DRAWING = {
    "dropout": STACKED | DROPOUT,
    "stochastic depth": STACKED | NO_DROPOUT | STOCHASTIC_DEPTH,
    "dropout between recurrent layers": DEEP_RECURRENT | {"dropout": {"residual": 0.4, "embedding": 0.0}},
}
every_drawing_model = pytest.mark.parametrize("tree", DRAWING.values(), ids=DRAWING)


@pytest.fixture(autouse=True, params=["in order", "separate", "one shard each"])
def accumulation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run every test three times: with several shards per thread, whose gradients are added in order or kept separate,
    and with one shard per thread."""
    monkeypatch.setattr(threads, "MIN_SHARD_TOKENS", 8)
    monkeypatch.setattr(threads, "MAX_LAYER_ACTIVATIONS", 10_000 * DIM if request.param == "one shard each" else 0)
    monkeypatch.setattr(threads, "MAX_SEPARATE_GRADIENTS", 0 if request.param == "in order" else 2**30)
    return request.param


def model_of(tree: dict[str, Any], reads: Reads = "decoder") -> Model:
    layer = python_layer(tree)
    config = resolve(ModelConfig, expand_block(layer, sides_with_blocks(layer))).config
    torch.manual_seed(0)
    return perturbed(assemble(config, Tokens(V), V, reads), by=0.1).train()


def batch_of(rows: int = 23) -> Batch:
    corpus = random_corpus(rows)
    return corpus.batch(range(rows))


def loss_and_gradients(strategy: Any, batch: Batch) -> tuple[Any, dict[str, Tensor]]:
    strategy.model.zero_grad(set_to_none=True)
    loss = strategy.backward(batch, last=True)
    return loss, {name: p.grad.clone() for name, p in strategy.model.named_parameters() if p.grad is not None}


@pytest.mark.slow
@pytest.mark.parametrize("tree", [STACKED, RECURRENT], ids=["stacked", "recurrent"])
@pytest.mark.parametrize("count", [2, 3])
def test_shards_sum_to_the_gradients_of_the_whole_batch(tree: dict[str, Any], count: int) -> None:
    model, task, batch = model_of(tree | NO_DROPOUT), Translation(), batch_of()
    whole_loss, expected = loss_and_gradients(SingleProcessStrategy(model, task), batch)
    loss, gradients = loss_and_gradients(ThreadedReplicas(model, task, count, DIM), batch)
    assert loss.count == whole_loss.count
    assert loss.logged.keys() == whole_loss.logged.keys()
    assert loss.logged["cost"] == pytest.approx(whole_loss.logged["cost"], rel=1e-5)
    assert float(loss.total) == pytest.approx(float(whole_loss.total.detach()), rel=1e-5)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_gradients_accumulate_over_batches() -> None:
    model, task = model_of(STACKED | NO_DROPOUT), Translation()
    replicas = ThreadedReplicas(model, task, 2, DIM)
    _, single = loss_and_gradients(replicas, batch_of())
    replicas.backward(batch_of(), last=True)
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, 2 * single[name])


@pytest.mark.slow
@every_drawing_model
def test_gradients_depend_only_on_the_random_seed(tree: dict[str, Any]) -> None:
    replicas, batch = ThreadedReplicas(model_of(tree), Translation(), 2, DIM), batch_of()

    def gradients(seed: int) -> dict[str, Tensor]:
        torch.manual_seed(seed)
        return loss_and_gradients(replicas, batch)[1]

    first, again, other = gradients(5), gradients(5), gradients(6)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@every_drawing_model
def test_replicas_draw_different_numbers(accumulation: str, tree: dict[str, Any]) -> None:
    """Equal rows get different losses, whichever thread computes them."""
    model = model_of(tree)
    row = [[5, 6, 7, 8]] * 16
    batch = Corpus(row, row).batch(range(16))
    losses: list[float] = []

    class RecordingTranslation(Translation):
        def loss(self, model: Model, batch: Batch) -> Any:
            loss = super().loss(model, batch)
            losses.append(float(loss.total.detach()))
            return loss

    ThreadedReplicas(model, RecordingTranslation(), 2, DIM).backward(batch, last=True)
    assert len(losses) == 2 if accumulation == "one shard each" else len(losses) > 2
    assert len(set(losses)) == len(losses)


def test_shards_of_a_labeled_batch_sum_to_the_gradients_of_the_whole_batch() -> None:
    model, task = model_of(STACKED | NO_DROPOUT | {"head": "linear", "decoder": "none"}, "encoder"), Tagging()
    ids = torch.randint(4, V, (9, 7))
    keep = torch.arange(7) < torch.randint(2, 8, (9,))[:, None]
    batch = Batch(tuple(range(9)), Padded(ids, keep), None, Padded(torch.randint(0, V, (9, 7)), keep))
    whole_loss, expected = loss_and_gradients(SingleProcessStrategy(model, task), batch)
    loss, gradients = loss_and_gradients(ThreadedReplicas(model, task, 2, DIM), batch)
    assert loss.count == whole_loss.count
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4)


def test_models_with_running_buffers_are_not_threaded() -> None:
    hard = BLOCK | {"cross": {"heads": 2, "normalizer": "hard"}}
    assert can_thread(model_of(STACKED))
    assert not can_thread(model_of(STACKED | {"block": hard}))


def test_split_keeps_every_row_and_trims_padding() -> None:
    batch = batch_of(40)
    parts = batch.split(4)
    assert tuple(row for part in parts for row in part.rows) == batch.rows
    assert sum(part.target_tokens for part in parts) == batch.target_tokens
    assert sum(part.padded_tokens for part in parts) < batch.padded_tokens
    for part in parts:
        assert part.inputs is not None
        first = part.rows[0]
        for ours, theirs in ((part.source, batch.source), (part.inputs, batch.inputs), (part.outputs, batch.outputs)):
            assert theirs is not None
            width = ours.values.shape[1]
            assert torch.equal(ours.values, theirs.values[first : first + len(part.rows), :width])
            assert ours.keep is None or bool(ours.keep.any(0).all())
        assert int((part.outputs.values == END).sum()) >= len(part.rows)


def test_split_gives_at_most_one_part_per_row() -> None:
    assert [len(part.rows) for part in batch_of(3).split(7)] == [1, 1, 1]


def test_batch_of_one_row_has_the_gradients_of_a_single_replica() -> None:
    model, task = model_of(STACKED | NO_DROPOUT), Translation()
    long = [*range(4, 90)]
    batch = Corpus([long], [long]).batch([0])
    _, expected = loss_and_gradients(SingleProcessStrategy(model, task), batch)
    _, gradients = loss_and_gradients(ThreadedReplicas(model, task, 3, DIM), batch)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4)


def test_unused_parameter_has_no_gradient() -> None:
    """As without threads. With a gradient of zero, the optimizer would still change it (weight decay, momentum)."""
    model = model_of(STACKED | NO_DROPOUT)
    model.register_parameter("idle", torch.nn.Parameter(torch.ones(3)))
    _, gradients = loss_and_gradients(ThreadedReplicas(model, Translation(), 2, DIM), batch_of())
    assert "idle" not in gradients
    assert gradients


@pytest.mark.slow
def test_error_in_one_thread_does_not_block_the_others() -> None:
    working = threading.Event()

    class Failing(Translation):
        def loss(self, model: Model, batch: Batch) -> Any:
            if batch.rows[0] == 0:
                working.wait(10)
                raise FloatingPointError("the first shard")
            working.set()
            time.sleep(0.2)
            return super().loss(model, batch)

    replicas = ThreadedReplicas(model_of(STACKED | NO_DROPOUT), Failing(), 2, DIM)
    with pytest.raises(FloatingPointError, match="the first shard"):
        replicas.backward(batch_of(), last=True)
    replicas.task, batch = Translation(), batch_of()
    expected = loss_and_gradients(SingleProcessStrategy(replicas.model, Translation()), batch)[1]
    for name, gradient in loss_and_gradients(replicas, batch)[1].items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["torch", "oneDNN"])
def test_resume_on_two_threads_is_bit_exact(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulation: str, library: str
) -> None:
    if library == "oneDNN" and not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(fast_linear, "prefers_onednn", lambda: library == "oneDNN")
    monkeypatch.setattr(fast_linear, "MIN_ONEDNN_MULTIPLICATIONS", 0)

    def weights(name: str, *stops: int) -> bytes:
        run = tmp_path / name
        for updates in stops:
            recipe = read_recipe(str(recipe_file), [f"train.updates={updates}", "train.average=0"]).config
            train(recipe, run, Silent(), allow_change=True)
        newest, _ = RunFolder(run).checkpoints.newest_valid()
        assert newest is not None
        return (newest / "weights.safetensors").read_bytes()

    calls: list[int] = []
    name = "_backward_in_order" if accumulation == "in order" else "_separate_gradients"
    method = getattr(ThreadedReplicas, name)
    monkeypatch.setattr(ThreadedReplicas, name, lambda *arguments: calls.append(1) or method(*arguments))
    torch.set_num_threads(2)
    try:
        assert weights("resumed", 6, 12) == weights("at once", 12)
    finally:
        torch.set_num_threads(1)
    assert len(calls) > 24, "the updates were not computed by two threads"
