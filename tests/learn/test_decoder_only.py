"""A decoder without an encoder learns to copy its prompt, and continues prompts of unequal length in one batch."""

import math
from collections.abc import Sequence
from operator import eq
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from learn.small import new_seed, recipe
from saccade import api
from saccade.data.batches import Corpus
from saccade.decode.constraints import FORBIDDEN_IDS
from saccade.tasks.losses import teacher_forced_hidden
from saccade.training.progress import Silent

BLOCK = {"self": {"heads": 4}, "feed_forward": {"inner": 128}}
# With relative positions the model learns "what follows this symbol" first, which fails where a symbol is repeated.
DECODERS: dict[str, tuple[float, float, dict[str, Any]]] = {  # fraction of correct outputs, loss per token, decoder
    "sinusoidal": (0.95, 0.2, {"depth": 2, "block": BLOCK}),
    "rotary": (0.6, 0.3, {"depth": 2, "block": BLOCK, "position": "rotary"}),
    "t5": (0.6, 0.3, {"depth": 2, "block": BLOCK, "position": "t5"}),
    "gru": (0.3, 0.6, {"kind": "recurrent", "cell": "gru", "cross": "at_start"}),
}


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("kind", DECODERS)
def test_decoder_without_encoder_copies_unseen_prompts(kind: str, tmp_path: Path) -> None:
    expected, bound, decoder = DECODERS[kind]
    seed = new_seed()
    model = {"dim": 64, "encoder": "none", "decoder": decoder}
    copying = recipe("copy", seed, model, longest=6, updates=400, rate=0.006)
    run = api.train(
        copying,
        tmp_path,
        set={"data": {"longest": 40}, "train": {"optimizer": "adamw" if kind == "gru" else "muon"}},
        report=Silent(),
    )
    pairs = run.test_pairs()
    sources, references = zip(*pairs, strict=True)
    loss = teacher_forced_loss(run, sources, references)
    assert loss <= bound, f"seed {seed}: the loss is {loss:.3f}"
    outputs = run.translate(sources)
    fraction = sum(map(eq, outputs, references)) / len(references)
    assert fraction >= expected, f"seed {seed}: {fraction:.1%} are correct"
    assert len({len(source) for source in sources[:40]}) > 1
    assert [run.translate([source])[0] for source in sources[:40]] == outputs[:40]
    assert_greedy_without_cache(run, sources)


@torch.no_grad()
def teacher_forced(run: api.Run, sources: Sequence[str], targets: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """The hidden state before each target token, and that token: whole sequences, without a key/value cache."""
    prompts = [list(ids) for ids in run.codecs.source.encode(sources)]
    batch = Corpus(prompts, [list(ids) for ids in targets], run.task.collate).batch(range(len(prompts)))
    return teacher_forced_hidden(run.model, batch)


def teacher_forced_loss(run: api.Run, sources: Sequence[str], references: Sequence[str]) -> float:
    hidden, target = teacher_forced(run, sources, run.codecs.target.encode(references))
    return float(run.model.head.loss(hidden, target)[1].mean())


@torch.no_grad()
def assert_greedy_without_cache(run: api.Run, sources: Sequence[str]) -> None:
    """Each token of an output is the most likely one after those before it, if the whole sequence is computed anew: so
    greedy search without a cache has the same outputs."""
    outputs = [best[0].ids[:-1] for best in run.outputs(sources)]
    hidden, chosen = teacher_forced(run, sources, outputs)
    log_probs = run.model.head.log_probs(hidden)
    log_probs[:, FORBIDDEN_IDS] = -math.inf  # no search generates them
    of_chosen = log_probs.gather(1, chosen[:, None])[:, 0]
    assert float((log_probs.amax(1) - of_chosen).max()) < 1e-3
