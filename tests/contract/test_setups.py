"""Groups and streams that ranks make differently are one sentence on every rank, in both worlds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from tests.contract.worlds import results

Make = Callable[[Rank], Group]


def group(*ranks: Any) -> Make:
    return lambda rank: rank.new_group(list(ranks))


def make(ranks: Any) -> Make:
    return lambda rank: rank.new_group(ranks)


def stream(name: Any) -> Make:
    return lambda rank: rank.stream(name).world


def group_aside(rank: Rank) -> Group:
    return rank.stream("side").new_group([0, 1])


def stream_then_group(rank: Rank) -> Group:
    rank.stream("side")
    return rank.new_group([0, 1])


# What rank 1 makes and what the others do; what rank 1 raises, and the sentence on all.
DIFFERENT: dict[str, tuple[Make, Make, str, str]] = {
    "members": (
        group(0, 2),
        group(0, 1),
        "CollectiveError",
        "rank 0 calls new_group [0, 1], but rank 1 calls new_group [0, 2]",
    ),
    "order": (
        group(1, 0),
        group(0, 1),
        "CollectiveError",
        "rank 0 calls new_group [0, 1], but rank 1 calls new_group [1, 0]",
    ),
    "group or stream": (
        stream("side"),
        group(0, 1),
        "CollectiveError",
        "rank 0 calls new_group [0, 1], but rank 1 calls stream 'side'",
    ),
    "streams": (
        stream("a"),
        stream("b"),
        "CollectiveError",
        "rank 0 calls stream 'b', but rank 1 calls stream 'a'",
    ),
    "stream of the group": (
        group_aside,
        stream_then_group,
        "CollectiveError",
        "rank 0 calls new_group [0, 1], but rank 1 calls new_group [0, 1] on stream side",
    ),
    "no such rank": (
        group(0, 7),
        group(0, 1),
        "CollectiveError",
        "rank 1: new_group: ranks [0, 7] must be distinct ranks of a world of 3",
    ),
    "nobody": (
        group(),
        group(0, 1),
        "CollectiveError",
        "rank 1: new_group: ranks [] must be distinct ranks of a world of 3",
    ),
    "bool": (
        group(0, True),
        group(0, 1),
        "TypeError",
        "rank 1: new_group: ranks must be a list of ints, got bool at index 1",
    ),
    "float": (
        group(0, 1.5),
        group(0, 1),
        "TypeError",
        "rank 1: new_group: ranks must be a list of ints, got float at index 1",
    ),
    "tensor": (
        make(torch.tensor([0, 1])),
        group(0, 1),
        "TypeError",
        "rank 1: new_group: ranks must be a list of ints, got Tensor",
    ),
    "taken": (
        stream("main"),
        stream("side"),
        "ProgramError",
        "rank 1: stream: 'main' must be a new name; there are main",
    ),
    "no name": (stream(None), stream("side"), "TypeError", "rank 1: stream: name must be a str, got NoneType"),
}


async def hear(rank: Rank, name: str) -> tuple[str, str]:
    """What this rank hears: where it makes the group or stream, or where it first uses it."""
    try:
        at_rank_1, elsewhere, _, _ = DIFFERENT[name]
        made = (at_rank_1 if rank.rank == 1 else elsewhere)(rank)
    except (TypeError, ProgramError) as error:
        await rank.barrier()
        await rank.barrier()
        return type(error).__name__, str(error)
    await rank.barrier()
    said = ("", "")
    try:
        await rank.barrier(made)
    except ProgramError as error:
        said = type(error).__name__, str(error)
    await rank.barrier()
    return said


@pytest.mark.parametrize("name", DIFFERENT)
def test_ranks_that_set_up_differently_hear_the_same_sentence_and_go_on(world: str, name: str) -> None:
    _, _, kind, sentence = DIFFERENT[name]
    all_hear = ("CollectiveError", sentence)
    assert results(world, 1, 3, hear, name) == [all_hear, (kind, sentence), all_hear]


async def uncaught(rank: Rank, name: str) -> None:
    at_rank_1, elsewhere, _, _ = DIFFERENT[name]
    await rank.barrier((at_rank_1 if rank.rank == 1 else elsewhere)(rank))


@pytest.mark.parametrize("name", ["members", "bool", "taken"])
def test_a_run_that_ends_by_it_says_the_sentence(world: str, name: str) -> None:
    with pytest.raises(ProgramError) as caught:
        results(world, 1, 3, uncaught, name)
    assert re.sub(r" \(at \S+\.py:\d+\)(\n.*)*$", "", str(caught.value)) in (
        DIFFERENT[name][3],
        f"rank 1 raised TypeError: {DIFFERENT[name][3]}",
    )
