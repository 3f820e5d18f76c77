"""Calls with a root and calls of lists: values, spans, and one sentence when a program is wrong, in every world."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.errors import ProgramError
from scenarios.seam.rank import Rank
from tests.contract.conftest import Play
from tests.contract.scripts import Script, note, noted_elements
from tests.contract.test_rank import ADDED, MOVED, OPS, flat, names_for, reduce, spans_of, tensor_of
from tests.contract.test_reductions import DTYPES, describe, draw
from tests.contract.worlds import WORLDS, results

Sizes = tuple[str, int, int, int]
ROOT = 2


def empty(*shape: int, like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=like.dtype)


async def roots(rank: Rank, dtype: str) -> None:
    own, is_root = tensor_of(rank.rank, (3, 2), dtype), rank.rank == ROOT
    listed = [empty(3, 2, like=own) for _ in range(4)] if is_root else None
    assert await rank.gather(own, listed, ROOT) is listed
    note(rank, "gathered", torch.cat(listed or [own]))
    given = [tensor_of(place, (2,), dtype, 1) for place in range(4)] if is_root else None
    mine = empty(2, like=own)
    assert await rank.scatter(mine, given, ROOT) is mine
    note(rank, "scattered", mine)


@pytest.mark.parametrize("dtype", MOVED)
def test_gather_and_scatter_move_every_dtype_to_and_from_the_root(play: Play, dtype: str) -> None:
    recording = play(Script(roots, (dtype,)), 2, 2)
    everyone = flat([tensor_of(rank, (3, 2), dtype) for rank in range(4)])
    assert noted_elements(recording, ROOT, "gathered") == everyone
    size = tensor_of(0, (1,), dtype).element_size()
    for rank in range(4):
        assert noted_elements(recording, rank, "scattered") == flat([tensor_of(rank, (2,), dtype, 1)])
        sizes: list[Sizes] = [
            (span.kind, span.bytes_in, span.bytes_out, span.bytes_sent) for span in spans_of(recording, rank)
        ]
        gathers = ("gather", 6 * size, 24 * size, 0) if rank == ROOT else ("gather", 6 * size, 0, 6 * size)
        assert sizes == [gathers, ("scatter", *((8 * size, 2 * size, 6 * size) if rank == ROOT else (0, 2 * size, 0)))]


async def reduces_to_a_root(rank: Rank, dtype: str) -> None:
    for name in names_for(dtype):
        tensor = tensor_of(rank.rank, (3, 2), dtype)
        assert await rank.reduce(tensor, ROOT, OPS[name]) is tensor
        if rank.rank == ROOT:
            note(rank, name, tensor)


@pytest.mark.parametrize("dtype", ADDED)
def test_reduce_gives_the_root_what_one_process_would_have(play: Play, dtype: str) -> None:
    recording = play(Script(reduces_to_a_root, (dtype,)), 2, 2)
    for name in names_for(dtype):
        whole = reduce([tensor_of(rank, (3, 2), dtype) for rank in range(4)], name)
        assert noted_elements(recording, ROOT, name) == flat([whole])
    size = 6 * tensor_of(0, (1,), dtype).element_size()
    kinds = {(span.rank, span.kind, span.bytes_in, span.bytes_out) for span in recording.spans}
    assert kinds == {(rank, "reduce", size, size if rank == ROOT else 0) for rank in range(4)}


async def reduces_drawn(rank: Rank, dtype: str) -> list[Any]:
    """Of as many elements that chunks have one segment, several, or none."""
    found: list[Any] = []
    turned = rank.new_group(list(range(rank.world_size))[::-1])
    for group in (rank.world, turned):
        for count in (1, 5, 8, 37, 1000, (1 << 20) + 3 if dtype == "float32" else 1):
            tensor = await rank.reduce(draw(rank.rank, count, dtype), 1, group=group)
            found.append(describe(tensor[:: max(1, count // 1000)]) if rank.rank == 1 else None)
            output = torch.empty(count % 999, dtype=tensor.dtype)
            listed = [draw(10 * place + rank.rank, count % 999, dtype) for place in range(rank.world_size)]
            found.append(describe(await rank.reduce_scatter(output, listed, ReduceOp.SUM, group)))
    return found


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype in ("bfloat16", "float32", "complex64")])
def test_sums_of_roots_and_lists_are_the_same_to_the_bit_in_every_world(dtype: str) -> None:
    simulated, real = (results(world, 1, 3, reduces_drawn, dtype) for world in sorted(WORLDS, reverse=True))
    assert simulated == real


async def lists(rank: Rank, dtype: str) -> None:
    size, is_uneven = rank.world_size, 1 if rank.world_size > 2 else 0
    own = tensor_of(rank.rank, (2 + is_uneven * rank.rank, 2), dtype)
    outputs = [empty(2 + is_uneven * place, 2, like=own) for place in range(size)]
    assert await rank.all_gather(outputs, own) is outputs
    note(rank, "gathered", torch.cat(outputs))
    inputs = [tensor_of(rank.rank, (2 + is_uneven * place,), dtype, place) for place in range(size)]
    mine = empty(2 + is_uneven * rank.rank, like=own)
    if dtype in ADDED:
        assert await rank.reduce_scatter(mine, inputs) is mine
        note(rank, "scattered", mine)


@pytest.mark.parametrize("ranks", [2, 3], ids=["even", "uneven"])
@pytest.mark.parametrize("dtype", ["float32", "bool", "int16", "complex64"])
def test_lists_are_gathered_and_reduced_tensor_by_tensor(play: Play, ranks: int, dtype: str) -> None:
    recording, step = play(Script(lists, (dtype,)), 1, ranks), int(ranks > 2)
    everyone = flat([tensor_of(rank, (2 + step * rank, 2), dtype) for rank in range(ranks)])
    for rank in range(ranks):
        assert noted_elements(recording, rank, "gathered") == everyone
        first, *others = spans_of(recording, rank)
        size = tensor_of(0, (1,), dtype).element_size()
        assert (first.kind, first.bytes_in) == ("all_gather", 2 * (2 + step * rank) * size)
        assert first.bytes_out == sum(2 * (2 + step * place) * size for place in range(ranks))
        if others:
            parts = [tensor_of(peer, (2 + step * rank,), dtype, rank) for peer in range(ranks)]
            assert noted_elements(recording, rank, "scattered") == flat([reduce(parts, "sum")])
            assert others[0].kind == "reduce_scatter"


async def together(rank: Rank, turns: bool) -> None:
    group = rank.new_group([3, 0, 1, 2]) if turns else rank.world
    place = group.index(rank.rank)
    inputs = [tensor_of(place, (2,), "float32"), tensor_of(place, (3, 1), "float32", 1)]
    outputs = [torch.empty(8), torch.empty(12, 1)]
    assert await rank.all_gather_into_tensor_coalesced(outputs, inputs, group) is outputs
    note(rank, "into", torch.cat([each.view(-1) for each in outputs]))
    nested = [[torch.empty(2), torch.empty(3, 1)] for _ in range(4)]
    assert await rank.all_gather_coalesced(nested, inputs, group) is nested
    note(rank, "nested", torch.cat([each.view(-1) for listed in nested for each in listed]))
    wholes, shares = (
        [tensor_of(place, (8,), "float32", 2), tensor_of(place, (4,), "float32", 3)],
        [torch.empty(2), torch.empty(1)],
    )
    assert await rank.reduce_scatter_tensor_coalesced(shares, wholes, group=group) is shares
    note(rank, "shares", torch.cat(shares))
    assert await rank.monitored_barrier(group) is None


@pytest.mark.parametrize("turns", [False, True], ids=["in order", "turned"])
def test_several_tensors_go_as_one_call(play: Play, turns: bool) -> None:
    recording = play(Script(together, (turns,)), 2, 2)
    order = [3, 0, 1, 2] if turns else [0, 1, 2, 3]
    first, second = (
        [tensor_of(place, shape, "float32", seed) for place in range(4)] for shape, seed in (((2,), 0), ((3, 1), 1))
    )
    whole, small = (
        reduce([tensor_of(place, (size,), "float32", seed) for place in range(4)], "sum")
        for size, seed in ((8, 2), (4, 3))
    )
    for place, rank in enumerate(order):
        assert noted_elements(recording, rank, "into") == flat([*first, *second])
        assert noted_elements(recording, rank, "nested") == flat(
            [each for pair in zip(first, second, strict=True) for each in pair]
        )
        assert noted_elements(recording, rank, "shares") == flat(
            [whole[2 * place : 2 * place + 2], small[place : place + 1]]
        )
    kinds: list[Sizes] = [
        (span.kind, span.bytes_in, span.bytes_out, span.bytes_sent) for span in spans_of(recording, 1)
    ]
    assert kinds == [
        ("all_gather_into_tensor_coalesced", 20, 80, 20),
        ("all_gather_coalesced", 20, 80, 20),
        ("reduce_scatter_tensor_coalesced", 48, 12, 48),
        ("monitored_barrier", 0, 0, 0),
    ]


async def gives_a_list_elsewhere(rank: Rank) -> None:
    await rank.gather(torch.ones(1), [torch.ones(1)] * 2, 0)


async def gives_no_list(rank: Rank) -> None:
    await rank.scatter(torch.ones(1), None, 0)


async def gathers_others(rank: Rank) -> None:
    await rank.gather(torch.ones(2), [torch.ones(2), torch.ones(3)] if rank.rank == 0 else None, 0)


async def gathers_to_nobody(rank: Rank) -> None:
    await rank.reduce(torch.ones(2), 7)


async def gathers_less_than_own(rank: Rank) -> None:
    await rank.all_gather([torch.ones(2), torch.ones(3)], torch.ones(1))


async def scatters_too_much(rank: Rank) -> None:
    await rank.reduce_scatter_tensor_coalesced([torch.ones(2)], [torch.ones(2)])


async def gathers_into_less(rank: Rank) -> None:
    await rank.all_gather_coalesced([[torch.ones(2)], [torch.ones(1)]], [torch.ones(2)])


WRONG = [
    (gives_a_list_elsewhere, "rank 1: gather: gather_list is for rank 0 alone, expected None"),
    (gives_no_list, "rank 0: scatter: scatter_list must be a list of tensors, got NoneType"),
    (gathers_others, "rank 0: gather: gather_list[1] has 12 bytes, expected 8 as tensor"),
    (gathers_to_nobody, "rank 0: reduce: rank 7 is not in group world of [0, 1]"),
    (
        gathers_less_than_own,
        "rank 0: all_gather: tensor_list[0], this rank's own, has 8 bytes, expected 4 as its tensor",
    ),
    (
        scatters_too_much,
        "rank 0: reduce_scatter_tensor_coalesced: output_tensors[0] has 2 elements and input 2,"
        " expected 1 for a group of 2",
    ),
    (
        gathers_into_less,
        "rank 0: all_gather_coalesced: output_tensor_lists[1] has tensors of [4] bytes, expected the inputs' [8]",
    ),
]


@pytest.mark.parametrize(("body", "sentence"), WRONG, ids=[body.__name__ for body, _ in WRONG])
def test_wrong_arguments_are_one_sentence(play: Play, body: Any, sentence: str) -> None:
    with pytest.raises(ProgramError) as caught:
        play(Script(body), 1, 2)
    said = re.sub(r" \(at \S+\.py:\d+\)(\n.*)*$", "", str(caught.value))
    assert re.sub(r"^rank \d raised \w+: ", "", said) == sentence


async def disagrees(rank: Rank, what: str) -> None:
    if what == "root":
        await rank.reduce(torch.ones(2), rank.rank)
    elif what == "sizes":
        expected = [torch.ones(1), torch.ones(3)] if rank.rank == 0 else [torch.ones(2), torch.ones(2)]
        await rank.all_gather(expected, torch.ones(1 + rank.rank))


SENTENCES = {
    "root": (
        "group world: rank 0 calls reduce (8 bytes, float32, sum, root 0),"
        " but rank 1 calls reduce (8 bytes, float32, sum, root 1)"
    ),
    "sizes": "group world: all_gather: rank 0 and rank 1 take 16 bytes each, in tensors of other sizes",
}


@pytest.mark.parametrize("what", sorted(SENTENCES))
def test_calls_that_do_not_fit_are_one_sentence_where_calls_are_checked(what: str) -> None:
    with pytest.raises(ProgramError) as caught:
        results("sim", 1, 2, disagrees, what)
    assert SENTENCES[what] in str(caught.value)
