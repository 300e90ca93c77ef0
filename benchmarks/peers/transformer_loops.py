"""Two training loops without Saccade, to compare with: transformers' Marian, and torch's nn.Transformer.

Both models have the sizes of a Saccade config and differ from it only in details that do not affect speed. Both are
trained as their documentation shows: forward, cross-entropy over all logits, backward, clip, AdamW.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.data.batches import Batch
from saccade.data.tokenizers import END, PAD, START
from saccade.parts.positions import sinusoid


@dataclass(frozen=True)
class Sizes:
    """The sizes of both models."""

    vocabulary: int
    dim: int
    depth: int
    heads: int
    inner: int
    dropout: float


class Marian(nn.Module):
    """transformers' MarianMTModel with its default attention."""

    def __init__(self, sizes: Sizes):
        from transformers import MarianConfig, MarianMTModel

        super().__init__()
        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=sizes.vocabulary,
                d_model=sizes.dim,
                encoder_layers=sizes.depth,
                decoder_layers=sizes.depth,
                encoder_attention_heads=sizes.heads,
                decoder_attention_heads=sizes.heads,
                encoder_ffn_dim=sizes.inner,
                decoder_ffn_dim=sizes.inner,
                activation_function="relu",
                dropout=sizes.dropout,
                attention_dropout=0.0,
                activation_dropout=0.0,
                scale_embedding=True,
                use_cache=False,
                pad_token_id=PAD,
                eos_token_id=END,
                forced_eos_token_id=END,
                decoder_start_token_id=START,
            )
        )

    def forward(self, source: Tensor, keep: Tensor, inputs: Tensor) -> Tensor:
        return self.model(input_ids=source, attention_mask=keep, decoder_input_ids=inputs).logits


class TorchTransformer(nn.Module):
    """nn.Transformer with one embedding table for both sides and the output layer, as in the PyTorch tutorials."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.table = nn.Embedding(sizes.vocabulary, sizes.dim)
        nn.init.normal_(self.table.weight, std=sizes.dim**-0.5)
        self.register_buffer("positions", sinusoid(torch.arange(512), sizes.dim), persistent=False)
        self.dropout = nn.Dropout(sizes.dropout)
        self.transformer = nn.Transformer(
            sizes.dim, sizes.heads, sizes.depth, sizes.depth, sizes.inner, sizes.dropout, batch_first=True
        )

    def forward(self, source: Tensor, keep: Tensor, inputs: Tensor) -> Tensor:
        hidden = self.transformer(
            self.embed(source),
            self.embed(inputs),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(inputs.shape[1], dtype=torch.bool),
            src_key_padding_mask=~keep,
            memory_key_padding_mask=~keep,
            tgt_is_causal=True,
        )
        return hidden @ self.table.weight.T

    def embed(self, ids: Tensor) -> Tensor:
        assert isinstance(self.positions, Tensor)
        return self.dropout(self.table(ids) * math.sqrt(self.table.embedding_dim) + self.positions[: ids.shape[1]])


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, smoothing: float, clip: float) -> None:
    """One optimizer update."""
    assert batch.source is not None
    assert batch.inputs is not None
    source, outputs = batch.source.values, batch.outputs
    keep = torch.ones_like(source, dtype=torch.bool) if batch.source.keep is None else batch.source.keep
    labels = outputs.values if outputs.keep is None else outputs.values.masked_fill(~outputs.keep, -100)
    optimizer.zero_grad()
    logits = model(source, keep, batch.inputs.values)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    loss.item()
