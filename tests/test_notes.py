"""Notes: which listener records which notes, how they are joined, and how auxiliary losses enter the training loss."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.checks.common import perturbed
from saccade.config import python_layer, resolve
from saccade.data.batches import Corpus
from saccade.errors import SaccadeError
from saccade.inputs import Tokens
from saccade.models.assemble import Model, ModelConfig, assemble
from saccade.notes import RecordingModule, capture, listen
from saccade.parts.token_costs import TokenCost
from saccade.places import Memory, Places, Progress
from saccade.tasks.losses import auxiliary_losses, next_token_loss

KINDS = ("weights", "loss", "sampled")


class Recorder(RecordingModule):
    """Records a note of every kind for every position."""

    def forward(self, value: float, places: Places) -> None:
        rows, steps = places.at.shape
        for number, kind in enumerate(KINDS):
            self.note(kind, torch.full((rows, 1, steps, 2), value + number), places)


class TwoParts(nn.Module):
    """A module with two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Recorder(), Recorder()

    def forward(self, value: float, places: Places) -> None:
        self.first(value, places)
        self.second(-value, places)


def places(steps: int = 3, start: int = 0, rows: int = 2) -> Places:
    return Places.of(torch.zeros(rows, steps), None, Progress(torch.full((rows,), start), start))


def unique_values(notes: Any) -> dict[str, list[float]]:
    """The distinct values of each recorded tensor."""
    maps = notes.maps() if hasattr(notes, "maps") else dict(notes)
    return {name: value.unique().tolist() for name, value in maps.items()}


# ── listeners ─────────────────────────────────────────────────────────────────────────────────────


def test_listener_records_only_its_kind() -> None:
    model = TwoParts()
    with listen(model, "weights") as weights, listen(model, "loss") as losses, listen(model, "sampled") as samples:
        model(10.0, places())
    assert unique_values(weights) == {"first": [10], "second": [-10]}
    assert unique_values(losses) == {"first": [11], "second": [-9]}
    assert unique_values(samples) == {"first": [12], "second": [-8]}


def test_nested_listeners_of_different_kinds_both_record() -> None:
    model = TwoParts()
    with listen(model, "weights") as outer:
        model(1.0, places())
        with listen(model, "loss") as inner:
            model(2.0, places(start=3))
        model(3.0, places(start=6))
    assert unique_values(outer)["first"] == [1, 2, 3]
    assert unique_values(inner)["first"] == [2 + 1]
    assert not any(model.first.has_listener(kind) for kind in KINDS)


def test_of_nested_listeners_of_the_same_kind_only_the_innermost_records() -> None:
    model = TwoParts()
    with capture(model) as outer:
        model(1.0, places())
        with capture(model) as inner:
            model(2.0, places(start=3))
        model(3.0, places(start=6))
    assert unique_values(outer)["first"] == [1, 3]
    assert unique_values(inner)["first"] == [2]


def test_has_listener_is_true_only_for_the_parts_and_kind_listened_to() -> None:
    model = TwoParts()
    with listen(model.first, "loss") as notes:
        assert [model.first.has_listener(kind) for kind in KINDS] == [False, True, False]
        assert not model.second.has_listener("loss")
        model(1.0, places())
    assert unique_values(notes) == {"": [2]}
    assert not model.first.has_listener("loss")


def test_listeners_are_removed_after_an_error() -> None:
    model = TwoParts()
    with pytest.raises(ZeroDivisionError), capture(model), listen(model, "loss"):
        raise ZeroDivisionError
    assert not any(part.has_listener(kind) for part in (model.first, model.second) for kind in KINDS)


def test_listener_does_not_record_another_model() -> None:
    model, other_model = TwoParts(), TwoParts()
    with capture(model) as maps:
        other_model(1.0, places())
    assert dict(maps) == {}


# ── recorded notes ────────────────────────────────────────────────────────────────────────────────


def test_new_positions_are_concatenated_and_repeated_positions_are_another_pass() -> None:
    part = Recorder()
    with capture(part) as maps:
        part(1.0, places(3))
        part(2.0, places(1, start=3))
        part(5.0, places(3))
        part(6.0, places(1, start=3))
    assert {name: value[0, 0, :, 0].tolist() for name, value in maps.items()} == {"": [1, 1, 1, 2], "@1": [5, 5, 5, 6]}


def test_columns_of_later_keys_are_zero_for_earlier_steps() -> None:
    part = RecordingModule()
    with capture(part) as maps:
        for step in range(3):
            part.note("weights", torch.full((1, 1, 1, step + 1), 1.0), places(1, start=step, rows=1))
    assert maps[""][0, 0].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_change_of_the_batch_size_during_capture_is_an_error() -> None:
    part = Recorder()
    with capture(part) as maps:
        part(1.0, places(1))
        part(1.0, places(1, start=1, rows=1))
    with pytest.raises(SaccadeError, match="forced pass"):
        maps[""]


# ── auxiliary losses of parts ─────────────────────────────────────────────────────────────────────

VOCABULARY, DIM = 11, 6
CORPUS = Corpus([[4, 5, 6], [7], [8, 9], []], [[5, 6, 7, 8, 9], [10], [4, 4], []])
HALVES = ([0, 2], [1, 3])


