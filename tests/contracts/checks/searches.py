"""The contract of a search."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from contracts.checks.running import encode
from saccade.data import batches
from saccade.data.tokenizers import END, PAD, START
from saccade.decode.constraints import Constraints
from saccade.decode.loops import ScoredTokens, run_search
from saccade.decode.search import Search
from saccade.decode.torch_engine import PromptedDecoder, UnfusedDecoder
from saccade.models.assemble import Model


def search_outputs(
    search: Search,
    model: Model,
    sources: Sequence[Sequence[int]],
    longest: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[ScoredTokens]]:
    """The hypotheses of each source, in order. The search must return each sentence exactly once."""
    source = batches.Padded.of([np.array([*source, END]) for source in sources])
    constraints = Constraints.of(list(longest), prefixes)
    with torch.inference_mode():
        memory = source if model.encoder is None else encode(model, source.values, source.keep)
        decoder = PromptedDecoder(model) if model.encoder is None else UnfusedDecoder(model)
        outputs = list(run_search(search, decoder, memory, constraints, list(range(len(sources)))))
    assert sorted(row for row, _ in outputs) == list(range(len(sources))), "not every sentence was returned once"
    return [hypotheses for _, hypotheses in sorted(outputs, key=lambda output: output[0])]


def forced_log_prob(model: Model, source: Sequence[int], tokens: Sequence[int]) -> float:
    """log p of tokens (with the end token), computed in one teacher-forced pass without any search."""
    with torch.inference_mode():
        memory = encode(model, torch.tensor([[*source, END]]), None)
        prompt = [*source, END] if model.encoder is None else []
        inputs = torch.tensor([[*prompt, START, *tokens[:-1]]])
        hidden, _ = model.decoder.step(inputs, model.decoder.start(memory, 1))
        log_probs = model.head.log_probs(hidden)[0, len(prompt) :].double()
    return float(log_probs.gather(1, torch.tensor(tokens)[:, None]).sum())


def check_search(make: Callable[[], Search], model: Model) -> None:
    """Every hypothesis ends, satisfies the constraints, and has the log-probability of a teacher-forced pass; a second
    search gives the same result."""
    model.eval()
    sources, longest = [[4, 5, 6], [5], [6, 4]], [5, 3, 4]
    prefixes = [[], [6, 4, 5, 4], [5]]
    assert make().width >= 1, "the number of hypotheses per sentence is not positive"
    for forced in (None, prefixes):
        outputs = search_outputs(make(), model, sources, longest, forced)
        repeated = search_outputs(make(), model, sources, longest, forced)
        assert outputs == repeated, "a second search gives another result"
        for row, hypotheses in enumerate(outputs):
            assert hypotheses
            prefix = tuple(prefixes[row]) if forced else ()
            for hypothesis in hypotheses:
                tokens = hypothesis.tokens
                assert tokens[-1] == END, "a hypothesis does not end"
                assert not {PAD, START, END} & set(tokens[:-1]), "a hypothesis contains special tokens"
                assert len(tokens) <= max(longest[row], len(prefix) + 1), "a hypothesis is too long"
                assert tokens[: len(prefix)] == prefix, "a hypothesis does not begin with the forced prefix"
                expected = forced_log_prob(model, sources[row], tokens)
                assert math.isclose(hypothesis.log_prob, expected, rel_tol=1e-4, abs_tol=1e-4), "wrong log-probability"
