"""Parts that exist only in tests, because the parts that need the same contracts are not built yet."""

import torch
from torch import Tensor, nn

from saccade.config import Count
from saccade.notes import RecordingModule
from saccade.places import Places

BALANCE = 0.3


class ToyRouter(RecordingModule):
    """A feed-forward of two experts, whose matrices are stacked: y = Σₑ pₑ · relu(x Uₑ) Dₑ with p = softmax(route(x)).

    It notes the loss BALANCE · Σₑ pₑ² of each position, as a router notes a loss that balances its experts.
    """

    def __init__(self, dim: int, *, inner: Count = 7):
        super().__init__()
        self.route = nn.Linear(dim, 2)
        self.up = nn.Parameter(torch.randn(2, dim, inner) / dim**0.5)
        self.down = nn.Parameter(torch.randn(2, inner, dim) / inner**0.5)

    def forward(self, x: Tensor, places: Places) -> Tensor:
        p = self.route(x).softmax(-1)
        if self.has_listener("loss"):
            self.note("loss", BALANCE * p.square().sum(-1)[:, None, :, None], places)
        hidden = torch.relu(torch.einsum("btd,edi->btei", x, self.up))
        return torch.einsum("bte,btei,eid->btd", p, hidden, self.down)
