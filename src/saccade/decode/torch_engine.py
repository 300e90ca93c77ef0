"""The torch engine: makes a model decodable by the search engine, with its encoder and decoder fused where possible."""

from collections.abc import Iterator
from contextlib import contextmanager
from operator import is_
from typing import Any

import torch
from torch import Tensor

from saccade.data.batches import Padded
from saccade.data.tokenizers import Tokenizer
from saccade.decode.fused import FusedDecoder, FusedEncoder, can_fuse_decoder, can_fuse_encoder
from saccade.decode.loops import SingleHypothesis, SingleRow, StepModel
from saccade.decode.search_engine import DecodableModel, SearchEngine
from saccade.decode.single import SingleDecoder, can_decode_single
from saccade.devices import device_of
from saccade.models.assemble import Model
from saccade.notes import RecordingModule
from saccade.places import DecoderState, Memory
from saccade.shapes import Float, Int


def torch_engine(model: Model, source: Tokenizer, target: Tokenizer) -> SearchEngine:
    """The engine of any model that Saccade can build."""
    return SearchEngine(TorchSessions(model).session, source, target)


class TorchSessions:
    """Opens a torch model for decoding: in evaluation mode, and fused as far as possible. The fused model is kept from
    call to call."""

    def __init__(self, model: Model):
        self.model = model
        self._fused: FusedModel | None = None

    @contextmanager
    def session(self) -> Iterator[DecodableModel]:
        """The fused model, in evaluation mode (no dropout). Afterwards a model that was in training mode is in training
        mode again."""
        was_training = self.model.training
        if was_training:
            self.model.eval()
        try:
            if was_training or self._fused is None or not self._fused.is_current():
                self._fused = FusedModel(self.model)
            yield self._fused
        finally:
            if was_training:
                self.model.train()


class FusedModel:
    """A model with its encoder and decoder fused where they can be (see `fused` and `single`). Some weights are copied,
    so it is valid only while the parts, weights, hooks and listeners of the model stay the same. `is_current` checks
    this. It finds in-place changes of a weight by torch's version counters, which miss changes through `.data` and by
    fused optimizers other than Saccade's (see `optim.optimizers`)."""

    @torch.inference_mode()
    def __init__(self, model: Model):
        assert model.decoder is not None
        self.device = device_of(model)
        self._longest, self._has_encoder = model.decoder.longest, model.encoder is not None
        self._parts = [part for part in model.modules() if isinstance(part, RecordingModule)]
        modules = [*model.modules()]
        self._hooks = [hooks for m in modules for hooks in (m._forward_hooks, m._forward_pre_hooks)]
        self._entries = [(table, name) for m in modules for table in (m._modules, m._parameters) for name in table]
        self._weights = [weight for m in modules for weight in m._parameters.values() if weight is not None]
        # inference tensors have no version counter
        self._with_version = [weight for weight in self._weights if not weight.is_inference()]
        self._objects_at_start, self._versions_at_start = self._objects(), self._versions()
        self._encode = FusedEncoder(model) if can_fuse_encoder(model) else model.encode
        decoder = _step_model(model)
        self.start, self.step, self.single = decoder.start, decoder.step, decoder.single

    def encode(self, source: Padded) -> "Memory | Padded":
        """The output of the encoder; without one, the source itself, which is the prompt of the decoder."""
        return self._encode(source.values, source.keep) if self._has_encoder else source

    def longest_output(self, source_tokens: int) -> int | None:
        if self._longest is None or self._has_encoder:
            return self._longest
        return self._longest - source_tokens

    def is_current(self) -> bool:
        """Whether the model still has the parts, weights and listeners from which this was made."""
        same_objects = all(map(is_, self._objects(), self._objects_at_start))
        return same_objects and self._versions() == self._versions_at_start

    def _objects(self) -> list[Any]:
        """All parts, weights and listeners of the model."""
        return [*[table.get(name) for table, name in self._entries], *[part._listeners for part in self._parts]]

    def _versions(self) -> list[int]:
        """Version counters and addresses, which change when the values of a weight change, and the numbers of hooks."""
        versions = [weight._version for weight in self._with_version]
        return [*versions, *[weight.data_ptr() for weight in self._weights], *map(len, self._hooks)]


def _step_model(model: Model) -> StepModel:
    """The fastest decoder that can compute this model."""
    if model.encoder is None:
        return PromptedDecoder(model)
    if not can_fuse_decoder(model):
        return UnfusedDecoder(model)
    fused = FusedDecoder(model)
    return SingleDecoder(fused) if can_decode_single(fused) else fused


class UnfusedDecoder:
    """The decoder and head of any model, computed by its modules."""

    def __init__(self, model: Model):
        assert model.decoder is not None
        self._decoder, self._head = model.decoder, model.head

    def start(self, memory: Memory, rows: int) -> DecoderState:
        return self._decoder.start(memory, rows)

    def step(self, tokens: Int[Tensor, "B"], state: DecoderState) -> tuple[Float[Tensor, "B V"], DecoderState]:
        hidden, state = self._decoder.step(tokens[:, None], state)
        return self._head.log_probs(hidden[:, -1]), state

    def single(self, memory: Memory) -> SingleHypothesis:
        return SingleRow(self, memory)


class PromptedDecoder:
    """The decoder and head of a model without an encoder. The memory is the prompts, which may have unequal lengths."""

    def __init__(self, model: Model):
        assert model.decoder is not None
        self._decoder, self._unfused = model.decoder, UnfusedDecoder(model)
        self.step = self._unfused.step

    def start(self, memory: Padded, rows: int) -> DecoderState:
        _, state = self._decoder.step(memory.values, self._decoder.start(None, rows), memory.keep)
        return state

    def single(self, memory: Padded) -> SingleHypothesis:
        return SingleRow(self, memory)
