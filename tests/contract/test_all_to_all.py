"""What all-to-all takes, in both forms and both worlds: the documented examples, odd shapes, types and aliases."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from scenarios.seam.rank import Rank
from tests.contract.worlds import results

# The examples of torch.distributed.all_to_all and all_to_all_single: rows from each rank (row) to each (column).
EVEN = [[1, 1, 1, 1]] * 4
UNEVEN = [[2, 2, 1, 1], [3, 2, 2, 2], [2, 1, 1, 1], [2, 2, 2, 1]]
WHOLE = {
    "even": (EVEN, [[4 * rank + row for row in range(4)] for rank in range(4)]),
    "uneven": (UNEVEN, [[10 * rank + row for row in range(sum(UNEVEN[rank]))] for rank in range(4)]),
}
TEXTS = {
    "even": [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]],
    "uneven": [
        [0, 1, 10, 11, 12, 20, 21, 30, 31],
        [2, 3, 13, 14, 22, 32, 33],
        [4, 15, 16, 23, 34, 35],
        [5, 17, 18, 24, 36],
    ],
}
COMPLEX = ("cfloat", "uneven cfloat")


def example(name: str, rank: int) -> tuple[Tensor, list[int], list[int]]:
    """The input of a rank, its input splits and its output splits; complex ones as (1 + 1j) and so on."""
    splits, inputs = WHOLE["uneven" if "uneven" in name else "even"]
    given = torch.tensor(inputs[rank])
    if name in COMPLEX:
        given = torch.complex(given + 1.0, given + 1.0)
    return given, splits[rank], [row[rank] for row in splits]


async def plays_example(rank: Rank, name: str, form: str) -> list[Any]:
    given, sends, recvs = example(name, rank.rank)
    output = torch.empty(sum(recvs), dtype=given.dtype)
    if form == "single":
        is_even = "uneven" not in name
        splits = (None, None) if is_even else (recvs, sends)
        assert await rank.all_to_all_single(output, given, *splits) is output
    else:
        outputs = list(output.split(recvs))
        assert await rank.all_to_all(outputs, list(given.split(sends))) is outputs
    return list(output.tolist())


@pytest.mark.parametrize("form", ["list", "single"])
@pytest.mark.parametrize("name", ["even", "uneven", *COMPLEX])
def test_the_documented_examples_work(world: str, name: str, form: str) -> None:
    rows = TEXTS["uneven" if "uneven" in name else "even"]
    expected = [[complex(row + 1, row + 1) for row in rank] for rank in rows] if name in COMPLEX else rows
    assert results(world, 2, 2, plays_example, name, form) == expected


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


async def gives_odd_tensors(rank: Rank) -> dict[str, Any]:
    me, heard = rank.rank, {}
    empty = [torch.empty(0, 3), torch.empty(0, 3)]
    heard["empty"] = [list(item.shape) for item in await rank.all_to_all(empty, [torch.empty(0, 3)] * 2)]
    scalars = [torch.tensor(0.0), torch.tensor(0.0)]
    await rank.all_to_all(scalars, [torch.tensor(10.0 * me), torch.tensor(10.0 * me + 1)])
    heard["scalars"] = [item.item() for item in scalars]
    twice = torch.zeros(1)
    await rank.all_to_all([twice, twice], [torch.tensor([10.0 * me]), torch.tensor([10.0 * me + 1])])
    heard["one output twice"] = twice.tolist()
    one, outputs = torch.tensor([me + 1.0]), [torch.zeros(1), torch.zeros(1)]
    await rank.all_to_all(outputs, [one, one])
    heard["one input twice"] = [item.item() for item in outputs]
    base = torch.arange(2.0) + 10 * me
    views = list(base.split(1))
    await rank.all_to_all(views, views)
    heard["in place"] = base.tolist()
    base = torch.arange(4.0) + 10 * me
    await rank.all_to_all_single(base, base)
    heard["single in place"] = base.tolist()
    return heard


def test_empty_scalar_and_aliased_tensors_are_taken(world: str) -> None:
    """Of one output given twice the last sender's stays, as in torch."""
    for rank, heard in enumerate(results(world, 1, 2, gives_odd_tensors)):
        assert heard == {
            "empty": [[0, 3], [0, 3]],
            "scalars": [0.0 + rank, 10.0 + rank],
            "one output twice": [10.0 + rank],
            "one input twice": [1.0, 2.0],
            "in place": [0.0 + rank, 10.0 + rank],
            "single in place": [2.0 * rank, 2.0 * rank + 1, 2.0 * rank + 10, 2.0 * rank + 11],
        }


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


async def splits_oddly(rank: Rank) -> list[list[float]]:
    me, given = rank.rank, torch.arange(4.0) + 10 * rank.rank
    only_in = await rank.all_to_all_single(torch.empty(4), given, None, [2, 2])
    only_out = await rank.all_to_all_single(torch.empty(4), given, [2, 2], None)
    none = await rank.all_to_all_single(torch.empty(4), given, [], ())
    one_sided = torch.empty(4 if me else 0)
    await rank.all_to_all_single(
        one_sided, torch.empty(0) if me else given, [4, 0] if me else [0, 0], [0, 0 if me else 4]
    )
    nothing = await rank.all_to_all_single(torch.empty(0, 2), torch.empty(0, 2), [0, 0], [0, 0])
    return [only_in.tolist(), only_out.tolist(), none.tolist(), one_sided.tolist(), nothing.tolist()]


def test_splits_may_be_given_on_one_side_and_be_zero(world: str) -> None:
    for rank, heard in enumerate(results(world, 1, 2, splits_oddly)):
        even = [2.0 * rank, 2.0 * rank + 1, 2.0 * rank + 10, 2.0 * rank + 11]
        assert heard == [even, even, even, [0.0, 1.0, 2.0, 3.0] if rank else [], []]


async def is_alone(rank: Rank) -> list[float]:
    output = [torch.empty(3)]
    await rank.all_to_all(output, [torch.arange(3.0)])
    single = await rank.all_to_all_single(torch.empty(3), torch.arange(3.0), [3], [3])
    scalar = await rank.all_to_all_single(torch.tensor(0.0), torch.tensor(7.0))
    return [*output[0].tolist(), *single.tolist(), scalar.item()]


def test_a_world_of_one_sends_to_itself(world: str) -> None:
    assert results(world, 1, 1, is_alone) == [[0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 7.0]]


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
