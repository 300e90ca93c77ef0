"""Searches against brute force, against each other and against forced passes, on models small enough to list all
that they can write."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from contracts.checks.common import perturbed
from contracts.checks.searches import forced_log_prob, search_outputs
from contracts.variants import NO_DROPOUT, Variant
from saccade.config import python_layer, resolve
from saccade.data.batches import Corpus
from saccade.data.tokenizers import END, PAD, START, Tokenizer, WordVocabulary
from saccade.decode import loops
from saccade.decode.engine import DecodeConfig, Output, in_order
from saccade.decode.loops import ScoredTokens
from saccade.decode.search import Beam, Greedy, Sample
from saccade.decode.torch_engine import torch_engine
from saccade.models.assemble import Model
from saccade.tasks.translation import teacher_forced_cost

V = 7  # four special ids and three words
WORDS = (4, 5, 6)
SOURCES = [[4, 5, 6, 4], [6], [5, 5], [4, 6, 5]]


def tiny_model(seed: int, sharpness: float = 1.0, head: str = "tied") -> Model:
    """A random model; the sharper, the surer it is."""
    side = {"depth": 1, "block": {name: {"heads": 2} for name in ("self", "cross")} | {"feed_forward": {"inner": 11}}}
    tree = {"dim": 10, "encoder": side, "decoder": side, "head": head, "dropout": NO_DROPOUT}
    model = perturbed(Variant("tiny", tree, V, V).fresh(seed), seed).eval()
    with torch.no_grad():
        model.encoder.embedding.table.weight *= sharpness
    return model


def all_outputs(model: Model, source: Sequence[int], longest: int) -> list[tuple[tuple[int, ...], float]]:
    """Everything of at most `longest` tokens that may be written, with its log-probability."""
    free = [token for token in range(V) if token not in (PAD, START, END)]
    beginnings = itertools.chain.from_iterable(itertools.product(free, repeat=n) for n in range(longest))
    return [((*b, END), forced_log_prob(model, source, (*b, END))) for b in beginnings]


def ranked(outputs: list[tuple[tuple[int, ...], float]], penalty: float) -> list[tuple[int, ...]]:
    return [tokens for tokens, log_prob in sorted(outputs, key=lambda o: -o[1] / len(o[0]) ** penalty)]


# ── beam ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(2))
def test_a_beam_wide_enough_for_everything_is_brute_force(seed: int) -> None:
    model, longest = tiny_model(seed), [4, 3, 2, 4]
    brute = [all_outputs(model, source, most) for source, most in zip(SOURCES, longest, strict=True)]
    for penalty in (0.0, 0.6, 1.0):
        found = search_outputs(Beam(size=100, length_penalty=penalty, best=100), model, SOURCES, longest)
        for outputs, hypotheses in zip(brute, found, strict=True):
            assert len(hypotheses) == len(outputs), "all that can be written"
            scores = {tokens: log_prob / len(tokens) ** penalty for tokens, log_prob in outputs}
            assert hypotheses[0].tokens == max(scores, key=scores.__getitem__)
            wanted = sorted(scores.values(), reverse=True)
            for hypothesis, score in zip(hypotheses, wanted, strict=True):
                assert math.isclose(hypothesis.score, score, abs_tol=1e-4)
                assert math.isclose(hypothesis.score, scores[hypothesis.tokens], abs_tol=1e-4)


def test_a_wide_beam_finds_the_best_of_longer_outputs_too() -> None:
    model = tiny_model(5, 1.5)
    outputs = all_outputs(model, SOURCES[0], 5)
    for penalty in (0.0, 0.6, 1.0):
        best = search_outputs(Beam(size=341, length_penalty=penalty), model, SOURCES[:1], [5])[0][0]
        score, tokens = max((log_prob / len(tokens) ** penalty, tokens) for tokens, log_prob in outputs)
        assert best.tokens == tokens
        assert math.isclose(best.score, score, abs_tol=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_a_beam_of_one_is_greedy(seed: int) -> None:
    model = tiny_model(seed, 1 + seed / 4)
    longest, beam = [6, 4, 5, 9], Beam(size=1, length_penalty=0.6)
    found = search_outputs(beam, model, SOURCES, longest)
    greedy = search_outputs(Greedy(), model, SOURCES, longest)
    assert [(only.tokens, only.log_prob) for (only,) in found] == [(only.tokens, only.log_prob) for (only,) in greedy]
    assert all(only.score == only.log_prob / len(only.tokens) ** 0.6 for (only,) in found)
    loop: Any = partial(loops.beam, beam)  # which knows no such case
    assert found == search_outputs(loop, model, SOURCES, longest)


def textbook_beam(model: Model, source: Sequence[int], longest: int, size: int, penalty: float) -> list[Any]:
    """One sentence, one list of beginnings, every probability computed anew: slow and plain."""
    beginnings: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    done: list[tuple[float, tuple[int, ...]]] = []
    for step in range(longest):
        allowed = [END] if step == longest - 1 else [t for t in range(V) if t not in (PAD, START)]
        grown = [
            (forced_log_prob(model, source, (*tokens, token)), (*tokens, token))
            for _, tokens in beginnings
            for token in allowed
        ]
        best = sorted(grown, reverse=True)[: size - len(done)]
        done += [one for one in best if one[1][-1] == END]
        beginnings = [one for one in best if one[1][-1] != END]
    return [tokens for _, tokens in sorted(((p / len(t) ** penalty, t) for p, t in done), reverse=True)]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_beam_is_the_textbooks(size: int) -> None:
    for seed in range(4):
        model, longest = tiny_model(seed), [4, 3, 5, 4]
        found = search_outputs(Beam(size=size, best=size), model, SOURCES, longest)
        for source, most, hypotheses in zip(SOURCES, longest, found, strict=True):
            assert [h.tokens for h in hypotheses] == textbook_beam(model, source, most, size, 1.0)


def test_the_n_best_are_sorted_and_distinct() -> None:
    for seed in range(10):
        for hypotheses in search_outputs(Beam(size=5, best=5), tiny_model(seed), SOURCES, [6] * 4):
            scores = [h.score for h in hypotheses]
            assert scores == sorted(scores, reverse=True)
            assert len({h.tokens for h in hypotheses}) == len(hypotheses)
            assert len(hypotheses) == 5


def test_more_outputs_than_places_are_refused() -> None:
    with pytest.raises(ValueError, match="best = 6"):
        Beam(size=5, best=6)


def patient(search: Beam, done: list[ScoredTokens], hope: float, longest: int) -> bool:
    """Goes on until nothing is open."""
    return hope == -math.inf


def hasty(search: Beam, done: list[ScoredTokens], hope: float, longest: int) -> bool:
    """Stops at the first good output, as many implementations do."""
    return hope == -math.inf or len(done) >= search.best


def forgetful(search: Beam, done: list[ScoredTokens], hope: float, longest: int) -> bool:
    """Compares with what is open as if it could not grow longer."""
    return hope == -math.inf or (len(done) >= search.best and sorted(h.score for h in done)[-search.best] >= hope)


def settings() -> Iterator[tuple[Model, Beam, list[int]]]:
    for seed in range(25):
        for penalty, size, best in ((0.0, 2, 1), (0.6, 3, 1), (1.0, 3, 2), (1.0, 5, 1), (1.7, 4, 1)):
            model = tiny_model(seed, (1.0, 1.5, 2.5)[seed % 3])
            yield model, Beam(size=size, length_penalty=penalty, best=best), [7, 4, 5, 9]


def check_early_stop(patch: pytest.MonkeyPatch, settled: Any) -> int:
    """Whatever stops it, a search gives what it would give in the end. Return how many outputs it left unwritten."""
    saved = 0
    for model, beam, longest in settings():
        answers, written = [], []
        for rule in (settled, patient):
            patch.setattr(loops, "_is_finished", rule)
            seen: list[int] = []
            patch.setattr("saccade.decode.loops.ScoredTokens", counted(seen))
            answers.append([[h.tokens for h in found] for found in search_outputs(beam, model, SOURCES, longest)])
            written.append(len(seen))
        assert answers[0] == answers[1]
        saved += written[1] - written[0]
    return saved


def counted(seen: list[int]) -> Any:
    def hypothesis(*fields: Any) -> ScoredTokens:
        seen.append(1)
        return ScoredTokens(*fields)

    return hypothesis


@pytest.mark.usefixtures("unchecked")
def test_stopping_early_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_early_stop(monkeypatch, loops._is_finished) > 10, "it never stopped early: nothing was tested"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("settled", [hasty, forgetful])
def test_stopping_too_early_would_be_noticed(settled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        check_early_stop(monkeypatch, settled)


# ── every search ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("search", [Greedy(), Beam(size=4, best=3), Sample(seed=3)], ids=["greedy", "beam", "sample"])
def test_a_score_is_the_forced_score(search: Any) -> None:
    for seed in range(5):
        model = tiny_model(seed)
        for source, hypotheses in zip(SOURCES, search_outputs(search, model, SOURCES, [5] * 4), strict=True):
            for found in hypotheses:
                cost, count = teacher_forced_cost(model, Corpus([source], [found.tokens[:-1]]), 4096)
                assert count == len(found.tokens)
                assert math.isclose(found.log_prob, -cost, abs_tol=1e-4)
                assert math.isclose(found.score, found.log_prob / len(found.tokens), rel_tol=1e-6)


@pytest.mark.parametrize("search", [Greedy(), Beam(size=4), Sample()], ids=["greedy", "beam", "sample"])
def test_prefixes_of_different_lengths_are_kept(search: Any) -> None:
    prefixes = [[], [4], [6, 5, 4], [5, 5, 5, 5, 5, 5]]
    for seed in range(5):
        found = search_outputs(search, tiny_model(seed), SOURCES, [4] * 4, prefixes)
        for prefix, (best, *_) in zip(prefixes, found, strict=True):
            assert best.tokens[: len(prefix)] == tuple(prefix)
            assert len(best.tokens) <= max(4, len(prefix) + 1), "a prefix leaves room for the end and no more"


def test_a_prefix_is_followed_by_the_best_that_can_follow() -> None:
    model, prefix = tiny_model(1), (5, 4)
    wanted = [o for o in all_outputs(model, SOURCES[0], 4) if o[0][:2] == prefix]
    found = search_outputs(Beam(size=100, best=20), model, SOURCES[:1], [4], [prefix])[0]
    assert [h.tokens for h in found] == ranked(wanted, 1.0)[:20]


# ── the engine ────────────────────────────────────────────────────────────────────────────────────

TOKENIZER: Tokenizer = WordVocabulary().learn(["a b c"])
LINES = ["a b c a", "", "c", "b b", "   ", "a c b", "c c c c c c c c c", "a", "b a", ""]


def decode(search: dict[str, Any], **keys: Any) -> DecodeConfig:
    return resolve(DecodeConfig, [python_layer({"search": search, **keys})]).config


def write(model: Model, lines: Sequence[str], settings: DecodeConfig, **more: Any) -> list[list[Output]]:
    return list(in_order(torch_engine(model, TOKENIZER, TOKENIZER).generate(lines, settings, **more)))


SEARCHES: list[dict[str, Any]] = [{"kind": "greedy"}, {"kind": "beam", "size": 3, "best": 2}, {"kind": "sample"}]
every_search = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search["kind"])


@every_search
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_writes_what_each_line_alone_would(search: dict[str, Any], seed: int) -> None:
    model = tiny_model(seed)
    together = write(model, LINES, decode(search))
    small = write(model, LINES, decode(search, batch_tokens=1))
    alone = [write(model, [line], decode(search), first=number)[0] for number, line in enumerate(LINES)]
    for other in (small, alone):
        assert [[o.text for o in outputs] for outputs in other] == [[o.text for o in outputs] for outputs in together]
        for one, same in zip(itertools.chain(*other), itertools.chain(*together), strict=True):
            assert math.isclose(one.score, same.score, abs_tol=1e-4)
            assert one.ids == same.ids


@every_search
def test_lines_in_are_lines_out_in_order_and_nothing_gives_nothing(search: dict[str, Any]) -> None:
    model = tiny_model(2)
    outputs = write(model, LINES, decode(search))
    assert len(outputs) == len(LINES)
    for number, line in enumerate(LINES):
        best = outputs[number][0]
        if not line.strip():
            assert (best.text, best.ids) == ("", (END,))
        else:
            source = TOKENIZER.encode([line])[0]
            assert math.isclose(best.log_prob, forced_log_prob(model, source, best.ids), abs_tol=1e-4), "out of order"


@every_search
def test_outputs_come_as_they_are_found_each_with_its_number(search: dict[str, Any]) -> None:
    engine, settings = torch_engine(tiny_model(1), TOKENIZER, TOKENIZER), decode(search, batch_tokens=30)
    found = list(engine.generate(LINES, settings))
    assert sorted(row for row, _ in found) == list(range(len(LINES)))
    assert list(in_order(found)) == [outputs for _, outputs in sorted(found, key=lambda pair: pair[0])]


@every_search
def test_batches_side_by_side_write_the_same_bits(search: dict[str, Any]) -> None:
    model, settings = tiny_model(3), decode(search, batch_tokens=10)
    after_one_another = write(model, LINES, settings)
    torch.set_num_threads(2)
    try:
        assert write(model, LINES, settings) == after_one_another
    finally:
        torch.set_num_threads(1)


def test_no_lines_give_no_lines() -> None:
    assert write(tiny_model(0), [], decode({"kind": "beam"})) == []
    assert [o[0].text for o in write(tiny_model(0), ["", " "], decode({"kind": "beam"}))] == ["", ""]


@every_search
def test_the_longest_output_follows_from_the_source(search: dict[str, Any]) -> None:
    model = tiny_model(0, head="linear")
    with torch.no_grad():
        model.head.out.bias[END] = -1000.0  # it would never end by itself
    lines = [line for line in LINES if line.strip()]
    for ratio, extra in ((0.0, 0), (0.5, 1), (2.0, 3)):
        for line, outputs in zip(lines, write(model, lines, decode(search, ratio=ratio, extra=extra)), strict=True):
            longest = int(ratio * len(line.split()) + extra)
            assert {len(o.ids) for o in outputs} == {longest + 1}, "so many tokens and the end"
            assert all(o.ids[-1] == END and END not in o.ids[:-1] for o in outputs)


def test_the_engine_forces_prefixes_given_as_text() -> None:
    prefixes = ["", "b", "c c", "a b c a b", "b", "", "c", "a", "b", "b"]
    outputs = write(tiny_model(3), LINES, decode({"kind": "beam"}, ratio=0.0, extra=2), prefixes=prefixes)
    for line, prefix, (best, *_) in zip(LINES, prefixes, outputs, strict=True):
        if line.strip():
            assert best.text.startswith(prefix)


def test_a_model_in_training_is_left_in_training() -> None:
    model = tiny_model(0).train()
    write(model, LINES, decode({"kind": "greedy"}))
    assert model.training


# ── sampling ──────────────────────────────────────────────────────────────────────────────────────


def test_what_is_drawn_for_a_line_depends_on_its_number_and_nothing_around_it() -> None:
    model, settings = tiny_model(4), decode({"kind": "sample", "seed": 7})
    lines = [" ".join("abc"[(n * k) % 3] for k in range(1 + n % 5)) for n in range(20)]
    texts = [o[0].text for o in write(model, lines, settings)]
    others = [line if n % 3 else "c a b c a b" for n, line in enumerate(lines)]
    changed = [o[0].text for o in write(model, others, settings)]
    assert [t for n, t in enumerate(changed) if n % 3] == [t for n, t in enumerate(texts) if n % 3]
    assert [o[0].text for o in write(model, lines[6:], settings, first=6)] == texts[6:]
    assert [o[0].text for o in write(model, lines, settings)] == texts
    assert [o[0].text for o in write(model, lines, decode({"kind": "sample", "seed": 8}))] != texts


def test_equal_lines_are_drawn_apart() -> None:
    outputs = write(tiny_model(4), ["a b c"] * 20, decode({"kind": "sample"}))
    assert len({o[0].text for o in outputs}) > 3


@pytest.mark.parametrize(
    "options", [{"top_k": 1}, {"temperature": 1e-5}, {"top_p": 1e-9}, {"temperature": 1e-40}], ids=str
)
def test_sampling_the_argmax_is_greedy(options: dict[str, Any]) -> None:
    for seed in range(6):
        model = tiny_model(seed)
        assert search_outputs(Sample(**options), model, SOURCES, [6] * 4) == search_outputs(Greedy(), model, SOURCES, [6] * 4)


def shares(search: Sample, log_probs: torch.Tensor, draws: int = 20_000, step: int = 0) -> torch.Tensor:
    """How often each token is drawn for many sentences that the model sees alike."""
    tokens = loops.sample(search, log_probs.expand(draws, -1), list(range(draws)), step)
    return torch.bincount(tokens, minlength=log_probs.shape[-1]) / draws


LOG_PROBS = torch.tensor([0.02, 0.4, 0.05, 0.3, 0.15, 0.08]).log()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [0.02, 0.4, 0.05, 0.3, 0.15, 0.08]),
        ({"seed": 99}, [0.02, 0.4, 0.05, 0.3, 0.15, 0.08]),
        ({"temperature": 0.5}, [0.0004, 0.16, 0.0025, 0.09, 0.0225, 0.0064]),
        ({"top_k": 2}, [0, 0.4, 0, 0.3, 0, 0]),
        ({"top_p": 0.69}, [0, 0.4, 0, 0.3, 0, 0]),
        ({"top_p": 0.71}, [0, 0.4, 0, 0.3, 0.15, 0]),
        ({"top_k": 3, "top_p": 0.5}, [0, 0.4, 0, 0.3, 0, 0]),
    ],
    ids=str,
)
def test_tokens_are_drawn_as_often_as_they_are_likely(options: dict[str, Any], wanted: list[float]) -> None:
    likely = torch.tensor(wanted) / sum(wanted)
    found = shares(Sample(**options), LOG_PROBS)
    noise = 4.5 * (likely * (1 - likely) / 20_000).sqrt()
    assert ((found - likely).abs() <= noise + 1e-9).all(), found


def test_what_may_not_be_written_is_never_drawn() -> None:
    forbidden = LOG_PROBS.clone()
    forbidden[[1, 3]] = -math.inf
    assert not shares(Sample(temperature=5.0), forbidden)[[1, 3]].any()


def test_the_draws_of_two_steps_have_nothing_in_common() -> None:
    search, even = Sample(), torch.full((1, 2), 0.5).log()
    first, second = (loops.sample(search, even.expand(4000, 2), list(range(4000)), step).float() for step in (0, 1))
    assert abs(float(((first - 0.5) * (second - 0.5)).mean()) * 4) < 4.5 / math.sqrt(4000)


def share(model: Model, source: Sequence[int], tokens: Sequence[int], longest: int) -> float:
    """How often an output should be drawn: what may not be written is taken out, and the last token is no choice."""
    with torch.inference_mode():
        memory = model.encoder.encode(torch.tensor([[*source, END]]), None)
        hidden, _ = model.decoder.step(torch.tensor([[START, *tokens[:-1]]]), model.decoder.start(memory, 1))
        log_probs = model.head.log_probs(hidden)[0].double()
        log_probs[:, [PAD, START]] = -math.inf
    chosen = log_probs.softmax(-1).gather(1, torch.tensor(tokens)[:, None])[: longest - 1]
    return float(chosen.prod())


def test_whole_outputs_are_drawn_as_often_as_they_are_likely() -> None:
    model, draws, longest = tiny_model(6), 4000, 3
    likely = {tokens: share(model, [5], tokens, longest) for tokens, _ in all_outputs(model, [5], longest)}
    assert math.isclose(sum(likely.values()), 1, abs_tol=1e-6)
    drawn = Counter(best.tokens for (best,) in search_outputs(Sample(), model, [[5]] * draws, [longest] * draws))
    for tokens, p in likely.items():
        assert abs(drawn[tokens] / draws - p) <= 4.5 * math.sqrt(p * (1 - p) / draws) + 1e-9, tokens


@pytest.mark.parametrize(
    ("places", "count"), [(1, 1), (7, 5), (23, 5), (24, 5), (4000, 1), (4000, 5), (4001, 12), (96, 90)]
)
def test_the_greatest_are_found_as_topk_finds_them(places: int, count: int) -> None:
    scores = torch.randn(9, places, generator=torch.Generator().manual_seed(places))
    scores[:, ::3] = -math.inf
    found, wanted = loops.top(scores, count), scores.topk(count)
    assert torch.equal(found[0], wanted.values)
    there = wanted.values > -math.inf
    assert torch.equal(found[1][there], wanted.indices[there])
    assert torch.equal(scores.gather(1, found[1]), found[0])