def recurrent_model(cross: Any, **encoder: Any) -> Model:
    tree = {
        "dim": DIM,
        "dropout": {"residual": 0.0, "embedding": 0.0},
        "encoder": {"kind": "recurrent"} | encoder,
        "decoder": {"kind": "recurrent", "cross": cross},
    }
    torch.manual_seed(0)
    return (
        perturbed(assemble(resolve(ModelConfig, [python_layer(tree)]).config, Tokens(VOCABULARY), VOCABULARY))
        .double()
        .train()
    )


COVERAGE = {"score": "additive", "coverage": True, "coverage_loss": 0.8}


def gradient(model: Model) -> Tensor:
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


def test_coverage_loss_and_its_gradient_are_sums_over_the_rows() -> None:
    """Two half batches together give the loss and the gradient of the whole batch, though their padding differs."""
    model = recurrent_model(COVERAGE)
    results = []
    for batches in ([[0, 1, 2, 3]], HALVES):
        model.zero_grad()
        losses = [next_token_loss(model, CORPUS.batch(rows), TokenCost(0.1)) for rows in batches]
        for loss in losses:
            loss.total.backward()
        results.append((sum(loss.logged["decoder.cross"] for loss in losses), gradient(model)))
    (whole, whole_gradient), (halves, halves_gradient) = results
    assert whole > 0.1
    assert halves == pytest.approx(whole)
    torch.testing.assert_close(halves_gradient, whole_gradient)


def test_training_loss_is_the_sum_of_all_logged_losses() -> None:
    model = recurrent_model(COVERAGE)
    loss = next_token_loss(model, CORPUS.batch([0, 1]))
    assert set(loss.logged) == {"cost", "decoder.cross"}
    assert float(loss.total.detach()) == pytest.approx(sum(loss.logged.values()))
    evaluation = next_token_loss(model.eval(), CORPUS.batch([0, 1]))
    assert float(evaluation.total.detach()) == pytest.approx(loss.logged["cost"])
    assert set(evaluation.logged) == {"cost"}


def test_coverage_loss_with_weight_zero_is_not_computed() -> None:
    model = recurrent_model(COVERAGE | {"coverage_loss": 0.0})
    assert set(next_token_loss(model, CORPUS.batch([0, 1])).logged) == {"cost"}


class ConstantLoss(RecordingModule):
    """A context of width 0 that records an auxiliary loss of 1 per position, `passes` times."""

    attends, width = False, 0

    def __init__(self, passes: int = 1) -> None:
        super().__init__()
        self.passes = passes

    def start(self, memory: Memory | None, rows: int) -> None:
        return None

    def forward(self, x: Tensor, places: Places, state: None) -> tuple[Tensor, None]:
        for _ in range(self.passes):
            self.note("loss", x.new_ones(x.shape[0], 1, x.shape[1], 1), places)
        return x[..., :0], None


@pytest.mark.parametrize("passes", [1, 2])
def test_auxiliary_loss_of_padding_is_not_counted(passes: int) -> None:
    """Targets of 5, 1, 2 and 0 tokens plus their end symbols: a loss of 12."""
    model = recurrent_model("at_start")
    assert model.decoder is not None
    model.decoder.cross = ConstantLoss(passes)  # type: ignore[attr-defined]
    loss = next_token_loss(model, CORPUS.batch([0, 1, 2, 3]))
    names = ["decoder.cross", "decoder.cross@1"][:passes]
    assert {name: cost for name, cost in loss.logged.items() if name != "cost"} == dict.fromkeys(names, 5 + 1 + 2 + 4)
    assert float(loss.total.detach()) == pytest.approx(loss.logged["cost"] + passes * 12)


def test_policy_loss_is_logged_under_the_name_of_the_normalizer() -> None:
    model = recurrent_model({"score": "additive", "normalizer": "hard"})
    assert set(next_token_loss(model, CORPUS.batch([0, 1])).logged) == {"cost", "decoder.cross.normalizer"}


@pytest.mark.parametrize("cross", [COVERAGE, {"score": "additive", "normalizer": "hard"}], ids=["coverage", "hard"])
def test_capture_does_not_change_the_training_loss(cross: Any) -> None:
    totals = []
    for capturing in (False, True):
        model = recurrent_model(cross)
        torch.manual_seed(1)
        if capturing:
            with capture(model) as maps:
                totals.append(next_token_loss(model, CORPUS.batch([0, 1])))
            assert maps["decoder.cross"].shape == (2, 1, 6, 4)
        else:
            totals.append(next_token_loss(model, CORPUS.batch([0, 1])))
    assert torch.equal(totals[0].total, totals[1].total)
    assert totals[0].logged == totals[1].logged


def test_auxiliary_losses_are_recorded_only_in_training_with_gradients() -> None:
    model = recurrent_model(COVERAGE)
    for training, gradients in ((True, True), (False, True), (True, False)):
        with torch.set_grad_enabled(gradients), auxiliary_losses(model.train(training)):
            assert model.decoder.cross.has_listener("loss") == (training and gradients)  # type: ignore[union-attr]
    assert not model.decoder.cross.has_listener("loss")  # type: ignore[union-attr]
