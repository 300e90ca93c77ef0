"""Random inputs for a model, and the outputs that the checks of models compare."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from contracts.checks.common import SOURCE_LENGTHS, TARGET_LENGTHS, padding_mask
from contracts.variants import B, S, T
from saccade.data.batches import COLLATE_PAIRS, COLLATE_PROMPTED, Corpus
from saccade.data.tokenizers import SPECIAL
from saccade.models.assemble import Model
from saccade.notes import capture
from saccade.parts import Hard, MultiHead, Unprojected
from saccade.places import Memory


@dataclass(frozen=True)
class ModelInputs:
    """Three sources [B S] and three targets [B T] of different lengths, with their padding masks."""

    source: Tensor
    source_keep: Tensor | None
    target: Tensor
    target_keep: Tensor | None

    def rows(self, order: Sequence[int]) -> "ModelInputs":
        order = list(order)
        return ModelInputs(
            self.source[order],
            None if self.source_keep is None else self.source_keep[order],
            self.target[order],
            None if self.target_keep is None else self.target_keep[order],
        )

    def unpadded_row(self, row: int) -> "ModelInputs":
        """One row as a batch of its own, without padding."""
        source, target = SOURCE_LENGTHS[row], TARGET_LENGTHS[row]
        return ModelInputs(self.source[[row], :source], None, self.target[[row], :target], None)


@dataclass(frozen=True)
class ModelOutputs:
    """The encoder's memory (None without an encoder), the decoder's hidden states [B T D] and, if captured, the
    attention weights by name."""

    memory: Memory | None
    hidden: Tensor
    maps: dict[str, Tensor]


def vocabulary_sizes(model: Model) -> tuple[int, int]:
    """The sizes of the source and the target vocabulary, as recorded by `Variant.fresh`."""
    return model.vocabulary_sizes


def random_inputs(model: Model, seed: int = 0) -> ModelInputs:
    generator = torch.Generator().manual_seed(seed)
    source, target = (
        torch.randint(len(SPECIAL), size, shape, generator=generator)
        for size, shape in zip(vocabulary_sizes(model), ((B, S), (B, T)), strict=True)
    )
    return ModelInputs(source, padding_mask(SOURCE_LENGTHS), target, padding_mask(TARGET_LENGTHS))


def small_corpus(model: Model) -> Corpus:
    """Four pairs with random tokens of the model's vocabularies."""
    random = np.random.default_rng(5)
    sides = [
        [random.integers(len(SPECIAL), size, length).tolist() for length in lengths]
        for size, lengths in zip(vocabulary_sizes(model), ((2, 4, 1, 3), (5, 1, 2, 6)), strict=True)
    ]
    return Corpus(*sides, COLLATE_PROMPTED if model.encoder is None else COLLATE_PAIRS)


def encode(model: Model, source: Tensor, keep: Tensor | None) -> Memory | None:
    """The output of the encoder; None if the model has none."""
    return None if model.encoder is None else model.encode(source, keep)


def keep_layers(model: Model) -> None:
    """The states of all layers are part of the memory, as for a part that reads them."""
    if model.encoder is not None:
        model.encoder.keeps_layers = True


def run_model(model: Model, inputs: ModelInputs, capturing: bool = False) -> ModelOutputs:
    """One teacher-forced pass. `capturing` records the attention weights, which turns the fused kernel off."""
    with capture(model) if capturing else nullcontext({}) as maps:
        memory = encode(model, inputs.source, inputs.source_keep)
        state = model.decoder.start(memory, inputs.target.shape[0])
        hidden, _ = model.decoder.step(inputs.target, state, inputs.target_keep)
        return ModelOutputs(memory, hidden, dict(maps))


def samples_attention(part: nn.Module) -> bool:
    """Whether the part contains hard attention, which samples while training."""
    return any(isinstance(module, Hard) for module in part.modules())


@contextmanager
def without_sampling(model: nn.Module) -> Iterator[None]:
    """Hard attention takes the argmax in training mode, too, and its baselines are frozen."""
    normalizers = [part for part in model.modules() if isinstance(part, Hard)]
    for normalizer in normalizers:
        normalizer.sample = lambda p: p.argmax(-1, keepdim=True)
        normalizer._update_baseline = lambda cost, count: None
    try:
        yield
    finally:
        for normalizer in normalizers:
            del normalizer.sample, normalizer._update_baseline


def has_attention(model: Model) -> bool:
    return any(isinstance(module, (MultiHead, Unprojected)) for module in model.modules())


def key_side(name: str) -> str:
    """The side that the keys of an attention module come from, derived from its name."""
    return "source" if name.startswith("encoder.") or name.partition("@")[0].endswith(".cross") else "target"


def query_side(name: str) -> str:
    return "source" if name.startswith("encoder.") else "target"
