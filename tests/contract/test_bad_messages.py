"""A send and a recv that do not fit are one sentence on both ranks; other messages between them go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from scenarios.seam.errors import ProgramError
from scenarios.seam.rank import Rank
from tests.contract.worlds import results

Side = Callable[[Rank], Awaitable[Any]]


def sends(tensor: Tensor) -> Side:
    return lambda rank: rank.send(tensor, 1)


def receives(tensor: Tensor) -> Side:
    return lambda rank: rank.recv(tensor, 0)


# What rank 0 and what rank 1 call, and the sentence; what each raises is a CollectiveError if not said otherwise.
WRONG: dict[str, tuple[Side, Side, str]] = {
    "more": (
        sends(torch.ones(3)),
        receives(torch.ones(2)),
        "rank 0 sends 12 bytes of float32 to rank 1, which expects 8 of float32",
    ),
    "less": (
        sends(torch.ones(2)),
        receives(torch.ones(3)),
        "rank 0 sends 8 bytes of float32 to rank 1, which expects 12 of float32",
    ),
    "nothing": (
        sends(torch.ones(0)),
        receives(torch.ones(1)),
        "rank 0 sends 0 bytes of float32 to rank 1, which expects 4 of float32",
    ),
    "not nothing": (
        sends(torch.ones(1)),
        receives(torch.ones(0)),
        "rank 0 sends 4 bytes of float32 to rank 1, which expects 0 of float32",
    ),
    "type of the same width": (
        sends(torch.ones(2)),
        receives(torch.ones(2, dtype=torch.int32)),
        "rank 0 sends 8 bytes of float32 to rank 1, which expects 8 of int32",
    ),
    "strided send": (
        sends(torch.ones(4)[::2]),
        receives(torch.ones(2)),
        "rank 0: send: tensor of shape (2,) must be contiguous",
    ),
    "no tensor": (sends(torch.ones(1)), receives(3), "rank 1: recv: tensor must be a tensor, got int"),  # type: ignore[arg-type]
}


async def says(work: Callable[[], Awaitable[Any]]) -> tuple[str, str]:
    try:
        await work()
    except (TypeError, ValueError, ProgramError) as error:
        return type(error).__name__, str(error)
    return "", ""


async def wrong_between_right(rank: Rank, name: str) -> tuple[list[tuple[str, str]], list[float]]:
    """A right message before and after the wrong one, one the other way, and a collective."""
    got = [torch.zeros(2), torch.zeros(2), torch.zeros(1)]
    side: Any = WRONG[name][rank.rank]
    if rank.rank == 0:
        await rank.send(torch.full((2,), 3.0), 1)
        said = [await says(lambda: side(rank))]
        await rank.send(torch.full((2,), 4.0), 1)
        await rank.recv(got[2], 1)
    else:
        await rank.recv(got[0], 0)
        said = [await says(lambda: side(rank))]
        await rank.recv(got[1], 0)
        await rank.send(torch.full((1,), 5.0), 0)
    total = await rank.all_reduce(torch.ones(1))
    return said, [float(tensor.sum()) for tensor in got] + [total.item()]


@pytest.mark.parametrize("name", WRONG)
def test_a_message_that_does_not_fit_is_the_same_sentence_on_both_and_others_go_on(world: str, name: str) -> None:
    kind, sentence = "TypeError" if name == "no tensor" else "CollectiveError", WRONG[name][2]
    assert results(world, 1, 2, wrong_between_right, name) == [
        ([("CollectiveError", sentence)], [0.0, 0.0, 5.0, 2.0]),
        ([(kind, sentence)], [6.0, 8.0, 0.0, 2.0]),
    ]


PEERS: dict[str, tuple[object, str, str]] = {
    "itself": (0, "CollectiveError", "rank 0: send: a rank cannot send to itself"),
    "nobody": (9, "CollectiveError", "rank 0: send: rank 9 is not in group world of [0, 1]"),
    "tensor": (torch.tensor([1, 1]), "TypeError", "rank 0: send: dst must be an int, got Tensor"),
    "bool": (True, "TypeError", "rank 0: send: dst must be an int, got bool"),
}


async def to_nobody(rank: Rank, name: str) -> tuple[str, str]:
    if rank.rank == 1:
        return await says(lambda: rank.recv(torch.ones(1), False))
    return await says(lambda: rank.send(torch.ones(1), PEERS[name][0]))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PEERS)
def test_a_message_to_no_other_rank_is_said_where_it_is_wrong(world: str, name: str) -> None:
    assert results(world, 1, 2, to_nobody, name) == [
        PEERS[name][1:],
        ("TypeError", "rank 1: recv: src must be an int, got bool"),
    ]


async def in_flight(rank: Rank) -> tuple[list[tuple[str, str]], list[float]]:
    """Right, wrong and right, all issued before the first is awaited, while the same goes the other way."""
    peer, got = 1 - rank.rank, [torch.zeros(2) for _ in range(3)]
    works = [rank.send(torch.full((2 + at % 2,), 1.0 + at), peer) for at in range(3)]
    works += [rank.recv(tensor, peer) for tensor in got]  # type: ignore[misc]
    said = [await says(lambda work=work: work) for work in works]  # type: ignore[misc]
    return said, [got[0].sum().item(), got[2].sum().item()]


def test_a_wrong_message_among_others_under_way_fails_alone(world: str) -> None:
    fits = ("", "")
    wrong = [
        ("CollectiveError", f"rank {rank} sends 12 bytes of float32 to rank {1 - rank}, which expects 8 of float32")
        for rank in range(2)
    ]
    assert results(world, 1, 2, in_flight) == [
        ([fits, wrong[rank], fits, fits, wrong[1 - rank], fits], [2.0, 6.0]) for rank in range(2)
    ]
