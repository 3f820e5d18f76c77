"""Simulated Chakra traces: durations, dependencies and streams of nodes, their collectives and messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scenarios.config.load import load
from scenarios.seam.errors import ProgramError, ScenarioError
from scenarios.seam.trace import Recording, Span
from scenarios.workloads.build import build
from scenarios.workloads.chakra.nodes import (
    COMM_TYPES,
    COMPUTE,
    METADATA,
    RECV,
    SEND,
    TraceNode,
)
from sim.run import simulate
from tests.scenarios.workloads.chakra.test_traces import call, message, work, write_trace_files


def play(path: Path, **overrides: object) -> Recording:
    scenario = load(path, overrides)
    return simulate(scenario, build(scenario))


def by_label(recording: Recording, rank: int = 0, step: int = 0) -> dict[str, Span]:
    return {span.label: span for span in recording.spans if (span.rank, span.step) == (rank, step)}


def ns(span: Span) -> int:
    return span.end_ns - span.start_ns


def name_node(name: str, node: TraceNode) -> TraceNode:
    return replace(node, name=name)


def test_nodes_begin_when_their_dependencies_end(tmp_path: Path) -> None:
    """Independent nodes of two streams overlap."""
    first, second = name_node("first", replace(work(1), duration_ns=5000)), name_node("second", work(2, 1))
    beside = TraceNode(id=3, name="beside", type=COMPUTE, duration_ns=7000, attributes={"stream": 7})
    joint = TraceNode(id=4, name="joint", type=METADATA, deps=(2, 3))
    last = name_node("last", work(5, 4))
    found = by_label(play(write_trace_files(tmp_path, *[[first, second, beside, joint, last]] * 2)))
    assert {label: (span.start_ns, span.end_ns) for label, span in found.items() if span.kind == "compute"} == {
        **{"first": (0, 5000), "second": (5000, 6000), "beside": (0, 7000), "last": (7000, 8000)}
    }
    assert ns(found["step 0"]) == 8000


def test_each_step_runs_all_nodes(tmp_path: Path) -> None:
    recording = play(write_trace_files(tmp_path, *[[work(1), call()]] * 2, keys="[run]\nsteps = 3"))
    steps = [ns(span) for span in recording.spans if span.kind == "step"]
    assert len(steps) == 6
    assert len(set(steps)) == 1


def test_steps_that_take_longer_than_a_run_folder_holds_are_one_sentence(tmp_path: Path) -> None:
    path = write_trace_files(tmp_path, [replace(work(1), duration_ns=1 << 61)], [work(1)])
    with pytest.raises(ProgramError, match=r"^simulated time 146 years: expected 73 at most$"):
        play(path, steps=2)


@pytest.mark.parametrize(("compute", "priced"), [("duration", {"priced"}), ("roofline", {"both", "priced"})])
def test_a_computation_takes_its_duration_or_the_gpus_time(tmp_path: Path, compute: str, priced: set[str]) -> None:
    ops = {"num_ops": 10**11, "tensor_size": 10**8}
    nodes = [
        TraceNode(id=1, name="both", type=COMPUTE, duration_ns=1234, attributes=ops),
        TraceNode(id=2, name="priced", type=COMPUTE, attributes=ops),
        TraceNode(id=3, name="timed", type=COMPUTE, duration_ns=1234),
    ]
    path = write_trace_files(tmp_path, nodes, nodes, keys=f"compute = '{compute}'\ndtype = 'bfloat16'")
    found, gpu = by_label(play(path)), load(path).cluster.host.gpu
    rate = gpu.flops_per_s["bfloat16"] * gpu.efficiency["default"]
    for node in nodes:
        assert ns(found[node.name]) == pytest.approx(1e9 * 1e11 / rate if node.name in priced else 1234, rel=0.1)


# By op of program 'collective': Chakra's type of the call, and the divisor of its size for one rank's input.
OPS = {"all_reduce": (0, 1), "all_gather": (2, 4), "reduce_scatter": (7, 1), "broadcast": (5, 1), "all_to_all": (6, 1)}


@pytest.mark.parametrize("op", OPS)
def test_a_call_takes_as_long_as_in_another_program(tmp_path: Path, op: str) -> None:
    """ASTRA-sim counts a rank's input: its share of an all-gather."""
    kind, parts = OPS[op]
    size = 1 << 20
    node = call(comm_type=kind, comm_size=size // parts, comm_dtype="float32")
    path = write_trace_files(tmp_path, *[[name_node("call", node)]] * 4)
    path.write_text(path.read_text().replace("gpus_per_host = 2", "gpus_per_host = 4"))
    own = load(path)
    alone = tmp_path / "alone.toml"
    table = f'[collective]\nop = "{op}"\nsize = "{size} B"\n[launching]\n'
    alone.write_text(own_cluster(path).replace("chakra", "collective") + table.replace("[launching]\n", ""))
    scenario = load(alone, {"steps": 1, "payload": "sizes", "ranks": "each"})
    other = simulate(scenario, build(scenario.with_workload(launching=own.workload.launching)))
    (expected,) = {ns(span) for span in other.spans if span.rank == 3 and span.call == 1}
    assert ns(by_label(play(path), rank=3)["call"]) == pytest.approx(expected, rel=0.02)


def own_cluster(path: Path) -> str:
    return path.read_text().partition("[chakra]")[0]


def test_every_type_of_call_is_simulated(tmp_path: Path) -> None:
    nodes = [name_node(kind, call(2 + number, comm_type=number)) for number, kind in enumerate(COMM_TYPES)]
    found = by_label(play(write_trace_files(tmp_path, *[nodes] * 2)))
    assert [found[kind].bytes_in for kind in COMM_TYPES[:9]] == [64] * 4 + [128] + [64] * 4
    assert found["ALL_GATHER"].bytes_out == 128
    assert found["BARRIER"].kind == "barrier"


def test_groups_come_from_the_file_or_from_dimensions(tmp_path: Path) -> None:
    first = [name_node("pair", call(pg_name=str(rank // 2))) for rank in range(4)]
    dims = {"inside": [1, 0], "across": [0, 1], "all": [1, 1]}
    ranks = [[each, *_dims(dims)] for each in first]
    groups: dict[str, Any] = {"0": [0, 1], "1": [2, 3]}
    path = write_trace_files(tmp_path, *ranks, **groups)
    path.write_text(path.read_text().replace("hosts = 1", "hosts = 2"))
    spans = [one for one in play(path).spans if one.step == 0]
    members = {label: Counter(one.group for one in spans if one.label == label) for label in (*dims, "pair")}
    assert {label: sorted(each.values()) for label, each in members.items()} == {
        **{"inside": [2, 2], "across": [2, 2], "all": [4], "pair": [2, 2]}
    }


def _dims(dims: dict[str, list[int]]) -> list[TraceNode]:
    found = []
    for number, (label, each) in enumerate(dims.items()):
        found.append(name_node(label, call(10 + number, involved_dim=each)))
    return found


def test_a_call_without_a_root_reads_none(tmp_path: Path) -> None:
    assert (
        by_label(play(write_trace_files(tmp_path, *[[name_node("call", call(comm_src=-1))]] * 2)))["call"].bytes_in
        == 64
    )


def test_two_groups_of_the_same_ranks_need_no_common_order(tmp_path: Path) -> None:
    one, two = name_node("one", call(1, pg_name="a")), name_node("two", call(2, comm_size=128))
    recording = play(write_trace_files(tmp_path, [one, two], [two, replace(one, id=3)], a=[0, 1]))
    assert {(span.label, span.bytes_in) for span in recording.spans if span.group} == {("one", 64), ("two", 128)}


def test_messages_reach_their_peer(tmp_path: Path) -> None:
    sends = [work(1), replace(message(SEND, 1), deps=(1,)), name_node("next", work(6, 1))]
    recording = play(
        write_trace_files(tmp_path, sends, [name_node("message", message(RECV, 0)), name_node("after", work(7, 5))])
    )
    arrived = by_label(recording, 1)["message"]
    assert (arrived.bytes_out, arrived.start_ns) == (64, 0)
    assert arrived.end_ns > 1000
    assert by_label(recording, 1)["after"].start_ns == arrived.end_ns
    assert by_label(recording)["next"].start_ns == 1000  # overlaps with the send


def test_messages_of_different_peers_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """A reply waits for its message, but not for an earlier message to a third rank."""

    def node(id_: int, kind: int, peer: int, *deps: int) -> TraceNode:
        return replace(message(kind, peer), id=id_, deps=deps, start_ns=1000 * id_)

    first = [node(1, RECV, 1), node(2, SEND, 1, 1), node(3, SEND, 2)]
    second = [node(1, RECV, 2), node(2, SEND, 0, 1), node(3, RECV, 0)]
    third = [node(1, RECV, 0), node(2, SEND, 1, 1)]
    path = write_trace_files(tmp_path, first, second, third, [work(1)])
    path.write_text(path.read_text().replace("hosts = 1", "hosts = 2"))
    assert Counter(span.kind for span in play(path).spans if span.step == 0)["send"] == 4


def test_streams_named_as_twinsteps_stay_separate(tmp_path: Path) -> None:
    named_so = ["messages 0", "_calls", "host", "calls 0"]
    works = [
        TraceNode(id=2 + each, name=name, type=COMPUTE, duration_ns=5000, attributes={"stream": name})
        for each, name in enumerate(named_so)
    ]
    on_host = TraceNode(id=9, name="on the host", type=COMPUTE, duration_ns=5000, attributes={"is_cpu_op": True})
    found = play(write_trace_files(tmp_path, *[[*works, on_host, name_node("call", call(20))]] * 2)).spans
    streams = {span.label: (span.stream, span.start_ns) for span in found if span.rank == 0 and span.step == 0}
    assert {name: streams[name] for name in named_so} == {name: (name, 0) for name in named_so}
    assert [streams["on the host"], streams["call"][0]] == [("__host", 0), "__calls 0"]


def test_members_of_a_gather_may_give_different_sizes(tmp_path: Path) -> None:
    ranks = [[name_node("gather", call(comm_type=2, comm_size=10 + 3 * rank))] for rank in range(2)]
    found = [by_label(play(write_trace_files(tmp_path, *ranks)), rank)["gather"] for rank in range(2)]
    assert [(one.kind, one.bytes_in, one.bytes_out) for one in found] == [
        ("all_gather", 10, 23),
        ("all_gather", 13, 23),
    ]


def test_a_call_is_split_by_its_attribute(tmp_path: Path) -> None:
    """Without Twinstep's attribute a call is split evenly, as in ASTRA-sim."""
    exchange = [name_node("exchange", call(comm_type=6, comm_size=10, comm_splits=each)) for each in ([1, 9], [4, 6])]
    scatter = name_node("scatter", call(3, comm_type=7, comm_size=10, comm_splits=[3, 7]))
    recording = play(write_trace_files(tmp_path, *[[each, scatter] for each in exchange]))
    found = [by_label(recording, rank) for rank in range(2)]
    assert [(one["exchange"].bytes_in, one["exchange"].bytes_out) for one in found] == [(10, 5), (10, 15)]
    assert [(one["scatter"].kind, one["scatter"].bytes_out) for one in found] == [
        ("reduce_scatter", 3),
        ("reduce_scatter", 7),
    ]


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        ([1, 2], "expected bytes for each member, 10 in all"),
        ([5, 3, 2], "comm_splits: expected 2 of them, one for each"),
    ],
)
def test_splits_that_do_not_fit_are_named(tmp_path: Path, splits: list[int], expected: str) -> None:
    path = write_trace_files(tmp_path, *[[call(comm_type=6, comm_size=10, comm_splits=splits)]] * 2)
    with pytest.raises(ScenarioError, match=expected):
        build(load(path))


def test_uneven_exchanges_fit(tmp_path: Path) -> None:
    ranks = [[name_node("exchange", call(comm_type=6, comm_size=10 + 3 * rank))] for rank in range(2)]
    recording = play(write_trace_files(tmp_path, *ranks))
    sizes = [(one.bytes_in, one.bytes_out) for one in (by_label(recording, rank)["exchange"] for rank in range(2))]
    assert sizes == [(10, 5 + 7), (13, 5 + 6)]
