"""What every world's `Rank` owes its programs: values, order, overlap, and one sentence when a program is wrong."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording, Span
from scenarios.sharding_kind import ShardingKind
from tests.contract.conftest import Play
from tests.contract.scripts import Script, note, noted_elements
from tests.contract.worlds import WORLDS, scenario

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


async def exchanges(rank: Rank, dtype: str) -> None:
    size = rank.world_size
    inputs = [tensor_of(rank.rank, (rank.rank + peer, 2), dtype, peer) for peer in range(size)]
    outputs = [torch.empty((peer + rank.rank, 2), dtype=inputs[0].dtype) for peer in range(size)]
    assert await rank.all_to_all(outputs, inputs) is outputs
    note(rank, "list", torch.cat(outputs))
    splits = [rank.rank + peer for peer in range(size)]
    output = torch.empty((sum(splits), 2), dtype=inputs[0].dtype)
    assert await rank.all_to_all_single(output, torch.cat(inputs), splits, splits) is output
    note(rank, "single", output)


@pytest.mark.parametrize("dtype", MOVED)
def test_uneven_all_to_all_moves_every_dtype_to_its_place(play: Play, dtype: str) -> None:
    recording = play(Script(exchanges, (dtype,)), 1, 3)
    for rank in range(3):
        expected = flat([tensor_of(peer, (peer + rank, 2), dtype, rank) for peer in range(3)])
        assert noted_elements(recording, rank, "list") == expected
        assert noted_elements(recording, rank, "single") == expected
        listed, single = spans_of(recording, rank)[:2]
        assert (listed.bytes_in, listed.bytes_out, listed.bytes_sent) == (
            single.bytes_in,
            single.bytes_out,
            single.bytes_sent,
        )


async def exchanges_oddly(rank: Rank) -> None:
    size = rank.world_size
    empty = [torch.empty(0) for _ in range(size)]
    await rank.all_to_all(empty, [torch.empty(0) for _ in range(size)])
    scalars = [torch.tensor(0.0) for _ in range(size)]
    await rank.all_to_all(scalars, [torch.tensor(10.0 * rank.rank + peer) for peer in range(size)])
    note(rank, "scalars", torch.stack(scalars))
    everyone = torch.arange(float(size)) + 10 * rank.rank
    parts = list(everyone.chunk(size))
    await rank.all_to_all(parts, parts)
    note(rank, "in place", everyone)
    same = torch.arange(float(size)) + 10 * rank.rank
    await rank.all_to_all_single(same, same)
    note(rank, "single in place", same)
    one_sided = torch.empty(3 if rank.rank == 1 else 0)
    given = torch.full((3,), 7.0) if rank.rank == 0 else torch.empty(0)
    await rank.all_to_all_single(one_sided, given, [3, 0] if rank.rank == 1 else [0, 0], [0, len(given)])
    note(rank, "one-sided", one_sided)


def test_all_to_all_takes_empty_scalar_aliased_and_one_sided_tensors(play: Play) -> None:
    recording = play(Script(exchanges_oddly), 2, 1)
    for rank in range(2):
        transposed = [0.0 + rank, 10.0 + rank]
        for name in ("scalars", "in place", "single in place"):
            assert noted_elements(recording, rank, name) == transposed, name
    assert noted_elements(recording, 0, "one-sided") == []
    assert noted_elements(recording, 1, "one-sided") == [7.0, 7.0, 7.0]


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


async def trains(rank: Rank) -> None:
    side = rank.for_role("rows").for_tables(ShardingKind.ROW_WISE).stream("side")
    for index in range(2):
        with rank.step(index):
            tensor = torch.ones(1 << 14)
            work = rank.for_role("reduction").all_reduce(tensor, label="gradients")
            spawned = side.spawn(reduces_on(side, float(index)))
            kernel = Kernel(kind="gemm", flops=1e6, dtype="float32")
            other = rank.for_role("other").for_tables(ShardingKind.TABLE_WISE)
            value = await other.compute(kernel, double, 21, label="forward", role="dense")
            assert value == 42
            await work
            assert await spawned == rank.world_size * index
            rank.record("index", index)


async def reduces_on(rank: Rank, value: float) -> float:
    tensor = torch.tensor([value])
    await rank.all_reduce(tensor, label="aside")
    return tensor.item()


def double(value: int) -> int:
    return 2 * value


def test_spans_say_what_was_issued_in_order_and_in_which_step(play: Play) -> None:
    recording = play(Script(trains), 2, 2)
    assert recording.info.world_size == 4
    for rank in range(4):
        main = [(span.sequence, span.step, span.kind, span.label, span.role) for span in spans_of(recording, rank)]
        kinds = [("step", "step {}", ""), ("all_reduce", "gradients", "reduction"), ("compute", "forward", "dense")]
        assert main == [
            (3 * step + at, step, kind, label.format(step), role)
            for step in range(2)
            for at, (kind, label, role) in enumerate(kinds)
        ]
        beside = spans_of(recording, rank, "side")
        aside = [(span.sequence, span.step, span.group, span.call, span.role, span.sharding) for span in beside]
        own = "rows", "row_wise"
        assert aside == [(0, 0, "side/world", 0, *own), (1, 1, "side/world", 1, *own)]
        computed = [span.sharding for span in spans_of(recording, rank) if span.kind == "compute"]
        assert computed == ["table_wise", "table_wise"]
    assert [(metric.rank, metric.step, metric.value) for metric in recording.metrics] == [
        (rank, step, float(step)) for rank in range(4) for step in range(2)
    ]


def test_times_of_a_span_are_in_order_and_inside_its_step(play: Play) -> None:
    recording = play(Script(trains), 2, 2)
    steps = {(span.rank, span.step): span for span in recording.spans if span.kind == "step"}
    assert min(span.issued_ns for span in recording.spans) == 0
    for span in recording.spans:
        assert span.issued_ns <= span.start_ns <= span.end_ns
        if span.kind != "step":
            step = steps[span.rank, span.step]
            assert step.start_ns <= span.issued_ns <= span.wait_from_ns <= span.wait_until_ns <= step.end_ns
            assert span.end_ns <= span.wait_until_ns


async def computes_beside(rank: Rank) -> None:
    tensor = torch.ones(1024)
    work = rank.all_reduce(tensor, label="upper")
    await rank.compute(Kernel(kind="gemm", flops=1e9), busy, label="lower")
    await work


def busy() -> None:
    for _ in range(30):
        torch.ones(256, 256) @ torch.ones(256, 256)


def test_work_between_issue_and_await_overlaps(play: Play) -> None:
    recording = play(Script(computes_beside), 1, 2)
    for rank in range(2):
        upper, lower = spans_of(recording, rank)
        assert (upper.label, lower.label) == ("upper", "lower")
        assert upper.start_ns < lower.end_ns
        assert upper.wait_from_ns >= lower.end_ns
        assert upper.end_ns <= upper.wait_until_ns


async def prices_later(rank: Rank) -> int:
    priced: list[Kernel] = []

    def price() -> Kernel:
        priced.append(Kernel(kind="gemm", flops=7.0))
        return priced[0]

    await rank.compute(price, busy, label="priced")
    return len(priced)


def test_a_kernel_may_be_priced_when_the_step_is_over(world: str) -> None:
    """A prediction needs its price at once; of a real step, pricing takes no time."""
    script = Script(prices_later)
    recording = WORLDS[world](script, scenario(1, 1))
    (span,) = spans_of(recording, 0)
    assert (span.kernel, span.flops) == ("gemm", 7.0)
    assert script.returned[0] == (1 if world == "sim" else 0)


async def spawns_in_order(rank: Rank) -> None:
    side = rank.stream("side")
    order: list[int] = []
    works = [side.spawn(appends(side, order, number)) for number in range(5)]
    results = [await work for work in reversed(works)]
    assert results == [4, 3, 2, 1, 0]
    assert order == [0, 1, 2, 3, 4]


async def appends(rank: Rank, order: list[int], number: int) -> int:
    await rank.all_reduce(torch.ones(1))
    order.append(number)
    return number


def test_coroutines_of_one_stream_run_one_after_the_other(play: Play) -> None:
    recording = play(Script(spawns_in_order), 1, 2)
    calls = [span.call for span in spans_of(recording, 1, "side")]
    assert calls == [0, 1, 2, 3, 4]


async def goes_on_after(rank: Rank) -> None:
    side = rank.stream("side")
    rank.after(side.compute(Kernel(kind="gemm", flops=1e9), busy, label="before"))
    work = rank.all_reduce(torch.ones(4), label="behind")
    await rank.compute(Kernel(kind="gemm", flops=1e9), busy, label="computed behind")
    await work


def test_streams_begin_later_operations_after_the_work_given_to_after(play: Play) -> None:
    recording = play(Script(goes_on_after), 1, 2)
    for rank in range(2):
        (before,) = spans_of(recording, rank, "side")
        assert [span.label for span in spans_of(recording, rank)] == ["behind", "computed behind"]
        assert all(span.start_ns >= before.end_ns for span in spans_of(recording, rank))
        assert before.end_ns <= before.wait_until_ns


async def waits_on_the_host(rank: Rank) -> None:
    side = rank.stream("side")
    assert await rank.synchronize(rank.compute(Kernel(kind="gemm", flops=1e9), double, 21, label="computed")) == 42
    beside = side.compute(Kernel(kind="gemm", flops=1e9), busy, label="beside")
    await rank.synchronize(beside)
    tensor = torch.ones(4)
    assert await rank.synchronize(rank.all_reduce(tensor, label="reduced")) is tensor
    note(rank, "reduced", tensor)
    await rank.compute(Kernel(kind="gemm", flops=1e9), busy, label="behind")


def test_operations_after_synchronize_are_issued_after_the_wait(play: Play) -> None:
    recording = play(Script(waits_on_the_host), 1, 2)
    for rank in range(2):
        computed, reduced, behind = spans_of(recording, rank)
        (beside,) = spans_of(recording, rank, "side")
        assert [span.label for span in (computed, reduced, behind)] == ["computed", "reduced", "behind"]
        for before, after in pairwise((computed, beside, reduced, behind)):
            assert before.end_ns <= before.wait_until_ns <= after.issued_ns
        assert noted_elements(recording, rank, "reduced") == [2.0] * 4


async def waits_for_an_error(rank: Rank) -> None:
    with pytest.raises(ValueError, match="many"):
        await rank.synchronize(rank.compute(Kernel(kind="gemm"), int, "many"))


async def goes_on_after_an_error(rank: Rank) -> None:
    side = rank.stream("side")
    rank.after(side.compute(Kernel(kind="gemm"), int, "many"))
    await rank.compute(Kernel(kind="gemm"), int, label="behind")


async def forgets(rank: Rank) -> None:
    with rank.step(1):
        work = rank.all_reduce(torch.ones(1), label="x")
        if rank.rank != 2:
            await work


async def forgets_unnamed(rank: Rank) -> None:
    rank.compute(Kernel(kind="gemm"), double, 1)


async def forgets_a_coroutine(rank: Rank) -> None:
    side = rank.stream("side")
    side.spawn(reduces_on(side, 1.0))


async def raises(rank: Rank) -> None:
    if rank.rank == 1:
        raise ValueError("no such luck")
    await rank.barrier()


async def raises_in_a_kernel(rank: Rank) -> None:
    work = rank.compute(Kernel(kind="gemm"), int, "many")
    try:
        await work
    except ValueError:
        return
    raise AssertionError("what a kernel raises is raised where it is awaited")


async def raises_aside(rank: Rank) -> None:
    side = rank.stream("side")
    work = side.spawn(breaks(side))
    with pytest.raises(ValueError, match="no such luck"):
        await work


async def breaks(rank: Rank) -> None:
    await rank.barrier()
    raise ValueError("no such luck")


async def gives_a_short_list(rank: Rank) -> None:
    await rank.all_to_all([torch.ones(1)], [torch.ones(1)])


async def takes_a_stream_twice(rank: Rank) -> None:
    rank.stream("side")
    rank.stream("side")


WRONG = [
    (forgets, 3, "rank 2: all_reduce 'x' on stream main in step 1 was issued but never awaited"),
    (forgets_unnamed, 1, "rank 0: compute 'gemm' on stream main was issued but never awaited"),
    (forgets_a_coroutine, 1, "rank 0: spawn 'reduces_on' on stream side was issued but never awaited"),
    (raises, 2, "rank 1 raised ValueError: no such luck"),
    (goes_on_after_an_error, 1, "rank 0 raised ValueError: invalid literal for int() with base 10: 'many'"),
    (
        gives_a_short_list,
        2,
        "rank 0: all_to_all: output_tensor_list has 1 tensors, expected the group's size 2",
    ),
    (takes_a_stream_twice, 1, "rank 0: stream: 'side' must be a new name; there are main, side"),
]


@pytest.mark.parametrize(("body", "ranks", "sentence"), WRONG, ids=[body.__name__ for body, _, _ in WRONG])
def test_a_wrong_program_is_one_sentence_that_names_the_rank(
    play: Play, body: object, ranks: int, sentence: str
) -> None:
    with pytest.raises(ProgramError) as caught:
        play(Script(body), 1, ranks)  # type: ignore[arg-type]
    assert re.sub(r" \(at \S+\.py:\d+\)(\n.*)*$", "", str(caught.value)) == sentence


@pytest.mark.parametrize(
    "body", [raises_in_a_kernel, raises_aside, waits_for_an_error], ids=["kernel", "coroutine", "host"]
)
def test_exceptions_of_works_are_raised_where_they_are_awaited(play: Play, body: object) -> None:
    play(Script(body), 1, 2)  # type: ignore[arg-type]
