"""The contract of `Rank` in every world: values of its verbs in each group."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording, Span
from tests.contract.conftest import Play
from tests.contract.scripts import Script, note, noted_elements

MOVED = ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"]
MOVED += ["complex64", "complex128"]
ADDED = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "complex64"]


def tensor_of(rank: int, shape: tuple[int, ...], dtype: str, seed: int = 0) -> Tensor:
    """Small whole numbers, so that sums are exact in every dtype and order."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    kind = getattr(torch, dtype)
    values = torch.randint(0, 4, shape, generator=generator)
    return torch.complex(values.float(), values.float().flip(0) + 1).to(kind) if kind.is_complex else values.to(kind)


def flat(tensors: list[Tensor]) -> list[float]:
    """As `noted_elements` gives it."""
    parts = [torch.view_as_real(item) if item.is_complex() else item for item in tensors]
    return [float(value) for part in parts for value in part.reshape(-1).tolist()]


def spans_of(recording: Recording, rank: int, stream: str = "main") -> list[Span]:
    own = [span for span in recording.spans if (span.rank, span.stream) == (rank, stream)]
    return sorted(own, key=lambda span: span.sequence)


OPS = {
    "sum": ReduceOp.SUM,
    "avg": ReduceOp.AVG,
    "product": ReduceOp.PRODUCT,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
}


def names_for(dtype: str) -> list[str]:
    """Complex numbers have no order."""
    return [name for name in OPS if not ("complex" in dtype and name in ("min", "max"))]


async def reduces(rank: Rank, dtype: str) -> None:
    for name in names_for(dtype):
        tensor = tensor_of(rank.rank, (3, 2), dtype)
        assert await rank.all_reduce(tensor, OPS[name]) is tensor
        note(rank, f"{name} reduced", tensor)
        output = torch.empty(2, dtype=tensor.dtype)
        assert await rank.reduce_scatter_tensor(output, tensor_of(rank.rank, (8,), dtype, 1), OPS[name]) is output
        note(rank, f"{name} scattered", output)


def reduce(parts: list[Tensor], name: str) -> Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        if name in ("min", "max"):
            total = torch.minimum(total, part) if name == "min" else torch.maximum(total, part)
        else:
            total = total * part if name == "product" else total + part
    if name != "avg":
        return total
    is_whole = not (total.is_floating_point() or total.is_complex())
    return torch.div(total, len(parts), rounding_mode="trunc" if is_whole else None)


@pytest.mark.parametrize("dtype", ADDED)
def test_reductions_are_those_of_one_process(play: Play, dtype: str) -> None:
    recording = play(Script(reduces, (dtype,)), 2, 2)
    for name in names_for(dtype):
        whole = reduce([tensor_of(rank, (3, 2), dtype) for rank in range(4)], name)
        parts = reduce([tensor_of(rank, (8,), dtype, 1) for rank in range(4)], name)
        for rank in range(4):
            assert noted_elements(recording, rank, f"{name} reduced") == flat([whole])
            assert noted_elements(recording, rank, f"{name} scattered") == flat([parts[2 * rank : 2 * rank + 2]])


async def exchanges(rank: Rank) -> None:
    size = rank.world_size
    splits = [rank.rank + peer for peer in range(size)]
    inputs, outputs = ([torch.empty(rows, 2) for rows in splits] for _ in range(2))
    assert await rank.all_to_all(outputs, inputs) is outputs
    output = torch.empty(sum(splits), 2)
    assert await rank.all_to_all_single(output, torch.cat(inputs), splits, splits) is output


def test_both_forms_of_all_to_all_send_the_same_bytes(play: Play) -> None:
    recording = play(Script(exchanges), 1, 3)
    for rank in range(3):
        listed, single = ((one.bytes_in, one.bytes_out, one.bytes_sent) for one in spans_of(recording, rank))
        assert listed == single


