"""A translation model as in the PyTorch tutorials: a bidirectional GRU encoder, and a GRU decoder with additive
attention (Bahdanau et al. 2015) that generates one token at a time. A speed baseline in plain torch, without tuning.

Shapes: B sentences, S source and T target tokens, D width, V vocabulary. Batch first, padding on the right.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD, START, END = 0, 2, 3

Batch = tuple[Tensor, Tensor, Tensor, Tensor]  # source_ids [B S], source_lengths [B], target_in and target_out [B T]


class Encoder(nn.Module):
    """A bidirectional GRU; each direction has half of the width."""

    def __init__(self, vocabulary: int, dim: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim, padding_idx=PAD)
        self.dropout = nn.Dropout(dropout)
        self.gru = nn.GRU(dim, dim // 2, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(dim, dim)

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> tuple[Tensor, Tensor]:
        embedded = self.dropout(self.embedding(source_ids))
        packed = pack_padded_sequence(embedded, source_lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, last = self.gru(packed)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True)
        hidden = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=1)))
        return outputs, hidden.unsqueeze(0)  # [B S D], [1 B D]


class Attention(nn.Module):
    """Additive attention: softmax(v · tanh(W hidden + U outputs))."""

    def __init__(self, dim: int):
        super().__init__()
        self.query = nn.Linear(dim, dim)
        self.keys = nn.Linear(dim, dim)
        self.score = nn.Linear(dim, 1)

    def forward(self, hidden: Tensor, outputs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        energy = torch.tanh(self.query(hidden).unsqueeze(1) + self.keys(outputs))
        scores = self.score(energy).squeeze(2).masked_fill(~mask, float("-inf"))
        weights = torch.softmax(scores, dim=1)
        return torch.bmm(weights.unsqueeze(1), outputs), weights  # [B 1 D], [B S]


class Decoder(nn.Module):
    """One decoder step: attention, GRU, output layer. `narrow` projects the input of the output layer to D first, as
    Bahdanau et al. do; tutorials do not."""

    def __init__(self, vocabulary: int, dim: int, dropout: float, narrow: bool):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim, padding_idx=PAD)
        self.dropout = nn.Dropout(dropout)
        self.attention = Attention(dim)
        self.gru = nn.GRU(2 * dim, dim, batch_first=True)
        projected = nn.Sequential(nn.Linear(3 * dim, dim), nn.Tanh(), nn.Linear(dim, vocabulary))
        self.output = projected if narrow else nn.Linear(3 * dim, vocabulary)

    def forward(self, token: Tensor, hidden: Tensor, outputs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        embedded = self.dropout(self.embedding(token)).unsqueeze(1)  # [B 1 D]
        context, _ = self.attention(hidden[-1], outputs, mask)
        output, hidden = self.gru(torch.cat([embedded, context], dim=2), hidden)
        logits = self.output(torch.cat([output, context, embedded], dim=2).squeeze(1))
        return logits, hidden  # [B V], [1 B D]


class Translator(nn.Module):
    """The encoder, and the decoder called step by step on the target tokens (teacher forcing)."""

    def __init__(self, vocabulary: int, dim: int, dropout: float = 0.1, narrow: bool = False):
        super().__init__()
        self.encoder = Encoder(vocabulary, dim, dropout)
        self.decoder = Decoder(vocabulary, dim, dropout, narrow)

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_in: Tensor) -> Tensor:
        outputs, hidden = self.encoder(source_ids, source_lengths)
        mask = source_ids != PAD
        steps = []
        for t in range(target_in.shape[1]):
            logits, hidden = self.decoder(target_in[:, t], hidden, outputs, mask)
            steps.append(logits)
        return torch.stack(steps)  # [T B V]


def train_step(model: Translator, optimizer: torch.optim.Optimizer, loss_function: nn.Module, batch: Batch) -> float:
    """One update; the loss is the mean over the real target tokens of the batch."""
    source_ids, source_lengths, target_in, target_out = batch
    model.train()
    optimizer.zero_grad()
    logits = model(source_ids, source_lengths, target_in)
    loss = loss_function(logits.flatten(0, 1), target_out.T.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


@torch.no_grad()
def greedy(
    model: Translator, source_ids: Tensor, source_lengths: Tensor, longest: int, stop: bool = True
) -> list[list[int]]:
    """Greedy search for a batch; returns ids without the end symbol. With `stop` it ends when every sentence has ended,
    otherwise it always runs `longest` steps."""
    model.eval()
    outputs, hidden = model.encoder(source_ids, source_lengths)
    mask = source_ids != PAD
    token = torch.full((source_ids.shape[0],), START, device=source_ids.device)
    ended = torch.zeros_like(token, dtype=torch.bool)
    steps = []
    for _ in range(longest):
        logits, hidden = model.decoder(token, hidden, outputs, mask)
        token = logits.argmax(dim=1)
        steps.append(token)
        ended |= token == END
        if stop and ended.all():
            break
    rows = torch.stack(steps, dim=1).tolist()
    return [row[: row.index(END)] if END in row else row for row in rows]
