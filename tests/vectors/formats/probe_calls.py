"""How a probe calls a rank, and what it gives back; which tensors it is given is left to the tables."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.rank import Rank

Body: TypeAlias = Callable[[Rank], Awaitable[Any]]
# What a rank hands to the list form, or to the single form (with splits or without).
Given: TypeAlias = Callable[[int], tuple[Any, ...]]


def list_form(given: Given) -> Body:
    """The list form, awaited."""

    async def body(rank: Rank) -> Any:
        outputs, inputs = given(rank.rank)
        await rank.all_to_all(outputs, inputs)
        return [output.tolist() for output in outputs]

    return body


def single(given: Given) -> Body:
    """The single form, awaited; output, input, and perhaps output and input splits."""

    async def body(rank: Rank) -> Any:
        output, *others = given(rank.rank)
        await rank.all_to_all_single(output, *others)
        return output.tolist()

    return body


def collect_results(given: Given) -> Body:
    """What awaiting gives: torch's blocking call gives None."""

    async def body(rank: Rank) -> Any:
        outputs, inputs = given(rank.rank)
        return "the outputs" if await rank.all_to_all(outputs, inputs) is outputs else "something else"

    return body


def async_listed(given: Given) -> Body:
    """A handle that is awaited later."""

    async def body(rank: Rank) -> Any:
        outputs, inputs = given(rank.rank)
        work = rank.all_to_all(outputs, inputs)
        await rank.barrier()
        await work
        return [output.tolist() for output in outputs]

    return body


def into_chunks(inputs: Callable[[int], list[Tensor]]) -> Body:
    """Outputs that are views of one tensor."""

    async def body(rank: Rank) -> Any:
        base = torch.zeros(rank.world_size)
        outputs = list(base.chunk(rank.world_size))
        first = outputs[0]
        await rank.all_to_all(outputs, inputs(rank.rank))
        return {"base": base.tolist(), "same": outputs[0] is first}

    return body


def dtype_listed(dtype: torch.dtype) -> Body:
    """Ones and zeros of a dtype: whether they arrive."""

    async def body(rank: Rank) -> str:
        marks = [torch.tensor([peer == rank.rank, True]).to(dtype) for peer in range(rank.world_size)]
        outputs = [torch.zeros(2).to(dtype) for _ in marks]
        await rank.all_to_all(outputs, marks)
        came = [output.view(torch.uint8).tolist() for output in outputs]
        return f"ok {dtype}" if came == [mark.view(torch.uint8).tolist() for mark in marks] else f"{outputs}"

    return body


async def one_sided_group(rank: Rank) -> Any:
    """Ranks 0 and 1 exchange; rank 2 is told that it is no member, and nothing is done."""
    group = rank.new_group([0, 1])
    outputs = [torch.zeros(1), torch.zeros(1)]
    inputs = [torch.tensor([1.0 + rank.rank]), torch.tensor([5.0 + rank.rank])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work = rank.all_to_all(outputs, inputs, group)
    assert (await work is None) == (rank.rank == 2)
    return [output.tolist() for output in outputs]


async def three_ways(rank: Rank) -> Any:
    """A world of one: the list form, the single form, and the single form with splits."""
    list_form, plain, split = torch.zeros(3), torch.zeros(3), torch.zeros(3)
    await rank.all_to_all([list_form], [torch.arange(3.0)])
    await rank.all_to_all_single(plain, torch.arange(3.0))
    await rank.all_to_all_single(split, torch.arange(3.0), [3], [3])
    return [list_form.tolist(), plain.tolist(), split.tolist()]


async def twice_differently_cut(rank: Rank) -> Any:
    """Output and input of the same elements in rows of other lengths."""
    tall, wide = torch.zeros(4, 1), torch.zeros(2, 4)
    await rank.all_to_all_single(tall, (2 * torch.arange(4.0) + rank.rank).reshape(2, 2))
    await rank.all_to_all_single(wide, (torch.arange(8.0) + rank.rank).reshape(4, 2))
    return [tall.tolist(), wide.tolist()]


async def never_called_by_one(rank: Rank) -> Any:
    """Rank 1 has left when rank 0 calls."""
    if rank.rank:
        return "skipped"
    output = torch.zeros(2)
    await rank.all_to_all_single(output, torch.ones(2))
    return output.tolist()


async def float8_as_bytes(rank: Rank) -> Any:
    given = torch.ones(2).to(torch.float8_e4m3fn)
    output = torch.zeros(2).to(torch.float8_e4m3fn)
    await rank.all_to_all_single(output.view(torch.uint8), given.view(torch.uint8))
    return str(output.float().tolist())


async def reduce_scattered(rank: Rank) -> Any:
    output = torch.zeros(1)
    await rank.reduce_scatter_tensor(output, torch.tensor([1.0, 2.0]) + rank.rank)
    return output.tolist()


def all_reduced(tensor: Callable[[int], Tensor], op: ReduceOp.RedOpType = ReduceOp.SUM) -> Body:
    async def body(rank: Rank) -> Any:
        return (await rank.all_reduce(tensor(rank.rank), op)).tolist()

    return body


def as_text(body: Body) -> Body:
    """The recorder wrote complex numbers as Python does."""

    async def text(rank: Rank) -> str:
        return str(await body(rank))

    return text
