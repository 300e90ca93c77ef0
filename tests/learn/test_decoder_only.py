"""A decoder without an encoder learns to copy its prompt, and continues prompts of unequal length in one batch."""

from pathlib import Path
from typing import Any

import pytest

from learn.small import new_seed, recipe
from saccade import api
from saccade.training.progress import Silent

BLOCK = {"self": {"heads": 4}, "feed_forward": {"inner": 128}}
# With relative positions the model learns "what follows this symbol" first, which fails where a symbol is repeated.
DECODERS: dict[str, tuple[float, dict[str, Any]]] = {  # fraction of correct outputs, decoder
    "sinusoidal": (0.95, {"depth": 2, "block": BLOCK}),
    "rotary": (0.6, {"depth": 2, "block": BLOCK, "position": "rotary"}),
    "t5": (0.6, {"depth": 2, "block": BLOCK, "position": "t5"}),
    "gru": (0.3, {"kind": "recurrent", "cell": "gru", "cross": "at_start"}),
}


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("kind", DECODERS)
def test_decoder_without_encoder_copies_unseen_prompts(kind: str, tmp_path: Path) -> None:
    expected, decoder = DECODERS[kind]
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
    sources = [source for source, _ in pairs]
    outputs = run.translate(sources)
    fraction = sum(output == reference for output, (_, reference) in zip(outputs, pairs, strict=True)) / len(pairs)
    assert fraction >= expected, f"seed {seed}: {fraction:.1%} are correct"
    assert len({len(source) for source in sources[:40]}) > 1
    assert [run.translate([source])[0] for source in sources[:40]] == outputs[:40]
