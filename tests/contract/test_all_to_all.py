"""Dtypes and arguments of both forms of all-to-all in both worlds, beyond the calls that tests/vectors replays."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scenarios.seam.rank import Rank
from tests.contract.worlds import results

DTYPES = ["float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128", "bool"]
DTYPES += ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES += ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"]


async def moves_bytes(rank: Rank, names: list[str]) -> dict[str, list[int]]:
    """Rank r sends r + 1 elements to each, whose bytes all are 16 r + receiver; bools are its last bit."""
    received = {}
    for name in names:
        dtype = getattr(torch, name)
        width = torch.empty(1, dtype=dtype).element_size()
        inputs = [torch.full(((rank.rank + 1) * width,), 16 * rank.rank + to, dtype=torch.uint8) for to in range(2)]
        if dtype == torch.bool:
            inputs = [item % 2 for item in inputs]
        outputs = [torch.zeros((source + 1) * width, dtype=torch.uint8) for source in range(2)]
        await rank.all_to_all([item.view(dtype) for item in outputs], [item.view(dtype) for item in inputs])
        single = torch.zeros(3 * width, dtype=torch.uint8)
        splits = [1, 2], [rank.rank + 1] * 2
        await rank.all_to_all_single(single.view(dtype), torch.cat(inputs).view(dtype), *splits)
        assert single.tolist() == torch.cat(outputs).tolist()
        received[name] = single.tolist()
    return received


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_every_dtype_moves_bit_for_bit(world: str) -> None:
    widths = {name: torch.empty(1, dtype=getattr(torch, name)).element_size() for name in DTYPES}
    for rank, received in enumerate(results(world, 1, 2, moves_bytes, DTYPES)):
        for name, width in widths.items():
            second = rank % 2 if name == "bool" else 16 + rank
            assert received[name] == [rank] * width + [second] * 2 * width, name


async def gives_views(rank: Rank) -> dict[str, Any]:
    given = torch.complex(torch.arange(2.0), torch.ones(2) + rank.rank)
    conj, neg = torch.empty(2, dtype=torch.complex64), torch.empty(2)
    await rank.all_to_all_single(conj, given.conj())
    await rank.all_to_all(list(neg.split(1)), list(given.conj().imag.contiguous().split(1)))
    assert given.conj().imag.is_neg()
    strided = torch.empty(4)
    await rank.all_to_all_single(strided.view(4, 1), (torch.arange(4.0) + 10 * rank.rank).view(2, 2))
    scattered = await rank.reduce_scatter_tensor(torch.empty(1, dtype=torch.complex64), given.conj())
    gathered = await rank.all_gather_into_tensor(torch.empty(4, dtype=torch.complex64), given.conj())
    return {
        "conj": conj.tolist(),
        "neg": neg.tolist(),
        "other trailing dimensions": strided.tolist(),
        "scattered": scattered.tolist(),
        "gathered": gathered.tolist(),
    }


def test_conjugate_and_negative_views_and_other_trailing_dimensions_are_taken_as_inputs(world: str) -> None:
    everything = [complex(0, -1), complex(1, -1), complex(0, -2), complex(1, -2)]
    for rank, heard in enumerate(results(world, 1, 2, gives_views)):
        assert heard == {
            "conj": [complex(rank, -1), complex(rank, -2)],
            "neg": [-1.0, -2.0],
            "other trailing dimensions": [2.0 * rank, 2.0 * rank + 1, 2.0 * rank + 10, 2.0 * rank + 11],
            "scattered": [complex(2 * rank, -3)],
            "gathered": everything,
        }


async def several_at_once(rank: Rank) -> list[float]:
    """Five in flight, awaited from the last to the first, on a group in an order of its own."""
    group = rank.new_group([2, 0, 1])
    outputs = [torch.empty(3) for _ in range(5)]
    works = [
        rank.all_to_all_single(output, torch.full((3,), 10.0 * number + rank.rank), group=group)
        for number, output in enumerate(outputs)
    ]
    for work in reversed(works):
        await work
    return [value for output in outputs for value in output.tolist()]


def test_several_may_be_under_way_and_outputs_are_in_the_groups_order(world: str) -> None:
    expected = [10.0 * number + source for number in range(5) for source in (2, 0, 1)]
    assert results(world, 1, 3, several_at_once) == [expected] * 3


async def last_of_the_group(rank: Rank) -> float:
    one, group = torch.zeros(1), rank.new_group([2, 0, 1])
    await rank.all_to_all([one] * 3, [torch.tensor([float(rank.rank)])] * 3, group)
    return one.item()


def test_of_one_output_given_often_the_groups_last_member_stays(world: str) -> None:
    assert results(world, 1, 3, last_of_the_group) == [1.0] * 3


async def keeps_a_parameter(rank: Rank) -> list[float]:
    """In place on a leaf, as torch allows it; and any output once gradients are not recorded."""
    parameter, output = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    await rank.broadcast(parameter, 0)
    await rank.all_reduce(parameter)
    with torch.no_grad():
        work = rank.all_to_all_single(output, parameter)
    await work
    return [*parameter.tolist(), *output.tolist()]


def test_parameters_are_written_in_place_and_anything_when_gradients_are_off(world: str) -> None:
    assert results(world, 1, 2, keeps_a_parameter) == [[2.0] * 4] * 2
