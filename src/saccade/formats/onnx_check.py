"""Whether the graphs of a model compute what the model computes, also at other sizes than those of the example that
they were traced with. A graph holds as a constant what a part reads as a Python value, such as `places.end`."""

from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from saccade.data.batches import Padded
from saccade.decode.loops import StepModel
from saccade.decode.search_engine import DecodableModel
from saccade.decode.torch_engine import UnfusedDecoder
from saccade.models.assemble import Model
from saccade.places import select
from saccade.shapes import Int

# Of log-probabilities. Rounding makes a difference of 1e-5 in a Transformer of 48 million weights.
ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE = 1e-2, 1e-3
ATTEMPTS = 3


@dataclass(frozen=True)
class CheckedSizes:
    """The sizes of a batch. The first sentence has `source` tokens, the others have fewer."""

    sentences: int
    beam: int
    source: int
    steps: int


# a single hypothesis; no padding; padding and more steps
CHECKED_SIZES = (CheckedSizes(1, 1, 1, 2), CheckedSizes(1, 3, 40, 4), CheckedSizes(3, 2, 9, 12))


@torch.inference_mode()
def first_difference(model: Model, graphs: DecodableModel, vocabularies: tuple[int, int]) -> str | None:
    """How the graphs differ from the model, None if they do not. `vocabularies` are the sizes of source and target."""
    for sizes in CHECKED_SIZES:
        # hard attention may choose another key where two scores are equal up to rounding, but not with all seeds
        attempts = (_difference(model, graphs, vocabularies, sizes, seed) for seed in range(ATTEMPTS))
        found = [*takewhile(bool, attempts)]
        if len(found) == ATTEMPTS:
            return found[0]
    return None


def _difference(
    model: Model, graphs: DecodableModel, vocabularies: tuple[int, int], sizes: CheckedSizes, seed: int
) -> str | None:
    """The first step at which they differ on random tokens, with the difference; None if there is none."""
    assert model.encoder is not None
    assert model.decoder is not None
    generator = torch.Generator().manual_seed(seed)
    source = _random_source(sizes, vocabularies[0], model.encoder.longest, generator)
    steps = min(sizes.steps, model.decoder.longest or sizes.steps)
    tokens = torch.randint(vocabularies[1], (steps, sizes.sentences * sizes.beam), generator=generator)
    expected = _log_probs(UnfusedDecoder(model), model.encode(source.values, source.keep), tokens, sizes)
    try:
        actual = _log_probs(graphs, graphs.encode(source), tokens, sizes)
    except Exception as error:  # onnxruntime's errors have no common base class
        return f"onnxruntime cannot run them: {str(error).splitlines()[0]}"
    for step, (x, y) in enumerate(zip(actual, expected, strict=True), 1):
        if not torch.allclose(x, y, RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE, equal_nan=True):
            return f"the log-probabilities of step {step} differ by up to {(x - y).abs().max():.2g}"
    return None


def _log_probs(decoder: StepModel, memory: Any, tokens: Int[Tensor, "T B"], sizes: CheckedSizes) -> list[Tensor]:
    """The log-probabilities [B V] after each step of a search that chooses these tokens."""
    rows = torch.arange(sizes.sentences).repeat_interleave(sizes.beam)
    state, results = select(decoder.start(memory, sizes.sentences), rows), []
    for step_tokens in tokens:
        log_probs, state = decoder.step(step_tokens, state)
        results.append(log_probs)
    return results


def _random_source(sizes: CheckedSizes, vocabulary: int, longest: int | None, generator: torch.Generator) -> Padded:
    length = min(sizes.source, longest or sizes.source)
    lengths = (length // torch.arange(1, sizes.sentences + 1)).clamp(min=1)
    keep = torch.arange(length) < lengths[:, None]
    values = torch.randint(vocabulary, keep.shape, generator=generator).masked_fill(~keep, 0)
    return Padded(values, None if sizes.sentences == 1 else keep)
