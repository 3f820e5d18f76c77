"""Bytes that the kernel counted on each directed pair of gloo ranks: the simulator's schedules send as many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from scenarios.compression.batched import square_side
from scenarios.seam.calls import Call
from sim.gloo import algorithms as gloo
from sim.gloo.script import totals
from tests.sim import collective_calls as make
from tests.vectors.fields import COUNT, SIZE, TEXT, Each, Fields, Is, Maybe, VectorError
from tests.vectors.files import Case, Check, File, Format

# Of an operation whose name is followed by elements, rank and hook.
STEPS = ("psgd_step", "vanilla_step")
HOOKS = ("batched_powerSGD_hook", "powerSGD_hook")


def is_pair(call: Any) -> bool:
    return isinstance(call, list) and [type(item) for item in call] == [int, int] and min(call) >= 0


RECORD = Fields(
    {
        "world": SIZE,
        "op": Is(
            "[operation, elements], or [operation, elements, rank, hook]",
            lambda op: (
                isinstance(op, list)
                and [type(item) for item in op] in ([str, int], [str, int, int, str])
                and all(item >= 0 for item in op if type(item) is int)
            ),
        ),
        "tcp_bytes": Each(Each(COUNT)),
        "allreduce_calls": Maybe(Each(Is("[elements, bytes]", is_pair))),
    },
    {"id": TEXT},
)


def uneven(ranks: int, element_bytes: int) -> list[Call]:
    """The recorder's own sizes: 100 (i+1) (j+1) elements from i to j."""
    return make.all_to_all([[100 * (i + 1) * (j + 1) * element_bytes for j in range(ranks)] for i in range(ranks)])


# By operation: its calls for elements, ranks, and bytes an element.
OPS: dict[str, Callable[[str, int, int, int], list[Call]]] = {
    "all_reduce": lambda op, count, ranks, size: make.reduction(op, count * size, ranks),
    "all_gather": lambda op, count, ranks, size: make.reduction(op, count * size, ranks),
    "all_gather_into_tensor": lambda op, count, ranks, size: make.reduction(op, count * size, ranks),
    "reduce_scatter_tensor": lambda op, count, ranks, size: make.reduction(op, count * size * ranks, ranks),
    "reduce": lambda op, count, ranks, size: make.reduction(op, count * size, ranks, root=0),
    "broadcast": lambda _, count, ranks, size: make.broadcast(count * size, ranks, 0),
    "gather": lambda op, count, ranks, size: make.make_rooted(op, count * size, ranks, 0),
    "scatter": lambda op, count, ranks, size: make.make_rooted(op, count * size, ranks, 0),
    "all_to_all": lambda op, count, ranks, size: make.all_to_all([[count * size] * ranks] * ranks, op),
    "all_to_all_single": lambda op, count, ranks, size: make.all_to_all([[count * size] * ranks] * ranks, op),
    "all_to_all_zero": lambda _op, _count, ranks, _size: make.all_to_all([[0] * ranks] * ranks),
    "all_to_all_v": lambda _op, _count, ranks, size: uneven(ranks, size),
    "barrier": lambda _op, _count, ranks, _size: make.barrier(ranks),
}
# Their sizes are their own.
WITHOUT_COUNT = ("all_to_all_v", "barrier")


def calls_of(record: Case, element_bytes: int, where: str) -> list[list[Call]]:
    """The collectives behind one record: most have one, a PowerSGD step has several all_reduces."""
    op, count, *more = record["op"]
    recorded = record["allreduce_calls"]
    if op in STEPS and recorded is not None and more and more[1] in HOOKS:
        check_step(op, count, more[0], more[1], [elements for elements, _ in recorded], where)
        for elements, size in recorded:
            if size != elements * element_bytes:
                raise VectorError(f"{where}.allreduce_calls: {elements} elements of {size} bytes")
        return [make.reduction("all_reduce", size, record["world"]) for _, size in recorded]
    if op in WITHOUT_COUNT and count:
        raise VectorError(f"{where}.op = {record['op']!r}: expected 0 elements of {op}")
    if op in OPS and recorded is None and not more:
        return [OPS[op](op, count, record["world"], element_bytes)]
    known = f"{', '.join(OPS)}, or with allreduce_calls and one of the hooks {', '.join(HOOKS)}: {', '.join(STEPS)}"
    raise VectorError(f"{where}.op = {record['op']!r}: expected one of {known}")


def check_step(op: str, count: int, rank: int, hook: str, sent: list[int], where: str) -> None:
    """What a step of one bucket all-reduces; of the layerwise hook, whose shapes are not recorded, how often."""
    if op == "vanilla_step":
        fits, expected = sent == [count], f"[{count}]"
    elif hook == "batched_powerSGD_hook":
        side = square_side(count)
        fits, expected = sent == [side * rank] * 2, f"{[side * rank] * 2}"
    else:
        fits, expected = len(sent) == 3, "three calls"
    if not fits:
        raise VectorError(f"{where}.allreduce_calls: elements {sent}, expected {expected}")


def wire_bytes(calls: list[Call], ranks: range) -> list[list[int]]:
    """Bytes from each rank (row) to each (column), headers and notices included."""
    pairs = totals(gloo.schedule(calls)).pair_bytes
    return [[pairs.get((source, target), 0) for target in ranks] for source in ranks]


def check(record: Case, calls: list[list[Call]]) -> None:
    ranks = range(record["world"])
    sent = [wire_bytes(one, ranks) for one in calls]
    assert [[sum(rows[source][target] for rows in sent) for target in ranks] for source in ranks] == record["tcp_bytes"]


def replays(file: File, where: str, record: Case) -> Iterator[tuple[str, Check]]:
    RECORD.check(record, where)
    yield "", partial(check, record, calls_of(record, file.say("elem_bytes"), where))


FORMAT = Format(
    name="gloo_wire_bytes",
    cases="records",
    signature=frozenset({"op", "tcp_bytes"}),
    head={"what": TEXT, "torch": TEXT, "elem_bytes": SIZE},
    replays=replays,
)
