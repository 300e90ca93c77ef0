"""Notes: who hears what, for how long, and how what parts say becomes part of the loss."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.checks.common import perturbed
from saccade.config import python_layer, resolve
from saccade.data.batches import Corpus
from saccade.errors import SaccadeError
from saccade.models.assemble import Model, ModelConfig, assemble
from saccade.notes import Part, capture, listen
from saccade.places import Memory, Places
from saccade.tasks.losses import auxiliary_losses, next_token

KINDS = ("weights", "loss", "sampled")


class Speaker(Part):
    """Says all three kinds of things about every place, whoever listens."""

    def forward(self, value: float, places: Places) -> None:
        rows, steps = places.at.shape
        for number, kind in enumerate(KINDS):
            self.note(kind, torch.full((rows, 1, steps, 2), value + number), places)


class Room(nn.Module):
    """Two speakers under names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Speaker(), Speaker()

    def forward(self, value: float, places: Places) -> None:
        self.first(value, places)
        self.second(-value, places)


def places(steps: int = 3, start: int = 0, rows: int = 2) -> Places:
    return Places.of(torch.zeros(rows, steps), None, torch.full((rows,), start))


def said(notes: Any) -> dict[str, list[float]]:
    """The different numbers of each map."""
    maps = notes.maps() if hasattr(notes, "maps") else dict(notes)
    return {name: value.unique().tolist() for name, value in maps.items()}


# ── listening ─────────────────────────────────────────────────────────────────────────────────────


def test_each_listener_hears_its_kind_only() -> None:
    room = Room()
    with listen(room, "weights") as weights, listen(room, "loss") as losses, listen(room, "sampled") as wagers:
        room(10.0, places())
    assert said(weights) == {"first": [10], "second": [-10]}
    assert said(losses) == {"first": [11], "second": [-9]}
    assert said(wagers) == {"first": [12], "second": [-8]}


def test_a_listener_inside_another_leaves_it_as_it_was() -> None:
    room = Room()
    with listen(room, "weights") as outer:
        room(1.0, places())
        with listen(room, "loss") as inner:
            room(2.0, places(start=3))
        room(3.0, places(start=6))
    assert said(outer)["first"] == [1, 2, 3]
    assert said(inner)["first"] == [2 + 1]
    assert not any(room.first.has_listener(kind) for kind in KINDS)


def test_of_two_listeners_of_a_kind_the_inner_one_hears() -> None:
    room = Room()
    with capture(room) as outer:
        room(1.0, places())
        with capture(room) as inner:
            room(2.0, places(start=3))
        room(3.0, places(start=6))
    assert said(outer)["first"] == [1, 3]
    assert said(inner)["first"] == [2]


def test_a_part_is_asked_only_while_someone_listens_to_it() -> None:
    room = Room()
    with listen(room.first, "loss") as notes:
        assert [room.first.has_listener(kind) for kind in KINDS] == [False, True, False]
        assert not room.second.has_listener("loss")
        room(1.0, places())
    assert said(notes) == {"": [2]}
    assert not room.first.has_listener("loss")


def test_after_an_error_nobody_listens() -> None:
    room = Room()
    with pytest.raises(ZeroDivisionError), capture(room), listen(room, "loss"):
        raise ZeroDivisionError
    assert not any(part.has_listener(kind) for part in (room.first, room.second) for kind in KINDS)


def test_other_rooms_hear_nothing() -> None:
    one, other = Room(), Room()
    with capture(one) as heard:
        other(1.0, places())
    assert dict(heard) == {}


# ── what was heard ────────────────────────────────────────────────────────────────────────────────


def test_new_places_are_joined_and_the_same_places_are_another_visit() -> None:
    speaker = Speaker()
    with capture(speaker) as heard:
        speaker(1.0, places(3))
        speaker(2.0, places(1, start=3))
        speaker(5.0, places(3))
        speaker(6.0, places(1, start=3))
    assert {name: value[0, 0, :, 0].tolist() for name, value in heard.items()} == {"": [1, 1, 1, 2], "@1": [5, 5, 5, 6]}


def test_a_step_that_saw_fewer_places_saw_nothing_of_the_later_ones() -> None:
    part = Part()
    with capture(part) as heard:
        for step in range(3):
            part.note("weights", torch.full((1, 1, 1, step + 1), 1.0), places(1, start=step, rows=1))
    assert heard[""][0, 0].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_rows_that_leave_cannot_be_joined() -> None:
    speaker = Speaker()
    with capture(speaker) as heard:
        speaker(1.0, places(1))
        speaker(1.0, places(1, start=1, rows=1))
    with pytest.raises(SaccadeError, match="forced pass"):
        heard[""]


# ── what parts add to the loss ────────────────────────────────────────────────────────────────────

WORDS, DIM = 11, 6
CORPUS = Corpus([[4, 5, 6], [7], [8, 9], []], [[5, 6, 7, 8, 9], [10], [4, 4], []])
HALVES = ([0, 2], [1, 3])


