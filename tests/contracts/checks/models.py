"""Contracts of a whole model: shapes, gradients, saved weights, precision, dropout rates."""

import copy
import itertools
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from contracts.checks.common import assert_close, assert_differs, perturbed
from contracts.checks.positions import exceeds_limit
from contracts.checks.running import (
    ModelInputs,
    encode,
    keep_layers,
    random_inputs,
    run_model,
    small_corpus,
    vocabulary_sizes,
)
from contracts.variants import B, D, T
from saccade.data.batches import Batch
from saccade.data.tokenizers import SPECIAL
from saccade.models.assemble import Model
from saccade.optim.freeze import freeze
from saccade.parts.token_costs import TokenCost
from saccade.places import select
from saccade.runs.weights import load_weights, write_checkpoint
from saccade.tasks.losses import next_token_loss
from saccade.training import start


def check_shapes(model: Model) -> None:
    """Every shape annotation holds: in training and evaluation mode, with and without capture, for padded, unpadded
    and single rows, and for hypotheses that share a memory. Of the checks that run for every variant, only this one and
    `check_gradients_reach_all_weights` run with shape annotations checked (see `SHAPE_CHECKS` in
    `tests/contracts/test_models.py`); the others run the same code paths without them, because that is faster."""
    keep_layers(model)
    inputs = random_inputs(model)
    unpadded = ModelInputs(inputs.source, None, inputs.target, None)
    for capturing, batch in itertools.product((True, False), (inputs, unpadded, inputs.unpadded_row(1))):
        run_model(model.train(not capturing), batch, capturing)
    outputs = run_model(model.eval(), inputs)
    _, state = model.decoder.step(inputs.target[:, :3], model.decoder.start(outputs.memory, B))
    for rows in ([0, 0, 1, 1, 2, 2], [1, 0, 2, 2, 5, 4]):
        tokens = inputs.target[[0, 0, 1, 1, 2, 2], 3:4]
        hidden, state = model.decoder.step(tokens, select(state, torch.tensor(rows)))
        assert hidden.shape == (2 * B, 1, D)
    target_size = vocabulary_sizes(model)[1]
    if outputs.memory is not None:
        states = outputs.memory.states
        assert (states.shape[0], states.shape[2]) == (B, D)
        assert outputs.memory.places.keep.shape == outputs.memory.places.at.shape == states.shape[:2]
        assert len(outputs.memory.layers) >= 2, "the embedded input and the output of at least one layer"
        assert all(layer.shape == states.shape for layer in outputs.memory.layers)
    assert outputs.hidden.shape == (B, T, D)
    log_probs = model.head.log_probs(outputs.hidden)
    assert log_probs.shape == (B, T, target_size)
    assert_close(log_probs.exp().sum(-1), torch.ones(B, T), "the sum of the probabilities")


def check_gradients_reach_all_weights(model: Model) -> None:
    """Every weight has a finite gradient that is not zero."""
    model.train().zero_grad()
    next_token_loss(model, small_corpus(model).batch(range(4)), TokenCost(0.1)).total.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, f"{name} has no gradient"
        assert weight.grad.isfinite().all(), f"the gradient of {name} is not finite"
        assert weight.grad.any(), f"the gradient of {name} is zero"


def check_save_and_load(make: Callable[[int], Model], folder: Path) -> None:
    """A model with loaded weights computes exactly what the saved one does. `make(seed)` initializes a model."""
    saved, loaded = perturbed(make(1)).eval(), make(2).eval()
    inputs = random_inputs(saved)
    expected = run_model(saved, inputs)
    assert_differs(run_model(loaded, inputs).hidden, expected.hidden, "another seed")
    write_checkpoint(folder / "checkpoint", saved, {}, None)
    load_weights(loaded, folder / "checkpoint")
    actual = run_model(loaded, inputs)
    assert torch.equal(actual.hidden, expected.hidden), "the loaded model computes other hidden states"
    log_probs = [model.head.log_probs(actual.hidden) for model in (saved, loaded)]
    assert torch.equal(*log_probs), "the loaded head computes other log-probabilities"


