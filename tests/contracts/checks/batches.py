"""The contracts of batches: the sampler's order, the token budget, the contents."""

import itertools

import numpy as np
import torch

from saccade.data import batches
from saccade.data.batches import Batch, Collate, Corpus, Draws, SamplerState, Shard
from saccade.data.tokenizers import END, PAD, START

Update = tuple[list[Batch], SamplerState]


def random_corpus(rows: int, longest: int = 40, seed: int = 0) -> Corpus:
    """Targets have about the length of their sources, as in translation."""
    random = np.random.default_rng(seed)
    sources = random.integers(1, longest + 1, rows)
    targets = np.maximum(1, sources + random.integers(-2, 3, rows))
    return Corpus(*([random.integers(4, 90, n).tolist() for n in lengths] for lengths in (sources, targets)))


FIRST_UPDATE = SamplerState()


def first_updates(
    corpus: Corpus, tokens: int, count: int, start: SamplerState = FIRST_UPDATE, gather: int = 0, seed: int = 1
) -> list[Update]:
    return list(itertools.islice(batches.updates(corpus, tokens, gather, seed, start), count))


def check_sampler_resumes(corpus: Corpus, tokens: int, gather: int = 0) -> None:
    """From any sampler state the remaining batches are the same, to the last id."""
    original = first_updates(corpus, tokens, 12, gather=gather)
    assert original[-1][1].epoch > 0, "no epoch ended, so the check proves nothing"
    for done, (_, state) in enumerate(original[:-1], 1):
        resumed = first_updates(corpus, tokens, len(original) - done, state, gather)
        for (expected, expected_state), (actual, actual_state) in zip(original[done:], resumed, strict=True):
            assert (expected_state, [batch.rows for batch in expected]) == (
                actual_state,
                [batch.rows for batch in actual],
            ), f"resumed at {state}"
            for expected_batch, actual_batch in zip(expected, actual, strict=True):
                assert torch.equal(expected_batch.source.values, actual_batch.source.values)
                assert torch.equal(expected_batch.outputs.values, actual_batch.outputs.values)


def epoch_rows(corpus: Corpus, tokens: int, epoch: int = 0, seed: int = 1) -> list[tuple[int, ...]]:
    """The rows of each batch of an epoch."""
    rows = []
    for group, state in batches.updates(corpus, tokens, 0, seed, SamplerState(epoch)):
        rows += [batch.rows for batch in group]
        if state.epoch > epoch:
            return rows
    raise AssertionError("the epoch does not end")


def check_each_row_once_per_epoch(corpus: Corpus, tokens: int) -> None:
    """An epoch contains each row once, in an order that depends on the epoch and the seed."""
    orders = [epoch_rows(corpus, tokens, epoch, seed) for epoch, seed in ((0, 1), (1, 1), (0, 2))]
    for order in orders:
        assert sorted(itertools.chain(*order)) == list(range(len(corpus))), "not every row occurs once"
    if len(orders[0]) > 5:
        assert orders[0] != orders[1], "two epochs have the same order"
        assert orders[0] != orders[2], "two seeds give the same order"


def check_token_budget(corpus: Corpus, tokens: int, gather: int = 0) -> None:
    """A batch has at most `tokens` padded tokens, unless a single row has more; an update has at least `gather` target
    tokens, except the last update of an epoch, and not one batch more than that takes."""
    for group, state in first_updates(corpus, tokens, 20, gather=gather):
        for batch in group:
            for side in (batch.source, batch.inputs, batch.outputs):
                assert side.values.numel() <= tokens or len(batch.rows) == 1, "a batch is over the token budget"
        counts = [batch.target_tokens for batch in group]
        assert sum(counts) >= gather or state.batch == 0, "an update has too few tokens"
        assert sum(counts[:-1]) < max(1, gather), "an update has more batches than it needs"


def check_batch_content(corpus: Corpus, tokens: int) -> None:
    """Sources end with END, decoder inputs begin with START, outputs end with END, and padding is on the right."""
    for group, _ in first_updates(corpus, tokens, 5):
        for batch in group:
            for index, row in enumerate(batch.rows):
                source, target = corpus.source(row).tolist(), corpus.target(row).tolist()
                for side, expected in (
                    (batch.source, [*source, END]),
                    (batch.inputs, [START, *target]),
                    (batch.outputs, [*target, END]),
                ):
                    keep = torch.ones_like(side.values, dtype=torch.bool) if side.keep is None else side.keep
                    assert side.values[index][keep[index]].tolist() == expected
                    assert keep[index, : len(expected)].all(), "padding is not on the right"
                    assert (side.values[index, len(expected) :] == PAD).all()


def check_draws(collate: Collate) -> None:
    """What a collate function draws for a row depends on the seed, the epoch and the row, but not on the other rows of
    the batch, on their order, or on the number of ranks; two epochs, seeds and rows have different draws."""
    row = [4 + i for i in range(40)]
    corpus = Corpus([row] * 9, [row] * 9, collate)  # equal rows, so only the draws can differ

    def drawn(rows: list[int], draws: Draws, shard: Shard = WHOLE) -> dict[int, list[int]]:
        batch = shard.batch(corpus, np.array(rows), draws)
        read = batch.source or batch.inputs
        assert read
        return dict(zip(batch.rows, read.values.tolist(), strict=True))

    draws, everything = Draws(seed=1, epoch=2), list(range(9))
    expected = drawn(everything, draws)
    assert drawn(everything, draws) == expected, "the same batch is made with different draws"
    for rows in ([3], [8, 0, 5], everything[::-1]):
        assert drawn(rows, draws) == {row: expected[row] for row in rows}, "draws depend on the other rows of a batch"
    shards = (drawn(everything, draws, Shard(rank, 2)) for rank in range(2))
    assert dict(itertools.chain(*(shard.items() for shard in shards))) == expected, "draws depend on the ranks"
    if len({*map(tuple, expected.values())}) == 1:  # nothing is drawn
        assert drawn(everything, Draws(seed=7, epoch=7)) == expected, "all rows have the same draws"
        return
    assert len({*map(tuple, expected.values())}) == 9, "rows have the same draws"
    for other in (Draws(seed=1, epoch=3), Draws(seed=2, epoch=2)):
        assert drawn(everything, other) != expected, "two epochs or seeds have the same draws"


def check_draws_of_purposes() -> None:
    """The draws of a row for one purpose are the same each time, and differ from those for another purpose."""
    keys = [*itertools.product((1, 2), (0, 1), (0, 1, 7), ("crop", "flip", "mask sources"))]

    def drawn() -> list[float]:
        return [Draws(seed, epoch).generator(row, purpose).random() for seed, epoch, row, purpose in keys]

    assert drawn() == drawn(), "the draws are not reproducible"
    assert len({*drawn()}) == len(keys), "two purposes have the same draws"


WHOLE = Shard()


def check_little_padding(corpus: Corpus, tokens: int) -> None:
    """Less than 10 % of the tokens are padding."""
    all_batches = [batch for group, _ in first_updates(corpus, tokens, 30) for batch in group]
    real = sum(batch.source_tokens + batch.target_tokens for batch in all_batches)
    share = 1 - real / sum(batch.padded_tokens for batch in all_batches)
    assert share < 0.1, f"{share:.0%} of all tokens are padding"