async def moves(rank: Rank) -> None:
    gathered = torch.empty(2 * rank.world_size, dtype=torch.complex64)
    await rank.all_gather_into_tensor(gathered, tensor_of(rank.rank, (2,), "complex64"))
    note(rank, "gathered", gathered)
    given = tensor_of(rank.rank, (2, 2), "int16")
    assert await rank.broadcast(given, 2) is given
    note(rank, "given", given)
    assert await rank.barrier() is None
    if rank.rank in (1, 3):
        peer = 4 - rank.rank
        got = torch.empty(3, dtype=torch.bool)
        sent = rank.send(tensor_of(rank.rank, (3,), "bool"), peer)
        assert await rank.recv(got, peer) is got
        assert await sent is None
        note(rank, "got", got)


def test_gather_broadcast_send_and_recv_move_what_they_say(play: Play) -> None:
    recording = play(Script(moves), 2, 2)
    everything = flat([tensor_of(rank, (2,), "complex64") for rank in range(4)])
    for rank in range(4):
        assert noted_elements(recording, rank, "gathered") == everything
        assert noted_elements(recording, rank, "given") == flat([tensor_of(2, (2, 2), "int16")])
    assert noted_elements(recording, 1, "got") == flat([tensor_of(3, (3,), "bool")])
    assert noted_elements(recording, 3, "got") == flat([tensor_of(1, (3,), "bool")])
    kinds = [(span.kind, span.bytes_in, span.bytes_out, span.call) for span in spans_of(recording, 1)]
    assert kinds == [
        ("all_gather_into_tensor", 16, 64, 0),
        ("broadcast", 0, 8, 1),
        ("barrier", 0, 0, 2),
        ("send", 3, 0, -1),
        ("recv", 0, 3, -1),
    ]


async def uses_groups(rank: Rank) -> None:
    for name, group in (("intra", rank.intra), ("cross", rank.cross), ("world", rank.world)):
        tensor = torch.tensor([float(10**rank.rank)])
        await rank.all_reduce(tensor, group=group)
        note(rank, name, tensor)
    turned = rank.new_group([3, 0])
    assert turned == Group("group1", (3, 0))
    if rank.rank in turned:
        row = torch.tensor([1.0, 2.0]) + 10 * rank.rank
        output = torch.empty(2)
        await rank.all_to_all_single(output, row, group=turned)
        note(rank, "turned", output)
        gathered = torch.empty(4)
        await rank.all_gather_into_tensor(gathered, row, turned)
        note(rank, "gathered", gathered)
        part = torch.empty(1)
        await rank.reduce_scatter_tensor(part, row, group=turned)
        note(rank, "part", part)


def test_groups_are_host_same_local_rank_world_and_in_the_order_that_was_named(play: Play) -> None:
    recording = play(Script(uses_groups), 2, 2)
    sums = {"intra": [11, 11, 1100, 1100], "cross": [101, 1010, 101, 1010], "world": [1111] * 4}
    for name, expected in sums.items():
        assert [noted_elements(recording, rank, name)[0] for rank in range(4)] == expected
    assert noted_elements(recording, 3, "turned") == [31.0, 1.0]
    assert noted_elements(recording, 0, "turned") == [32.0, 2.0]
    for rank, part in ((3, 32.0), (0, 34.0)):
        assert noted_elements(recording, rank, "gathered") == [31.0, 32.0, 1.0, 2.0]
        assert noted_elements(recording, rank, "part") == [part]


async def stands_outside(rank: Rank) -> None:
    group = rank.new_group([0])
    tensor = torch.tensor([5.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = await rank.all_reduce(tensor, group=group, label="x")
    if rank.rank == 0:
        assert result is tensor
        assert not caught
    else:
        assert result is None
        assert tensor.item() == 5.0
        sentence = "rank 1: all_reduce: not a member of group group1 of [0]; nothing is done"
        assert [str(warning.message) for warning in caught] == [sentence]


def test_a_rank_outside_the_group_is_warned_and_gets_none(play: Play) -> None:
    recording = play(Script(stands_outside), 1, 2)
    assert [span.kind for span in recording.spans] == ["all_reduce"]
