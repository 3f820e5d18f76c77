"""Traces of several ranks: their clocks, groups and calls."""

from __future__ import annotations

from typing import Any

from reports.kineto import recording as kineto
from tests.reports.kineto.events import kernel, spans

BASE_NS = 1790857026000000000


def test_clocks_are_common_where_traces_say_when_they_began(trace):
    paths = [
        trace(kernel("a", 5, 1), name=f"rank{n}.json", baseTimeNanoseconds=BASE_NS + 1000 * n, host_name=f"h{n}")
        for n in (0, 1)
    ]
    found = kineto.read(paths, "r")
    assert [s.start_ns for s in spans(found, kind="compute")] == [0, 1000]
    assert found.notes == ("traces of 2 hosts: their clocks agree as well as the hosts kept them",)
    assert found.recording.info.hosts == ("h0", "h1")


def test_clocks_that_are_not_common_are_said(trace):
    paths = [trace(kernel("a", 5 + 90 * n, 1), name=f"rank{n}.json") for n in (0, 1)]
    found = kineto.read(paths, "r")
    assert [s.start_ns for s in spans(found, kind="compute")] == [0, 0]
    assert found.notes[0].startswith("clocks not aligned: ")


def test_ranks_of_a_larger_world_are_said(trace):
    path = trace(kernel("a", 5, 1), distributedInfo={"rank": 3, "world_size": 8})
    found = kineto.read([path], "r")
    assert spans(found, kind="step")[0].rank == 3
    assert found.notes == ("only rank 3 of a world of 8: the others' waiting and bytes are not in the run",)


def reduction(ts: float, ranks: str, name: str = "1", kind: str = "allreduce") -> dict[str, Any]:
    about: dict[str, Any] = {"Collective name": kind, "Process Group Name": name, "Process Group Ranks": ranks}
    return kernel("ncclDevKernel_AllReduce_Sum_f32", ts, 1, **about)


def test_groups_of_one_name_are_told_apart_by_their_ranks(trace):
    paths = [trace(reduction(1, f"[{n}, 9]"), name=f"rank{n}.json", baseTimeNanoseconds=BASE_NS) for n in (0, 1)]
    assert [s.group for s in kineto.read(paths, "r").recording.spans if s.kind != "step"] == ["1 [0, 9]", "1 [1, 9]"]


def test_calls_that_members_count_differently_are_not_linked(trace):
    paths = [
        trace(*(reduction(10 * at, "[0, 1]") for at in range(2 + n)), name=f"rank{n}.json", baseTimeNanoseconds=BASE_NS)
        for n in (0, 1)
    ]
    found = kineto.read(paths, "r")
    assert {s.call for s in spans(found, kind="all_reduce")} == {-1}
    assert found.notes == (
        "group 1: not as many calls on all ranks (2 on rank 0, 3 on rank 1); they are not linked",
    )  # fmt: skip


def test_a_send_is_no_call_and_brings_nothing_back(trace):
    about: dict[str, Any] = {"In msg nelems": 8, "Out msg nelems": 8, "dtype": "Half", "Process Group Name": "0"}
    path = trace(kernel("ncclDevKernel_SendRecv", 0, 1, **(about | {"Collective name": "send"})))
    (sent,) = spans(kineto.read([path], "r"), kind="send")
    assert (sent.call, sent.bytes_in, sent.bytes_out, sent.bytes_sent) == (-1, 16, 0, 16)