def check_adoption(make: Callable[[int], Model], folder: Path) -> None:
    """A model that starts from a checkpoint of the same config adopts every tensor, and computes exactly what the saved
    model does."""
    saved, started = perturbed(make(1)).eval(), make(2).eval()
    write_checkpoint(folder / "checkpoint", saved, {}, None)
    weights, _ = start.weights_by_all_names(folder / "checkpoint")
    adoption = start.adopt(started, weights, set())
    assert not adoption.fresh, f"not adopted: {adoption.fresh}"
    assert not adoption.unused, f"not used: {adoption.unused}"
    inputs = random_inputs(saved)
    logits = [model.head.log_probs(run_model(model, inputs).hidden) for model in (saved, started)]
    assert torch.equal(*logits), "the model that adopted the weights computes something else"


def check_frozen_weights(model: Model) -> None:
    """A frozen weight gets no gradient, and the others get the same gradients as if nothing were frozen. Tested for one
    half of the weights and for the other half."""
    names = [name for name, _ in model.named_parameters()]
    batch = small_corpus(model).batch(range(4))
    model.double()  # another kernel may round differently
    expected = _gradients(copy.deepcopy(model), batch)
    for half in (names[::2], names[1::2]):
        frozen = copy.deepcopy(model)
        freeze(frozen, half)
        gradients = _gradients(frozen, batch)
        assert gradients.keys() == {*names} - {*half}, "frozen weights get gradients, or others get none"
        for name, gradient in gradients.items():
            assert_close(gradient, expected[name], f"the gradient of {name}")


def _gradients(model: Model, batch: Batch) -> dict[str, Tensor]:
    """The gradients of a batch, by the name of the weight."""
    torch.manual_seed(1)  # hard attention samples
    next_token_loss(model.train(), batch, TokenCost(0.1)).total.backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def check_training_after_inference(model: Model) -> None:
    """Encoding a long sentence in inference mode leaves nothing behind that breaks a later backward pass."""
    generator = torch.Generator().manual_seed(0)
    source_size = vocabulary_sizes(model)[0]
    with torch.inference_mode():
        long = torch.randint(len(SPECIAL), source_size, (1, 600), generator=generator)
        exceeds_limit(lambda: encode(model, long, None))
    try:
        check_gradients_reach_all_weights(model)
    except RuntimeError as error:
        raise AssertionError("a tensor made in inference mode breaks the backward pass") from error


def check_double_precision(model: Model) -> None:
    """A model in double precision gives the same result in double precision: nothing is cast to float on the way."""
    model.eval()
    inputs = random_inputs(model)
    for capturing in (False, True):
        single = run_model(model.float(), inputs, capturing)
        double = run_model(model.double(), inputs, capturing)
        assert double.hidden.dtype == torch.float64, "cast to float on the way"
        assert double.memory is None or double.memory.states.dtype == torch.float64, "cast to float in the encoder"
        keep = inputs.target_keep
        assert_close(single.hidden[keep].double(), double.hidden[keep], "hidden states in double precision")


def check_dropout_rates_are_used(make: Callable[[dict[str, float]], Model], key: str) -> None:
    """The rate `dropout.<key>` makes training random, and nothing else does; evaluation is never random."""
    for rate in (0.0, 0.5):
        model = perturbed(make({key: rate}))
        inputs = random_inputs(model)
        model.train()
        torch.manual_seed(1)
        first, second = run_model(model, inputs).hidden, run_model(model, inputs).hidden
        assert torch.equal(first, second) == (rate == 0), f"dropout.{key} = {rate} in training mode"
        model.eval()
        first, second = run_model(model, inputs).hidden, run_model(model, inputs).hidden
        assert torch.equal(first, second), "dropout is active in evaluation mode"
