"""all_to_all_single and the list form with the same data: gloo's recorded outputs, bit for bit, on both worlds.

The recorded list form failed with most uneven splits; ours gives the single form's outputs there too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from scenarios.seam.rank import Rank
from tests.contract.worlds import WORLDS
from tests.vectors.fields import COUNT, FLAG, SIZE, TEXT, Each, Fields, Is, VectorError, one_of
from tests.vectors.files import Case, Check, File, Format
from tests.vectors.plays import Outcome

ENCODING = (
    "flattened row-major; complex as [re,im] pairs; float16/bfloat16 exact as doubles; bool as 0/1"  # the one known
)
DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"]
DTYPES += ["complex32", "complex64", "complex128", "uint16", "uint32", "uint64"]

ELEMENT = Is(
    "a number or a pair of them",
    lambda item: (
        all(type(part) in (int, float) for part in (item if isinstance(item, list) else [item]))
        and (not isinstance(item, list) or len(item) == 2)
    ),
)
RANK = Fields(
    {
        "input": Each(ELEMENT),
        "output": Each(ELEMENT),
        "input_splits": Each(COUNT),
        "output_splits": Each(COUNT),
        "list_form": TEXT,
    }
)
CASE = Fields(
    {
        "id": TEXT,
        "tag": TEXT,
        "world": SIZE,
        "dtype": one_of(*DTYPES),
        "trailing": Each(COUNT),
        "splits": Each(Each(COUNT)),
        "all_ranks_raise": FLAG,
        "ranks": Each(RANK),
    }
)


def tensor_of(case: Case, values: list[Any], rows: int) -> Tensor:
    dtype = getattr(torch, case["dtype"])
    if dtype.is_complex:
        wide = torch.tensor(values, dtype=torch.float64).reshape(-1, 2)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "ComplexHalf support is experimental")  # said once, of complex32
            return torch.view_as_complex(wide).to(dtype).reshape(rows, *case["trailing"])
    return torch.tensor(values, dtype=dtype).reshape(rows, *case["trailing"])


Held = tuple[str, tuple[int, ...], list[int]]


def count_held(tensor: Tensor) -> Held:
    """Dtype, shape and bytes: as tensors, not every dtype travels from a process in a pickle."""
    return str(tensor.dtype), tuple(tensor.shape), bits(tensor)


async def exchange(rank: Rank, case: Case) -> tuple[Held, list[Held]]:
    """The outputs of the single form and of the list form."""
    mine = case["ranks"][rank.rank]
    sends, receives = mine["input_splits"], mine["output_splits"]
    given = tensor_of(case, mine["input"], sum(sends))
    output = given.new_empty(sum(receives), *case["trailing"])
    assert await rank.all_to_all_single(output, given, receives, sends) is output
    outputs = [given.new_empty(rows, *case["trailing"]) for rows in receives]
    inputs = [part.clone() for part in given.split(sends)]
    assert await rank.all_to_all(outputs, inputs) is outputs
    return count_held(output), [count_held(part) for part in outputs]


def check(case: Case, outcome: Callable[[], Outcome]) -> None:
    for mine, (single, listed) in zip(case["ranks"], outcome().returned, strict=True):
        expected = tensor_of(case, mine["output"], sum(mine["output_splits"]))
        assert single == count_held(expected)
        assert listed == [count_held(part) for part in expected.split(mine["output_splits"])]


def bits(tensor: Tensor) -> list[int]:
    flat = tensor.contiguous().reshape(-1)
    return (torch.view_as_real(flat) if flat.is_complex() else flat).reshape(-1).view(torch.uint8).tolist()


def check_case(case: Case, where: str) -> None:
    """The splits are said twice, so is whether the recorded list form failed, and elements are exact."""
    world = range(case["world"])
    if {len(case["ranks"]), len(case["splits"]), *map(len, case["splits"])} != {case["world"]}:
        raise VectorError(f"{where}: expected ranks and splits of a world of {case['world']}")
    for rank, mine in enumerate(case["ranks"]):
        said = mine["input_splits"], mine["output_splits"]
        expected = case["splits"][rank], [case["splits"][source][rank] for source in world]
        if said != expected:
            raise VectorError(f"{where}.ranks[{rank}]: splits {said}, expected {expected}")
        for name, splits in (("input", said[0]), ("output", said[1])):
            check_elements(case, mine[name], sum(splits), f"{where}.ranks[{rank}].{name}")
    failed = all(mine["list_form"].startswith("ProcessGroupGloo::alltoall") for mine in case["ranks"])
    if failed != case["all_ranks_raise"]:
        raise VectorError(f"{where}.all_ranks_raise = {case['all_ranks_raise']}: expected {failed} of its list_form")


def check_elements(case: Case, values: list[Any], rows: int, where: str) -> None:
    """As many as the rows hold, and the dtype keeps each as it was written."""
    count = rows * prod(case["trailing"])
    if len(values) != count:
        raise VectorError(f"{where} has {len(values)} elements, expected {count}")
    try:
        kept = flat_numbers(tensor_of(case, values, rows))
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise VectorError(f"{where}: expected elements of {case['dtype']}: {error}") from error
    for value, kept_as in zip(values, kept, strict=True):
        if str(kept_as) != str(like(value, kept_as)):
            raise VectorError(f"{where}: {value} is no {case['dtype']}, which holds {kept_as} in its place")


def flat_numbers(tensor: Tensor) -> list[Any]:
    """Elements as they are recorded: numbers, or [real, imaginary]."""
    if tensor.is_complex():
        wide = tensor.to(torch.complex128)
        return torch.view_as_real(wide).reshape(-1, 2).tolist()
    whole = tensor.to(torch.uint8) if tensor.dtype is torch.bool else tensor
    return whole.reshape(-1).tolist()


def like(value: Any, kept_as: Any) -> Any:
    """The number of the type in which a tensor gives it: 3 and 3.0 are one, and so is no other."""
    if isinstance(kept_as, list):
        return [float(part) for part in value]
    return float(value) if isinstance(kept_as, float) else value


def replays(file: File, where: str, case: Case) -> Iterator[tuple[str, Check]]:
    CASE.check(case, where)
    check_case(case, where)
    for world in WORLDS:
        yield world, partial(check, case, file.batch(world, 1, case["world"]).add(exchange, case))


FORMAT = Format(
    name="all_to_all",
    cases="cases",
    signature=frozenset({"splits", "ranks", "dtype"}),
    head={"what": TEXT, "torch": TEXT, "encoding": one_of(ENCODING), "list_form": TEXT},
    replays=replays,
)