def model_of(memory: Any, **encoder: Any) -> Model:
    tree = {
        "dim": DIM,
        "dropout": {"residual": 0.0, "embedding": 0.0},
        "encoder": {"kind": "recurrent"} | encoder,
        "decoder": {"kind": "recurrent", "cross": memory},
    }
    torch.manual_seed(0)
    return perturbed(assemble(resolve(ModelConfig, [python_layer(tree)]).config, WORDS, WORDS)).double().train()


COVERING = {"score": "additive", "coverage": True, "coverage_loss": 0.8}


def gradient(model: Model) -> Tensor:
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


def test_the_cost_of_looking_twice_is_a_sum_while_training() -> None:
    """Two halves cost and teach what the whole does, though their padding differs."""
    model = model_of(COVERING)
    found = []
    for parts in ([[0, 1, 2, 3]], HALVES):
        model.zero_grad()
        losses = [next_token(model, CORPUS.batch(rows), 0.1) for rows in parts]
        for loss in losses:
            loss.total.backward()
        found.append((sum(loss.logged["decoder.cross"] for loss in losses), gradient(model)))
    (whole, learned), (halves, learned_by_halves) = found
    assert whole > 0.1
    assert halves == pytest.approx(whole)
    torch.testing.assert_close(learned_by_halves, learned)


def test_the_total_is_the_cost_and_all_that_is_shown() -> None:
    model = model_of(COVERING)
    loss = next_token(model, CORPUS.batch([0, 1]), 0.0)
    assert set(loss.logged) == {"cost", "decoder.cross"}
    assert float(loss.total.detach()) == pytest.approx(sum(loss.logged.values()))
    in_use = next_token(model.eval(), CORPUS.batch([0, 1]), 0.0)
    assert float(in_use.total.detach()) == pytest.approx(loss.logged["cost"])
    assert set(in_use.logged) == {"cost"}


def test_a_cost_that_nobody_asked_for_is_not_computed() -> None:
    model = model_of(COVERING | {"coverage_loss": 0.0})
    assert set(next_token(model, CORPUS.batch([0, 1]), 0.0).logged) == {"cost"}


class Costly(Part):
    """Tells nothing of the source, and costs one for each place, in `visits` notes."""

    attends, width = False, 0

    def __init__(self, visits: int = 1) -> None:
        super().__init__()
        self.visits = visits

    def start(self, memory: Memory | None, rows: int) -> None:
        return None

    def forward(self, x: Tensor, places: Places, state: None) -> tuple[Tensor, None]:
        for _ in range(self.visits):
            self.note("loss", x.new_ones(x.shape[0], 1, x.shape[1], 1), places)
        return x[..., :0], None


@pytest.mark.parametrize("visits", [1, 2])
def test_padding_has_no_share_in_a_cost(visits: int) -> None:
    """One for each real place, of targets of five, one, two and no words, and their ends."""
    model = model_of("at_start")
    assert model.decoder is not None
    model.decoder.cross = Costly(visits)  # type: ignore[attr-defined]
    loss = next_token(model, CORPUS.batch([0, 1, 2, 3]), 0.0)
    names = ["decoder.cross", "decoder.cross@1"][:visits]
    assert {name: cost for name, cost in loss.logged.items() if name != "cost"} == dict.fromkeys(names, 5 + 1 + 2 + 4)
    assert float(loss.total.detach()) == pytest.approx(loss.logged["cost"] + visits * 12)


def test_a_hard_pick_is_shown_by_its_name() -> None:
    model = model_of({"score": "additive", "normalizer": "hard"})
    assert set(next_token(model, CORPUS.batch([0, 1]), 0.0).logged) == {"cost", "decoder.cross.normalizer"}


@pytest.mark.parametrize("memory", [COVERING, {"score": "additive", "normalizer": "hard"}], ids=["coverage", "hard"])
def test_who_captures_while_a_model_learns_changes_nothing(memory: Any) -> None:
    totals = []
    for listening in (False, True):
        model = model_of(memory)
        torch.manual_seed(1)
        if listening:
            with capture(model) as maps:
                totals.append(next_token(model, CORPUS.batch([0, 1]), 0.0))
            assert maps["decoder.cross"].shape == (2, 1, 6, 4)
        else:
            totals.append(next_token(model, CORPUS.batch([0, 1]), 0.0))
    assert torch.equal(totals[0].total, totals[1].total)
    assert totals[0].logged == totals[1].logged


def test_nobody_listens_for_costs_where_nothing_is_learned() -> None:
    model = model_of(COVERING)
    for training, learns in ((True, True), (False, True), (True, False)):
        with torch.set_grad_enabled(learns), auxiliary_losses(model.train(training)):
            assert model.decoder.cross.has_listener("loss") == (training and learns)  # type: ignore[union-attr]
    assert not model.decoder.cross.has_listener("loss")  # type: ignore[union-attr]
