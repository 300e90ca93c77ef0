"""A fused step gives what the modules give, over every model that fits it; what does not fit keeps to its modules."""

import copy
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from contracts.checks.common import perturbed
from saccade.config import python_layer, resolve
from saccade.data.tokenizers import WordVocabulary
from saccade.decode import single
from saccade.decode.engine import DecodeConfig, in_order
from saccade.decode.fused import FusedDecoder, FusedEncoder, can_fuse_decoder, can_fuse_encoder
from saccade.decode.loops import StepModel
from saccade.decode.single import SingleDecoder, can_decode_single
from saccade.decode.torch_engine import FusedModel, UnfusedDecoder, torch_engine
from saccade.decode.workers import limit_threads
from saccade.errors import SaccadeError
from saccade.models.assemble import Model, ModelConfig, assemble, spread_block
from saccade.notes import capture
from saccade.optim.optimizers import adamw
from saccade.parts.mixers import MultiHead
from saccade.places import Memory, select

V, D = 23, 12
SHORT = torch.arange(7) < torch.tensor([7, 3, 5])[:, None]


def model_of(changes: dict[str, Any]) -> Model:
    block = {"self": {"heads": 2}, "cross": {"heads": 3}, "feed_forward": {"inner": 17}} | changes.pop("block", {})
    tree = {"dim": D, "block": block, "encoder": {"depth": 1}, "decoder": {"depth": 3}} | changes
    config = resolve(ModelConfig, [python_layer(tree)], spread_block).config
    torch.manual_seed(0)
    return perturbed(assemble(config, V, V), by=0.2).eval()


FITTING: dict[str, dict[str, Any]] = {
    "pre-norm": {},
    "post-norm": {"block": {"connection": "post"}},
    "learned places": {"decoder": {"depth": 2, "position": {"kind": "learned", "longest": 20}}},
    "dot score": {"block": {"self": {"heads": 2, "score": "dot"}, "cross": {"heads": 3, "score": "dot"}}},
    "own widths": {"block": {"self": {"heads": 2, "key_width": 5, "value_width": 5}, "cross": {"heads": 4}}},
    "gelu": {"block": {"feed_forward": {"inner": 9, "activation": "gelu"}}},
    "linear head": {"head": "linear"},
    "tied head with a bias": {"head": {"kind": "tied", "bias": True}},
}
OTHERS: dict[str, dict[str, Any]] = {
    "recurrent": {"decoder": {"kind": "recurrent"}, "block": {}},
    "sparse normalizer": {"block": {"cross": {"heads": 3, "normalizer": "sparsemax"}}},
    "additive score": {"block": {"self": {"heads": 2, "score": "additive"}}},
    "unprojected": {"block": {"self": "unprojected"}},
    "keys as wide as no value": {"block": {"self": {"heads": 2, "key_width": 5, "value_width": 3}}},
}


def log_probs(steps: Any, model: Model, keep: Tensor | None, beam: int, sentences: int = 3) -> Tensor:
    """Of a search that moves hypotheses and lets sentences leave until one is left."""
    dice = torch.Generator().manual_seed(1)
    memory = model.encoder.encode(torch.randint(4, V, (sentences, 7), generator=dice), keep)
    state = select(steps.start(memory, sentences), torch.arange(sentences).repeat_interleave(beam))
    found, rows = [], sentences
    for step in range(20):
        tokens = torch.randint(4, V, (rows * beam,), generator=dice)
        said, state = steps.step(tokens, state)
        found.append(said.flatten())
        moved = torch.arange(rows)[:, None] * beam + torch.randint(0, beam, (rows, beam), generator=dice)
        state = select(state, moved.flatten())
        if step in (3, 12) and rows > 1:
            stay = torch.tensor([0, 2][: rows - 1])
            state, rows = select(state, (stay[:, None] * beam + torch.arange(beam)).flatten(), stay), rows - 1
    return torch.cat(found)


@pytest.mark.parametrize("name", FITTING)
@pytest.mark.parametrize("keep", [None, SHORT], ids=["whole", "padded"])
@pytest.mark.parametrize("beam", [1, 4])
@torch.inference_mode()
def test_it_gives_what_the_modules_give(name: str, keep: Tensor | None, beam: int) -> None:
    model = model_of(dict(FITTING[name]))
    assert can_fuse_decoder(model)
    modules, *others = (log_probs(steps, model, keep, beam) for steps in all_of(model))
    for other in others:
        torch.testing.assert_close(other, modules, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FITTING)
@pytest.mark.parametrize("keep", [None, SHORT], ids=["whole", "padded"])
@torch.inference_mode()
def test_it_reads_what_the_modules_read(name: str, keep: Tensor | None) -> None:
    model = model_of(dict(FITTING[name]))
    assert can_fuse_encoder(model)
    values = torch.randint(4, V, (3, 7))
    fused, modules = FusedEncoder(model)(values, keep), model.encoder.encode(values, keep)
    kept = slice(None) if keep is None else keep
    torch.testing.assert_close(fused.states[kept], modules.states[kept], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fused.summary, modules.summary, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FITTING)
