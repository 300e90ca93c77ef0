"""Searches compared with brute force, with each other and with teacher-forced passes, on models so small that all their
outputs can be listed."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from contracts.checks.common import perturbed
from contracts.checks.searches import forced_log_prob, search_outputs
from contracts.variants import NO_DROPOUT, Variant
from saccade.config import python_layer, resolve
from saccade.data.batches import Corpus
from saccade.data.tokenizers import END, PAD, START, Tokenizer, WordKind
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
    """A random model. `sharpness` scales the embeddings, and so the differences between logits."""
    side = {"depth": 1, "block": {name: {"heads": 2} for name in ("self", "cross")} | {"feed_forward": {"inner": 11}}}
    tree = {"dim": 10, "encoder": side, "decoder": side, "head": head, "dropout": NO_DROPOUT}
    model = perturbed(Variant("tiny", tree, V, V).fresh(seed), seed).eval()
    with torch.no_grad():
        model.encoder.embedding.table.weight *= sharpness
    return model


def all_outputs(model: Model, source: Sequence[int], longest: int) -> list[tuple[tuple[int, ...], float]]:
    """All allowed outputs of at most `longest` tokens, with their log-probabilities."""
    free = [token for token in range(V) if token not in (PAD, START, END)]
    beginnings = itertools.chain.from_iterable(itertools.product(free, repeat=n) for n in range(longest))
    return [((*b, END), forced_log_prob(model, source, (*b, END))) for b in beginnings]


def ranked(outputs: list[tuple[tuple[int, ...], float]], penalty: float) -> list[tuple[int, ...]]:
    return [tokens for tokens, log_prob in sorted(outputs, key=lambda o: -o[1] / len(o[0]) ** penalty)]


# ── beam ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_beam_wide_enough_for_all_outputs_equals_brute_force(seed: int) -> None:
    model, longest = tiny_model(seed), [4, 3, 2, 4]
    brute = [all_outputs(model, source, limit) for source, limit in zip(SOURCES, longest, strict=True)]
    for penalty in (0.0, 0.6, 1.0):
        results = search_outputs(Beam(size=100, length_penalty=penalty, best=100), model, SOURCES, longest)
        for outputs, hypotheses in zip(brute, results, strict=True):
            assert len(hypotheses) == len(outputs), "not every allowed output was returned"
            scores = {tokens: log_prob / len(tokens) ** penalty for tokens, log_prob in outputs}
            assert hypotheses[0].tokens == max(scores, key=scores.__getitem__)
            expected = sorted(scores.values(), reverse=True)
            for hypothesis, score in zip(hypotheses, expected, strict=True):
                assert math.isclose(hypothesis.score, score, abs_tol=1e-4)
                assert math.isclose(hypothesis.score, scores[hypothesis.tokens], abs_tol=1e-4)


@pytest.mark.slow
def test_wide_beam_returns_the_best_of_longer_outputs() -> None:
    model = tiny_model(5, 1.5)
    outputs = all_outputs(model, SOURCES[0], 5)
    for penalty in (0.0, 0.6, 1.0):
        # 341 is the number of outputs: up to four of four tokens, then END, so 1 + 4 + 16 + 64 + 256
        best = search_outputs(Beam(size=341, length_penalty=penalty), model, SOURCES[:1], [5])[0][0]
        score, tokens = max((log_prob / len(tokens) ** penalty, tokens) for tokens, log_prob in outputs)
        assert best.tokens == tokens
        assert math.isclose(best.score, score, abs_tol=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_beam_of_one_equals_greedy_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(seed, 1 + seed / 4)
    longest, beam = [6, 4, 5, 9], Beam(size=1, length_penalty=0.6)
    results = search_outputs(beam, model, SOURCES, longest)
    greedy = search_outputs(Greedy(), model, SOURCES, longest)
    assert [(only.tokens, only.log_prob) for (only,) in results] == [(only.tokens, only.log_prob) for (only,) in greedy]
    assert all(only.score == only.log_prob / len(only.tokens) ** 0.6 for (only,) in results)
    # run_search turns a beam of one into greedy search; the beam loop itself must give the same
    monkeypatch.setattr("contracts.checks.searches.run_search", lambda *args: loops.beam(*args[:4], lambda: True))
    assert results == search_outputs(beam, model, SOURCES, longest)


def textbook_beam(model: Model, source: Sequence[int], longest: int, size: int, penalty: float) -> list[Any]:
    """Beam search of one sentence that computes every probability from scratch: slow but simple."""
    hypotheses: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, tuple[int, ...]]] = []
    for step in range(longest):
        allowed = [END] if step == longest - 1 else [t for t in range(V) if t not in (PAD, START)]
        extended = [
            (forced_log_prob(model, source, (*tokens, token)), (*tokens, token))
            for _, tokens in hypotheses
            for token in allowed
        ]
        best = sorted(extended, reverse=True)[: size - len(finished)]
        finished += [hypothesis for hypothesis in best if hypothesis[1][-1] == END]
        hypotheses = [hypothesis for hypothesis in best if hypothesis[1][-1] != END]
    return [tokens for _, tokens in sorted(((p / len(t) ** penalty, t) for p, t in finished), reverse=True)]


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("size", [2, 3, 5])
def test_beam_search_equals_the_textbook_algorithm(size: int) -> None:
    for seed in range(4):
        model, longest = tiny_model(seed), [4, 3, 5, 4]
        results = search_outputs(Beam(size=size, best=size), model, SOURCES, longest)
        for source, limit, hypotheses in zip(SOURCES, longest, results, strict=True):
            assert [h.tokens for h in hypotheses] == textbook_beam(model, source, limit, size, 1.0)


def test_n_best_outputs_are_sorted_and_distinct() -> None:
    for seed in range(10):
        for hypotheses in search_outputs(Beam(size=5, best=5), tiny_model(seed), SOURCES, [6] * 4):
            scores = [h.score for h in hypotheses]
            assert scores == sorted(scores, reverse=True)
            assert len({h.tokens for h in hypotheses}) == len(hypotheses)
            assert len(hypotheses) == 5


def test_more_outputs_than_the_beam_size_are_refused() -> None:
    with pytest.raises(ValueError, match="best = 6"):
        Beam(size=5, best=6)


def never_stop_early(search: Beam, finished: list[ScoredTokens], open_log_prob: float, longest: int) -> bool:
    """Search until no hypothesis is open."""
    return open_log_prob == -math.inf


def stop_at_first_outputs(search: Beam, finished: list[ScoredTokens], open_log_prob: float, longest: int) -> bool:
    """Stop as soon as enough hypotheses are finished, as many implementations do."""
    return open_log_prob == -math.inf or len(finished) >= search.best


def ignore_length(search: Beam, finished: list[ScoredTokens], open_log_prob: float, longest: int) -> bool:
    """Compare with the open hypotheses without their length normalization."""
    if open_log_prob == -math.inf:
        return True
    return len(finished) >= search.best and sorted(h.score for h in finished)[-search.best] >= open_log_prob


def settings() -> Iterator[tuple[Model, Beam, list[int]]]:
    for seed in range(25):
        for penalty, size, best in ((0.0, 2, 1), (0.6, 3, 1), (1.0, 3, 2), (1.0, 5, 1), (1.7, 4, 1)):
            model = tiny_model(seed, (1.0, 1.5, 2.5)[seed % 3])
            yield model, Beam(size=size, length_penalty=penalty, best=best), [7, 4, 5, 9]


def check_early_stop(patch: pytest.MonkeyPatch, is_finished: Any) -> int:
    """A search that stops early returns the same as one that does not. Returns how many hypotheses it saved."""
    saved = 0
    for model, beam, longest in settings():
        answers, counts = [], []
        for rule in (is_finished, never_stop_early):
            patch.setattr(loops, "_is_finished", rule)
            created: list[int] = []
            patch.setattr("saccade.decode.loops.ScoredTokens", counted(created))
            answers.append(
                [[h.tokens for h in hypotheses] for hypotheses in search_outputs(beam, model, SOURCES, longest)]
            )
            counts.append(len(created))
        assert answers[0] == answers[1]
        saved += counts[1] - counts[0]
    return saved


def counted(created: list[int]) -> Any:
    def hypothesis(*fields: Any) -> ScoredTokens:
        created.append(1)
        return ScoredTokens(*fields)

    return hypothesis


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
def test_early_stop_does_not_change_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_early_stop(monkeypatch, loops._is_finished) > 10, (
        "the search never stopped early, so nothing was tested"
    )


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("is_finished", [stop_at_first_outputs, ignore_length])
def test_early_stop_check_detects_a_wrong_rule(is_finished: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        check_early_stop(monkeypatch, is_finished)


# ── every search ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("search", [Greedy(), Beam(size=4, best=3), Sample(seed=3)], ids=["greedy", "beam", "sample"])
def test_log_prob_of_an_output_equals_its_teacher_forced_log_prob(search: Any) -> None:
    for seed in range(5):
        model = tiny_model(seed)
        for source, hypotheses in zip(SOURCES, search_outputs(search, model, SOURCES, [5] * 4), strict=True):
            for hypothesis in hypotheses:
                cost, count = teacher_forced_cost(model, Corpus([source], [hypothesis.tokens[:-1]]), 4096)
                assert count == len(hypothesis.tokens)
                assert math.isclose(hypothesis.log_prob, -cost, abs_tol=1e-4)
                assert math.isclose(hypothesis.score, hypothesis.log_prob / len(hypothesis.tokens), rel_tol=1e-6)


@pytest.mark.parametrize("search", [Greedy(), Beam(size=4), Sample()], ids=["greedy", "beam", "sample"])
def test_outputs_begin_with_prefixes_of_different_lengths(search: Any) -> None:
    prefixes = [[], [4], [6, 5, 4], [5, 5, 5, 5, 5, 5]]
    for seed in range(5):
        results = search_outputs(search, tiny_model(seed), SOURCES, [4] * 4, prefixes)
        for prefix, (best, *_) in zip(prefixes, results, strict=True):
            assert best.tokens[: len(prefix)] == tuple(prefix)
            assert len(best.tokens) <= max(4, len(prefix) + 1), (
                "the output is longer than its limit, or than its prefix and the end symbol"
            )


def test_prefix_is_continued_with_the_best_outputs() -> None:
    model, prefix = tiny_model(1), (5, 4)
    expected = [o for o in all_outputs(model, SOURCES[0], 4) if o[0][:2] == prefix]
    results = search_outputs(Beam(size=100, best=20), model, SOURCES[:1], [4], [prefix])[0]
    assert [h.tokens for h in results] == ranked(expected, 1.0)[:20]


# ── the engine ────────────────────────────────────────────────────────────────────────────────────

TOKENIZER: Tokenizer = WordKind().learn(["a b c"])
LINES = ["a b c a", "", "c", "b b", "   ", "a c b", "c c c c c c c c c", "a", "b a", ""]


def decode(search: dict[str, Any], **keys: Any) -> DecodeConfig:
    return resolve(DecodeConfig, [python_layer({"search": search, **keys})]).config


def generate(model: Model, lines: Sequence[str], settings: DecodeConfig, **more: Any) -> list[list[Output]]:
    return list(in_order(torch_engine(model, TOKENIZER, TOKENIZER).generate(lines, settings, **more)))


SEARCHES: list[dict[str, Any]] = [{"kind": "greedy"}, {"kind": "beam", "size": 3, "best": 2}, {"kind": "sample"}]
every_search = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search["kind"])


@every_search
@pytest.mark.parametrize("seed", range(4))
def test_batch_gives_the_same_outputs_as_single_lines(search: dict[str, Any], seed: int) -> None:
    model = tiny_model(seed)
    batched = generate(model, LINES, decode(search))
    small = generate(model, LINES, decode(search, batch_tokens=1))
    single = [generate(model, [line], decode(search), first=number)[0] for number, line in enumerate(LINES)]
    for other in (small, single):
        assert [[o.text for o in outputs] for outputs in other] == [[o.text for o in outputs] for outputs in batched]
        for one, same in zip(itertools.chain(*other), itertools.chain(*batched), strict=True):
            assert math.isclose(one.score, same.score, abs_tol=1e-4)
            assert one.ids == same.ids


@every_search
def test_outputs_are_in_order_and_empty_lines_give_empty_outputs(search: dict[str, Any]) -> None:
    model = tiny_model(2)
    outputs = generate(model, LINES, decode(search))
    assert len(outputs) == len(LINES)
    for number, line in enumerate(LINES):
        best = outputs[number][0]
        if not line.strip():
            assert (best.text, best.ids) == ("", (END,))
        else:
            source = TOKENIZER.encode([line])[0]
            assert math.isclose(best.log_prob, forced_log_prob(model, source, best.ids), abs_tol=1e-4), (
                "outputs are out of order"
            )


@every_search
def test_engine_yields_each_row_once_with_its_index(search: dict[str, Any]) -> None:
    engine, settings = torch_engine(tiny_model(1), TOKENIZER, TOKENIZER), decode(search, batch_tokens=30)
    results = list(engine.generate(LINES, settings))
    assert sorted(row for row, _ in results) == list(range(len(LINES)))
    assert list(in_order(results)) == [outputs for _, outputs in sorted(results, key=lambda pair: pair[0])]


@every_search
def test_parallel_batches_give_bit_identical_outputs(search: dict[str, Any]) -> None:
    model, settings = tiny_model(3), decode(search, batch_tokens=10)
    sequential = generate(model, LINES, settings)
    torch.set_num_threads(2)
    try:
        assert generate(model, LINES, settings) == sequential
    finally:
        torch.set_num_threads(1)


def test_no_lines_give_no_outputs() -> None:
    assert generate(tiny_model(0), [], decode({"kind": "beam"})) == []
    assert [o[0].text for o in generate(tiny_model(0), ["", " "], decode({"kind": "beam"}))] == ["", ""]


@every_search
def test_output_length_limit_follows_from_ratio_and_extra(search: dict[str, Any]) -> None:
    model = tiny_model(0, head="linear")
    with torch.no_grad():
        model.head.out.bias[END] = -1000.0  # so that only the limit ends an output
    lines = [line for line in LINES if line.strip()]
    for ratio, extra in ((0.0, 0), (0.5, 1), (2.0, 3)):
        for line, outputs in zip(lines, generate(model, lines, decode(search, ratio=ratio, extra=extra)), strict=True):
            longest = int(ratio * len(line.split()) + extra)
            assert {len(o.ids) for o in outputs} == {longest + 1}, "expected the limit and the end symbol"
            assert all(o.ids[-1] == END and END not in o.ids[:-1] for o in outputs)


def test_engine_forces_prefixes_given_as_text() -> None:
    prefixes = ["", "b", "c c", "a b c a b", "b", "", "c", "a", "b", "b"]
    outputs = generate(tiny_model(3), LINES, decode({"kind": "beam"}, ratio=0.0, extra=2), prefixes=prefixes)
    for line, prefix, (best, *_) in zip(LINES, prefixes, outputs, strict=True):
        if line.strip():
            assert best.text.startswith(prefix)


def test_model_in_training_mode_stays_in_training_mode() -> None:
    model = tiny_model(0).train()
    generate(model, LINES, decode({"kind": "greedy"}))
    assert model.training


# ── sampling ──────────────────────────────────────────────────────────────────────────────────────


def test_sample_of_a_line_depends_on_its_number_but_not_on_other_lines() -> None:
    model, settings = tiny_model(4), decode({"kind": "sample", "seed": 7})
    lines = [" ".join("abc"[(n * k) % 3] for k in range(1 + n % 5)) for n in range(20)]
    texts = [o[0].text for o in generate(model, lines, settings)]
    others = [line if n % 3 else "c a b c a b" for n, line in enumerate(lines)]
    changed = [o[0].text for o in generate(model, others, settings)]
    assert [t for n, t in enumerate(changed) if n % 3] == [t for n, t in enumerate(texts) if n % 3]
    assert [o[0].text for o in generate(model, lines[6:], settings, first=6)] == texts[6:]
    assert [o[0].text for o in generate(model, lines, settings)] == texts
    assert [o[0].text for o in generate(model, lines, decode({"kind": "sample", "seed": 8}))] != texts


def test_equal_lines_get_different_samples() -> None:
    outputs = generate(tiny_model(4), ["a b c"] * 20, decode({"kind": "sample"}))
    assert len({o[0].text for o in outputs}) > 3


@pytest.mark.parametrize(
    "options", [{"top_k": 1}, {"temperature": 1e-5}, {"top_p": 1e-9}, {"temperature": 1e-40}], ids=str
)
def test_sampling_only_the_argmax_equals_greedy_search(options: dict[str, Any]) -> None:
    for seed in range(6):
        model = tiny_model(seed)
        assert search_outputs(Sample(**options), model, SOURCES, [6] * 4) == search_outputs(
            Greedy(), model, SOURCES, [6] * 4
        )


def frequencies(search: Sample, log_probs: torch.Tensor, draws: int = 20_000, step: int = 0) -> torch.Tensor:
    """The frequency of each token over many draws from the same distribution."""
    tokens = loops.sample(search, log_probs.expand(draws, -1), list(range(draws)), step)
    return torch.bincount(tokens, minlength=log_probs.shape[-1]) / draws


LOG_PROBS = torch.tensor([0.02, 0.4, 0.05, 0.3, 0.15, 0.08]).log()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
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
def test_token_frequencies_equal_probabilities(options: dict[str, Any], expected: list[float]) -> None:
    probs = torch.tensor(expected) / sum(expected)
    observed = frequencies(Sample(**options), LOG_PROBS)
    noise = 4.5 * (probs * (1 - probs) / 20_000).sqrt()
    assert ((observed - probs).abs() <= noise + 1e-9).all(), observed


def test_forbidden_tokens_are_never_sampled() -> None:
    forbidden = LOG_PROBS.clone()
    forbidden[[1, 3]] = -math.inf
    assert not frequencies(Sample(temperature=5.0), forbidden)[[1, 3]].any()


def test_draws_of_two_steps_are_uncorrelated() -> None:
    search, even = Sample(), torch.full((1, 2), 0.5).log()
    first, second = (loops.sample(search, even.expand(4000, 2), list(range(4000)), step).float() for step in (0, 1))
    assert abs(float(((first - 0.5) * (second - 0.5)).mean()) * 4) < 4.5 / math.sqrt(4000)


def sampling_probability(model: Model, source: Sequence[int], tokens: Sequence[int], longest: int) -> float:
    """The probability that sampling returns this output: forbidden tokens are excluded, and a token at the limit is
    forced."""
    with torch.inference_mode():
        memory = model.encoder.encode(torch.tensor([[*source, END]]), None)
        hidden, _ = model.decoder.step(torch.tensor([[START, *tokens[:-1]]]), model.decoder.start(memory, 1))
        log_probs = model.head.log_probs(hidden)[0].double()
        log_probs[:, [PAD, START]] = -math.inf
    chosen = log_probs.softmax(-1).gather(1, torch.tensor(tokens)[:, None])[: longest - 1]
    return float(chosen.prod())


@pytest.mark.slow
def test_output_frequencies_equal_probabilities() -> None:
    model, draws, longest = tiny_model(6), 4000, 3
    outputs = all_outputs(model, [5], longest)
    probs = {tokens: sampling_probability(model, [5], tokens, longest) for tokens, _ in outputs}
    assert math.isclose(sum(probs.values()), 1, abs_tol=1e-6)
    drawn = Counter(best.tokens for (best,) in search_outputs(Sample(), model, [[5]] * draws, [longest] * draws))
    for tokens, p in probs.items():
        assert abs(drawn[tokens] / draws - p) <= 4.5 * math.sqrt(p * (1 - p) / draws) + 1e-9, tokens


@pytest.mark.parametrize(
    ("entries", "count"), [(1, 1), (7, 5), (23, 5), (24, 5), (4000, 1), (4000, 5), (4001, 12), (96, 90)]
)
def test_top_equals_topk(entries: int, count: int) -> None:
    scores = torch.randn(9, entries, generator=torch.Generator().manual_seed(entries))
    scores[:, ::3] = -math.inf
    (values, indices), expected = loops.top(scores, count), scores.topk(count)
    assert torch.equal(values, expected.values)
    finite = expected.values > -math.inf
    assert torch.equal(indices[finite], expected.indices[finite])
    assert torch.equal(scores.gather(1, indices), values)
