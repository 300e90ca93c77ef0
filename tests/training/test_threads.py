"""Shares of a batch on threads of their own give the gradients of the whole, and the same bits each time."""

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
from saccade.models.assemble import Model, ModelConfig, assemble, spread_block
from saccade.parts import fast_linear
from saccade.recipe import read_recipe
from saccade.runs.folder import RunFolder
from saccade.tasks.tagging import Tagging
from saccade.tasks.translation import Translation
from saccade.training import threads
from saccade.training.loop import train
from saccade.training.progress import Silent
from saccade.training.strategies import SingleReplica
from saccade.training.threads import ThreadedReplicas, can_thread

V, DIM = 100, 16
BLOCK = {"self": {"heads": 2}, "cross": {"heads": 2}, "feed_forward": {"inner": 24}}
STACKED = {"dim": DIM, "block": BLOCK, "encoder": {"depth": 2}, "decoder": {"depth": 2}}
RECURRENT = {"dim": DIM, "encoder": {"kind": "recurrent"}, "decoder": {"kind": "recurrent"}}
STILL = {"dropout": {"residual": 0.0, "embedding": 0.0}}
LIVELY = {"dropout": {"residual": 0.4, "embedding": 0.4, "attention": 0.2, "feed_forward": 0.2}}


@pytest.fixture(autouse=True, params=["in turn", "apart", "each once"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test three times: with several shares a thread, whose gradients are added in turn or kept apart, and with
    one."""
    monkeypatch.setattr(threads, "MIN_SHARD_TOKENS", 8)
    monkeypatch.setattr(threads, "MAX_LAYER_ACTIVATIONS", 10_000 * DIM if request.param == "each once" else 0)
    monkeypatch.setattr(threads, "MAX_SEPARATE_GRADIENTS", 0 if request.param == "in turn" else 2**30)
    return request.param


def model_of(tree: dict[str, Any], writes: bool = True) -> Model:
    config = resolve(ModelConfig, [python_layer(tree)], spread_block).config
    torch.manual_seed(0)
    return perturbed(assemble(config, V, V, has_decoder=writes), by=0.1).train()


def batch_of(rows: int = 23) -> Batch:
    corpus = random_corpus(rows)
    return corpus.batch(range(rows))


def learned(learner: Any, batch: Batch) -> tuple[Any, dict[str, Tensor]]:
    learner.model.zero_grad(set_to_none=True)
    loss = learner.backward(batch, last=True)
    return loss, {name: p.grad.clone() for name, p in learner.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("tree", [STACKED, RECURRENT], ids=["stacked", "recurrent"])
@pytest.mark.parametrize("count", [2, 3])
def test_shares_have_the_gradients_of_the_whole(tree: dict[str, Any], count: int) -> None:
    model, task, batch = model_of(tree | STILL), Translation(), batch_of()
    whole, expected = learned(SingleReplica(model, task), batch)
    loss, found = learned(ThreadedReplicas(model, task, count, DIM), batch)
    assert loss.count == whole.count
    assert loss.logged.keys() == whole.logged.keys()
    assert loss.logged["cost"] == pytest.approx(whole.logged["cost"], rel=1e-5)
    assert float(loss.total) == pytest.approx(float(whole.total.detach()), rel=1e-5)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_gradients_are_added_to_those_of_the_batch_before() -> None:
    model, task = model_of(STACKED | STILL), Translation()
    learner = ThreadedReplicas(model, task, 2, DIM)
    _, once = learned(learner, batch_of())
    learner.backward(batch_of(), last=True)
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, 2 * once[name])


def test_the_same_draws_give_the_same_bits_and_others_do_not() -> None:
    learner, batch = ThreadedReplicas(model_of(STACKED | LIVELY), Translation(), 2, DIM), batch_of()

    def after(seed: int) -> dict[str, Tensor]:
        torch.manual_seed(seed)
        return learned(learner, batch)[1]

    first, again, other = after(5), after(5), after(6)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_doubles_draw_apart_from_each_other(way: str) -> None:
    """Rows that are alike come out unlike, whichever thread had them."""
    model = model_of(STACKED | LIVELY)
    row = [[5, 6, 7, 8]] * 16
    batch = Corpus(row, row).batch(range(16))
    heard: list[float] = []

    class Listening(Translation):
        def loss(self, model: Model, batch: Batch) -> Any:
            loss = super().loss(model, batch)
            heard.append(float(loss.total.detach()))
            return loss

    ThreadedReplicas(model, Listening(), 2, DIM).backward(batch, last=True)
    assert len(heard) == 2 if way == "each once" else len(heard) > 2
    assert len(set(heard)) == len(heard)


def test_labels_are_shared_out_too() -> None:
    model, task = model_of(STACKED | STILL | {"head": "linear", "shared_embeddings": False}, writes=False), Tagging()
    ids = torch.randint(4, V, (9, 7))
    keep = torch.arange(7) < torch.randint(2, 8, (9,))[:, None]
    batch = Batch(tuple(range(9)), Padded(ids, keep), None, Padded(torch.randint(0, V, (9, 7)), keep))
    whole, expected = learned(SingleReplica(model, task), batch)
    loss, found = learned(ThreadedReplicas(model, task, 2, DIM), batch)
    assert loss.count == whole.count
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4)


def test_what_a_pass_leaves_for_the_next_cannot_be_shared() -> None:
    hard = BLOCK | {"cross": {"heads": 2, "normalizer": "hard"}}
    assert can_thread(model_of(STACKED))
    assert not can_thread(model_of(STACKED | {"block": hard}))


def test_a_cut_keeps_every_row_and_trims_what_is_padding() -> None:
    batch = batch_of(40)
    parts = batch.split(4)
    assert tuple(row for part in parts for row in part.rows) == batch.rows
    assert sum(part.target_tokens for part in parts) == batch.target_tokens
    assert sum(part.padded_tokens for part in parts) < batch.padded_tokens
    for part in parts:
        assert part.inputs is not None
        at = part.rows[0]
        for ours, theirs in ((part.source, batch.source), (part.inputs, batch.inputs), (part.outputs, batch.outputs)):
            assert theirs is not None
            width = ours.values.shape[1]
            assert torch.equal(ours.values, theirs.values[at : at + len(part.rows), :width])
            assert ours.keep is None or bool(ours.keep.any(0).all())
        assert int((part.outputs.values == END).sum()) >= len(part.rows)


def test_no_more_parts_than_rows() -> None:
    assert [len(part.rows) for part in batch_of(3).split(7)] == [1, 1, 1]


def test_a_row_that_cannot_be_shared_goes_to_one_thread() -> None:
    model, task = model_of(STACKED | STILL), Translation()
    long = [*range(4, 90)]
    batch = Corpus([long], [long]).batch([0])
    _, expected = learned(SingleReplica(model, task), batch)
    _, found = learned(ThreadedReplicas(model, task, 3, DIM), batch)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4)


def test_what_takes_no_part_has_no_gradient() -> None:
    """As on one thread: a gradient of zero would still let the optimizer move it."""
    model = model_of(STACKED | STILL)
    model.register_parameter("idle", torch.nn.Parameter(torch.ones(3)))
    _, found = learned(ThreadedReplicas(model, Translation(), 2, DIM), batch_of())
    assert "idle" not in found
    assert found


def test_a_thread_that_fails_lets_none_wait() -> None:
    working = threading.Event()

    class Failing(Translation):
        def loss(self, model: Model, batch: Batch) -> Any:
            if batch.rows[0] == 0:
                working.wait(10)
                raise FloatingPointError("the first share")
            working.set()
            time.sleep(0.2)
            return super().loss(model, batch)

    learner = ThreadedReplicas(model_of(STACKED | STILL), Failing(), 2, DIM)
    with pytest.raises(FloatingPointError, match="the first share"):
        learner.backward(batch_of(), last=True)
    learner.task, rest = Translation(), batch_of()
    whole = learned(SingleReplica(learner.model, Translation()), rest)[1]
    for name, gradient in learned(learner, rest)[1].items():
        torch.testing.assert_close(gradient, whole[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("library", ["torch", "oneDNN"])
def test_a_training_on_two_threads_goes_on_with_the_same_bits(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, library: str
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

    shared: list[int] = []
    name = "_backward_in_order" if way == "in turn" else "_separate_gradients"
    before = getattr(ThreadedReplicas, name)
    monkeypatch.setattr(ThreadedReplicas, name, lambda *given: shared.append(1) or before(*given))
    torch.set_num_threads(2)
    try:
        assert weights("stopped", 6, 12) == weights("at once", 12)
    finally:
        torch.set_num_threads(1)
    assert len(shared) > 24, "two shares an update, or it was not shared"
