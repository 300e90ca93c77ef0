"""The contract of a context: the source information that a recurrent decoder receives at each step."""

from typing import Any

import torch

from contracts.checks.common import (
    CHUNKS,
    SOURCE_LENGTHS,
    assert_close,
    assert_differs,
    padding_mask,
    progress,
    tensors,
)
from contracts.variants import B, D, S, T
from saccade.places import Memory, Places, select


def check_context(context: Any) -> None:
    """The context has `width` columns; it depends on the query exactly if `attends`; steps give the same as one call;
    all hypotheses of a sentence use its one row of memory."""
    generator = torch.Generator().manual_seed(0)
    x, states, summary = (torch.randn(B, *shape, generator=generator) for shape in ((T, D), (S, D), (D,)))
    memory = Memory(states, Places.of(states, padding_mask(SOURCE_LENGTHS)), summary)
    start = context.start(memory, B)
    whole, expected_state = context(x, Places.of(x, None), start)
    assert whole.shape == (B, T, context.width)
    with_other_queries = context(x.flip(0), Places.of(x, None), start)[0]
    if context.attends:
        assert_differs(with_other_queries, whole, "the query")
    else:
        assert torch.equal(with_other_queries, whole), "`attends` is false, but the context depends on the query"
    pieces, state = [], start
    for first, end in CHUNKS:
        chunk = x[:, first:end]
        piece, state = context(chunk, Places.of(chunk, None, progress(first)), state)
        pieces.append(piece)
    assert_close(torch.cat(pieces, 1), whole, "the context step by step")
    for actual, expected in zip(tensors(state), tensors(expected_state), strict=True):
        assert_close(actual.float(), expected.float(), "the state after all steps")
    check_context_of_hypotheses(context, memory)


def check_context_of_hypotheses(context: Any, memory: Memory) -> None:
    rows = torch.tensor([0, 0, 1, 1, 2, 2])
    queries = torch.randn(len(rows), 2, D, generator=torch.Generator().manual_seed(1))
    actual, _ = context(queries, Places.of(queries, None), select(context.start(memory, B), rows))
    for number, sentence in enumerate(rows.tolist()):
        states, query = memory.states[[sentence], : SOURCE_LENGTHS[sentence]], queries[[number]]
        single = Memory(states, Places.of(states, None), memory.summary[[sentence]])
        expected, _ = context(query, Places.of(query, None), context.start(single, 1))
        assert_close(actual[number], expected[0], f"hypothesis {number}")
