"""The contract of `Rank` in every world over time: spans, streams, waits, and a sentence for a wrong program."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import torch

from scenarios.seam.errors import ProgramError
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.sharding_kind import ShardingKind
from tests.contract.conftest import Play
from tests.contract.scripts import Script, note, noted_elements
from tests.contract.test_rank import spans_of
from tests.contract.worlds import WORLDS, scenario


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
    """A prediction needs the price at once; a real run prices kernels after its steps, so pricing adds no time."""
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
