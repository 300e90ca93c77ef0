"""Decoding speed of a model with RMS norms and SwiGLU beside one with layer norms and ReLU of equal cost: whether the
fused decoder is as fast with the one as with the other.

    python benchmarks/fused_parts.py [--rounds 9] [--threads 1]

Both have random weights and the size of transformer-tiny. SwiGLU has three matrices instead of two, so its inner width
is two thirds: 171 instead of 256. Every output is cut at 20 tokens. The two take turns; each ratio is the median over
the rounds.
"""

import argparse
import statistics
import time
from typing import Any

import torch

from saccade.config import python_layer, resolve
from saccade.data.tokenizers import WordKind
from saccade.decode.engine import DecodeConfig, Engine
from saccade.decode.torch_engine import torch_engine
from saccade.inputs import Tokens
from saccade.models.assemble import assemble
from saccade.recipe import recipe_of

VOCABULARY, OUTPUT_TOKENS, SOURCE_TOKENS = 8000, 20, 12
MODELS: dict[str, dict[str, Any]] = {
    "layer norm, ReLU": {"norm": "layer", "feed_forward": {"kind": "plain", "inner": 256, "activation": "relu"}},
    "RMS norm, SwiGLU": {"norm": "rms", "feed_forward": {"kind": "gated", "inner": 171, "activation": "swish"}},
}
SEARCHES: dict[str, Any] = {"greedy": "greedy", "beam 5": {"kind": "beam", "size": 5}}
BATCHES = {1: 20, 64: 128}  # sentences of a batch → sentences of a round


def engine_of(block: dict[str, Any]) -> Engine:
    """The engine of a model with random weights."""
    torch.manual_seed(1)
    words = WordKind().learn(" ".join(f"w{i}" for i in range(VOCABULARY)).split())
    config = recipe_of({"extends": "transformer-tiny", "model": {"block": block}}).model
    return torch_engine(assemble(config, Tokens(words.size), words.size).eval(), words, words)


def seconds(engine: Engine, sentences: list[str], batch: int, search: Any) -> float:
    """The time of decoding the sentences in batches."""
    settings = {"search": search, "ratio": 0.0, "extra": OUTPUT_TOKENS - 1, "batch_tokens": 10**6, "scores": False}
    decode = resolve(DecodeConfig, [python_layer(settings)]).config
    began = time.perf_counter()
    for first in range(0, len(sentences), batch):
        for _ in engine.generate(sentences[first : first + batch], decode):
            pass
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    plain, gated = (engine_of(block) for block in MODELS.values())
    random = torch.Generator().manual_seed(1)
    print(f"{'batch':>5}  {'search':8}  {'tokens/s: ' + '  '.join(MODELS):44}  ratio")
    for batch, count in BATCHES.items():
        ids = torch.randint(VOCABULARY, (count, SOURCE_TOKENS), generator=random).tolist()
        sentences = [" ".join(f"w{i}" for i in row) for row in ids]
        for name, search in SEARCHES.items():
            rounds = [
                (seconds(plain, sentences, batch, search), seconds(gated, sentences, batch, search))
                for _ in range(arguments.rounds + 1)
            ][1:]  # the first round warms up
            speeds = [count * OUTPUT_TOKENS / statistics.median(times) for times in zip(*rounds, strict=True)]
            ratio = statistics.median(first / second for first, second in rounds)
            print(f"{batch:5}  {name:8}  {speeds[0]:21,.0f}  {speeds[1]:21,.0f}  {ratio:5.2f}")


if __name__ == "__main__":
    main()