@pytest.mark.parametrize("beam", [1, 4])
@torch.inference_mode()
def test_a_lone_sentence_too(name: str, beam: int) -> None:
    model = model_of(dict(FITTING[name]))
    modules, fused = (
        log_probs(steps, model, None, beam, sentences=1) for steps in (UnfusedDecoder(model), FusedDecoder(model))
    )
    torch.testing.assert_close(fused, modules, rtol=1e-5, atol=1e-5)


def single_log_probs(writer: StepModel, memory: Memory, count: int = 60) -> Tensor:
    """Of a single hypothesis, after each of so many tokens."""
    single, tokens = writer.single(memory), torch.randint(4, V, (count,), generator=torch.Generator().manual_seed(1))
    return torch.stack([torch.from_numpy(single.log_probs(token)) for token in tokens.tolist()])


@pytest.mark.parametrize("places", [7, 90], ids=["short", "long"])
@pytest.mark.parametrize("name", FITTING)
@torch.inference_mode()
def test_a_lone_hypothesis_is_told_what_the_modules_say(name: str, places: int) -> None:
    model = model_of(dict(FITTING[name]))
    assert can_decode_single(FusedDecoder(model))
    memory = model.encoder.encode(torch.randint(4, V, (1, places)), None)
    modules, single = (
        single_log_probs(writer, memory, 19) for writer in (UnfusedDecoder(model), SingleDecoder(FusedDecoder(model)))
    )
    torch.testing.assert_close(single, modules, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_a_lone_hypothesis_is_told_so_whatever_the_scores() -> None:
    """Attention to one place alone, and scores whose exponentials no float holds."""
    model = model_of({})
    for part in model.decoder.modules():
        if isinstance(part, MultiHead):
            part.query.weight.mul_(300.0)
    memory = model.encoder.encode(torch.randint(4, V, (1, 7)), None)
    modules, single = (
        single_log_probs(writer, memory) for writer in (UnfusedDecoder(model), SingleDecoder(FusedDecoder(model)))
    )
    torch.testing.assert_close(single, modules, rtol=1e-3, atol=1e-3)


@torch.inference_mode()
def test_a_padded_memory_is_for_the_lean_step() -> None:
    model = model_of({})
    memory = model.encoder.encode(torch.randint(4, V, (1, 7)), SHORT[1:2])
    modules, single = (
        single_log_probs(writer, memory) for writer in (UnfusedDecoder(model), SingleDecoder(FusedDecoder(model)))
    )
    torch.testing.assert_close(single, modules, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_a_mean_that_nobody_takes_away_is_kept() -> None:
    fused = FusedDecoder(model_of({}))
    assert can_decode_single(fused)
    fused.final_norm = nn.Identity()
    assert not can_decode_single(fused)


@pytest.mark.parametrize("name", ["pre-norm", "post-norm"])
def test_unscored_outputs_are_the_scored_ones(name: str) -> None:
    engine = engine_of(model_of(dict(FITTING[name])))
    for line in ("a b c", "c", "q r s a b c d e f g"):
        scored, unscored = (
            next(in_order(engine.generate([line], resolve(DecodeConfig, [python_layer(tree)]).config)))[0]
            for tree in ({"search": "greedy"}, {"search": "greedy", "scores": False})
        )
        assert scored.ids == unscored.ids
        assert math.isfinite(scored.log_prob)
        assert math.isnan(unscored.log_prob)


def all_of(model: Model) -> list[Any]:
    """Ways to step: module by module, and as fused as can be."""
    return [UnfusedDecoder(model), FusedDecoder(model)]


def test_numpy_has_neither_wide_models_nor_other_types_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = FusedDecoder(model_of({}))
    monkeypatch.setattr(single, "MAX_NUMPY_WEIGHTS", max(3 * D * D, 17 * D))
    assert can_decode_single(fused)
    monkeypatch.setattr(single, "MAX_NUMPY_WEIGHTS", single.MAX_NUMPY_WEIGHTS - 1)
    assert not can_decode_single(fused)
    monkeypatch.undo()
    assert not can_decode_single(FusedDecoder(model_of({}).double()))


@torch.inference_mode()
def test_a_long_one_too() -> None:
    model = model_of({})
    memory = model.encoder.encode(torch.randint(4, V, (1, 90)), None)
    modules, *others = (steps.step(torch.tensor([5]), steps.start(memory, 1))[0] for steps in all_of(model))
    for other in others:
        torch.testing.assert_close(other, modules, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_it_knows_places_as_far_as_the_model_does() -> None:
    model = model_of({})
    memory = model.encoder.encode(torch.randint(4, V, (1, 7)), None)
    writers = UnfusedDecoder(model), FusedDecoder(model), SingleDecoder(FusedDecoder(model))
    plain, *others = (single_log_probs(writer, memory, 150) for writer in writers)
    for other in others:
        torch.testing.assert_close(other, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", OTHERS)
def test_other_parts_keep_to_their_modules(name: str) -> None:
    assert not can_fuse_decoder(model_of(dict(OTHERS[name])))


def test_who_listens_is_told() -> None:
    model = model_of({})
    quick = FusedModel(model)
    with capture(model):
        assert not can_fuse_decoder(model)
        assert not can_fuse_encoder(model)
        assert not quick.is_current()
    assert can_fuse_decoder(model)
    assert can_fuse_encoder(model)
    assert quick.is_current()


def added_to(model: Model) -> None:
    with torch.no_grad():
        linear_of(model).weight.add_(1.0)


def replaced_in(model: Model) -> None:
    linear_of(model).weight = nn.Parameter(linear_of(model).weight.detach().clone())


def stepped(model: Model) -> None:
    optimizer = adamw(model)
    model.head.log_probs(torch.randn(3, D)).sum().backward()
    optimizer.step()


def linear_of(model: Model) -> nn.Linear:
    return next(part for part in model.modules() if isinstance(part, nn.Linear))


CHANGES: dict[str, Callable[[Model], Any]] = {
    "added to": added_to,
    "replaced": replaced_in,
    "a step of our optimizer": stepped,
    "other data": lambda model: vector_to_parameters(2 * parameters_to_vector(model.parameters()), model.parameters()),
    "another type": lambda model: model.double(),
    "another layer": lambda model: model.decoder.layers.__setitem__(0, copy.deepcopy(model.decoder.layers[0])),
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_weights_are_seen(name: str) -> None:
    model = model_of({"decoder": {"depth": 2}})
    quick = FusedModel(model)
    assert quick.is_current()
    CHANGES[name](model)
    assert not quick.is_current()


def texts(engine: Any, kind: str = "greedy") -> list[tuple[int, ...]]:
    decode = resolve(DecodeConfig, [python_layer({"search": kind})]).config
    return [found[0].ids for found in in_order(engine.generate(["a b c", "c", "b b b b"], decode))]


def engine_of(model: Model) -> Any:
    words = WordVocabulary().learn([" ".join("abcdefghijklmnopqrs")])
    assert words.size <= V
    return torch_engine(model, words, words)


def test_an_engine_that_is_kept_writes_with_the_weights_there_are() -> None:
    model = model_of({"head": "linear"})
    kept = engine_of(model)
    before = texts(kept)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight))
    assert texts(kept) == texts(engine_of(model)) != before
    with capture(model) as maps:
        next(kept.generate(["a b c"], resolve(DecodeConfig, [python_layer({"search": "greedy"})]).config))
    assert len(maps)


@pytest.mark.parametrize("change", [lambda model: model.bfloat16(), lambda model: model.double()])
@pytest.mark.parametrize("kind", ["greedy", "beam"])
def test_other_types_of_weights_write_too(change: Any, kind: str) -> None:
    assert len(texts(engine_of(change(model_of({}))), kind)) == 3


def test_a_model_made_in_inference_mode_writes_too() -> None:
    with torch.inference_mode():
        model = model_of({})
    assert len(texts(engine_of(model))) == 3


@torch.inference_mode()
def test_past_the_learned_places_it_says_so() -> None:
    learned = {"position": {"kind": "learned", "longest": 5}}
    model = model_of({"encoder": {"depth": 1, **learned}, "decoder": {"depth": 1, **learned}})
    memory = FusedEncoder(model)(torch.randint(4, V, (1, 5)), None)
    for writer in (UnfusedDecoder(model), FusedDecoder(model), SingleDecoder(FusedDecoder(model))):
        single = writer.single(memory)
        for _ in range(5):
            single.log_probs(5)
        with pytest.raises(SaccadeError, match="past the 5 learned positions"):
            single.log_probs(5)
    with pytest.raises(SaccadeError, match="past the 5 learned positions"):
        FusedEncoder(model)(torch.randint(4, V, (1, 6)), None)


def test_threads_are_lent_and_given_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with limit_threads(1):
            assert torch.get_num_threads() == 1
            with limit_threads(3):
                assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_thread_that_comes_while_one_is_lent_does_not_keep_it() -> None:
    """What a thread sets is the default of threads to come: who finds one must not write one back."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    entered, leave = threading.Event(), threading.Event()

    def second() -> None:
        with limit_threads(1):
            entered.set()
            leave.wait(10)

    try:
        with limit_threads(1):
            late = threading.Thread(target=second)
            late.start()
            assert entered.wait(10)
        leave.set()
        late.join()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)
