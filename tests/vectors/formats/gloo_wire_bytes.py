"""Bytes that the kernel counted on each directed pair of gloo ranks: the simulator's schedules send as many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from scenarios.calls import Call
from sim.collectives import gloo
from sim.collectives.schedule import wire_bytes
from tests.sim.collectives import calls as make
from tests.vectors.fields import COUNT, SIZE, TEXT, Each, Fields, Is, Maybe, VectorError
from tests.vectors.files import Case, Check, File, Format

# How many numbers and names follow an operation's own name.
STEPS = {"psgd_step": 3, "vanilla_step": 3}
RECORD = Fields(
    {
        "world": SIZE,
        "op": Is("[operation, elements, ...]", lambda op: isinstance(op, list) and len(op) > 1),
        "tcp_bytes": Each(Each(COUNT)),
        "allreduce_calls": Maybe(Each(Each(COUNT))),
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
    "gather": lambda op, count, ranks, size: make.rooted(op, count * size, ranks, 0),
    "scatter": lambda op, count, ranks, size: make.rooted(op, count * size, ranks, 0),
    "all_to_all": lambda op, count, ranks, size: make.all_to_all([[count * size] * ranks] * ranks, op),
    "all_to_all_single": lambda op, count, ranks, size: make.all_to_all([[count * size] * ranks] * ranks, op),
    "all_to_all_v": lambda _op, _count, ranks, size: uneven(ranks, size),
    "barrier": lambda _op, _count, ranks, _size: make.barrier(ranks),
}


def calls_of(record: Case, element_bytes: int, where: str) -> list[list[Call]]:
    """The collectives behind one record: most have one, a PowerSGD step has several all_reduces."""
    op, count, *more = record["op"]
    recorded = record["allreduce_calls"]
    if op in STEPS and recorded is not None and len(more) == STEPS[op] - 1:
        for elements, size in recorded:
            assert size == elements * element_bytes
        return [make.reduction("all_reduce", size, record["world"]) for _, size in recorded]
    if op in OPS and recorded is None and not more:
        return [OPS[op](op, count, record["world"], element_bytes)]
    known = ", ".join((*OPS, *STEPS))
    raise VectorError(f"{where}.op = {record['op']!r}: expected one of {known}, the latter with allreduce_calls")


def check(record: Case, calls: list[list[Call]]) -> None:
    ranks = range(record["world"])
    sent = [wire_bytes(gloo.schedule(one)) for one in calls]
    assert [[sum(rows[source][target] for rows in sent) for target in ranks] for source in ranks] == record["tcp_bytes"]


def replays(file: File, where: str, record: Case) -> Iterator[tuple[str, Check]]:
    RECORD.check(record, where)
    yield "", partial(check, record, calls_of(record, file.head["elem_bytes"], where))


FORMAT = Format(
    name="gloo_wire_bytes",
    cases="records",
    signature=frozenset({"op", "tcp_bytes"}),
    head={"what": TEXT, "torch": TEXT, "elem_bytes": SIZE},
    replays=replays,
)
