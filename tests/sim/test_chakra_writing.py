"""Runs written as Chakra traces: the traces make the same step when they are simulated."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from reports.errors import ReportError
from reports.run import Run
from reports.store import run_folder as store
from scenarios.config.load import load
from scenarios.config.scenario import Scenario
from scenarios.seam.kernel import elementwise
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording, Span, Thinned
from scenarios.workloads.build import build
from scenarios.workloads.chakra.nodes import (
    COLLECTIVE,
    METADATA,
    RECV,
    SEND,
    SPLITS,
    TraceNode,
    read,
)
from scenarios.workloads.recording.recorded import Recorded
from scenarios.workloads.recording.recorder import ProgramRecorder
from sim.run import play as play_program
from sim.run import simulate
from tests.commands import command
from tests.scenarios.workloads.chakra.test_traces import CLUSTER, call, message, work, write_trace_files
from tests.sim.test_chakra import by_label, ns, play
from tests.small import Play
from twinstep.reporting.chakra import GROUPS, write_traces


def record(scenario: Scenario, program: Program) -> tuple[Recording, Recorded]:
    """Return a run with its spans, and the recording of the program."""
    recorder, spans = ProgramRecorder(scenario), list[Span]()
    run = play_program(scenario, program, spans.extend, recorder=recorder)
    run.spans = spans
    return run, recorder.make_recording()


def again(scenario: Scenario, traces: Path) -> Recording:
    """Simulate traces on the cluster and with the library of a scenario."""
    path = traces.parent / "again.toml"
    cluster = scenario.cluster
    keys = f"hosts = {cluster.hosts}\ngpus_per_host = {cluster.host.gpus}\n"
    path.write_text(
        f'program = "chakra"\n[run]\nlibrary = "{scenario.run.library}"\nsteps = 1\n'
        f'[cluster]\nprofile = "{cluster.profile}"\n{keys}'
        f'[chakra]\ntraces = "{traces}"\ngroups = "{traces / GROUPS}"\n'
    )
    played = replace(load(path), cluster=cluster)
    return simulate(played, build(played))


def calls(recording: Recording, step: int) -> Counter[tuple[Any, ...]]:
    return Counter((one.rank, one.label, one.bytes_in) for one in recording.spans if one.step == step and one.group)


def groups(recording: Recording, step: int) -> Counter[tuple[Any, ...]]:
    """Return the number of calls of each set of ranks."""
    members = dict[tuple[str, int], list[int]]()
    for one in sorted((one for one in recording.spans if one.step == step and one.group), key=lambda one: one.rank):
        members.setdefault((one.group, one.call), []).append(one.rank)
    return Counter(map(tuple, members.values()))


def test_an_idle_rank_is_written(tmp_path: Path) -> None:
    run = play(write_trace_files(tmp_path, [work(1)], [TraceNode(id=1, type=METADATA)]))
    write_traces(Run.of(run), tmp_path / "traces", 0)
    assert [each.type for rank in range(2) for each in read(tmp_path / "traces" / f"step.{rank}.et")] == [4, METADATA]


def test_a_rank_without_the_step_has_a_trace(tmp_path: Path) -> None:
    run = play(write_trace_files(tmp_path, [work(1)], [work(1)]))
    run.spans = [each for each in run.spans if each.rank == 0]
    write_traces(Run.of(run), tmp_path / "traces", 0)
    assert [each.type for each in read(tmp_path / "traces" / "step.1.et")] == [METADATA]


def test_calls_of_other_dtypes_are_simulated_as_bytes(tmp_path: Path) -> None:
    run = play(write_trace_files(tmp_path, *[[call(comm_type=2)]] * 2))
    run.spans = [replace(each, dtype="float8_e4m3fn") if each.group else each for each in run.spans]
    write_traces(Run.of(run), tmp_path / "traces", 0)
    assert calls(again(load(tmp_path / "a.toml"), tmp_path / "traces"), 0) == calls(run, 0)


@pytest.mark.parametrize(("kind", "end"), [(1, "comm_dst"), (3, "comm_dst"), (4, "comm_src"), (5, "comm_src")])
def test_a_call_with_a_root_is_written_with_its_size_and_root(tmp_path: Path, kind: int, end: str) -> None:
    recording = play(write_trace_files(tmp_path, *[[call(comm_type=kind, **{end: 1})]] * 2))
    write_traces(Run.of(recording), tmp_path / "traces", 0)
    for rank in range(2):
        (found,) = (one for one in read(tmp_path / "traces" / f"step.{rank}.et") if one.type == COLLECTIVE)
        assert (found.number("comm_size"), found.attributes[end]) == (64, 1)


RECORDED = ["powersgd_4x2_3g", "criteo_dlrm_2x4", "examples/experts.toml", "examples/pipelined.toml"]


@pytest.mark.parametrize(
    ("name", "off"), [("powersgd_4x2_3g", 0), ("criteo_dlrm_2x4", 0.005), *((name, -1) for name in RECORDED)]
)
def test_a_written_run_makes_the_same_step_when_it_is_simulated(tmp_path: Path, name: str, off: float) -> None:
    """`off` is the largest relative error of a run without a recording: the splits of uneven exchanges are unknown.

    -1: the run has a recording, and the step is the same to the ns.
    """
    keys = {"steps": 3, "ranks": "each", "payload": "sizes"}
    scenario = load(name, {**keys, "profile": "dgx_h100"} if name.startswith("examples") else keys)
    run, recorded = record(scenario, build(scenario))
    step = write_traces(Run.of(run), tmp_path / "traces", 2, recorded if off < 0 else None)
    found = again(scenario, tmp_path / "traces")
    assert calls(found, 0) == calls(run, step)
    assert groups(found, 0) == groups(run, step)
    for rank in range(scenario.cluster.world_size):
        expected, took = (ns(by_label(each, rank, at)[f"step {at}"]) for each, at in ((run, step), (found, 0)))
        assert took == pytest.approx(expected, rel=max(off, 0), abs=0)


def test_messages_of_a_script_are_written_from_its_recording(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "scripts" / "pipeline_parallel.py"
    words = ("--profile", "dgx_h100", "--hosts", 1, "--gpus-per-host", 2, "--steps", 2, "--quiet")
    assert command("sim", *words, "--out", tmp_path / "run", script).returncode == 0
    done = command("reports", "chakra", tmp_path / "run", "--step", 1, "--out", tmp_path / "traces")
    assert (done.returncode, done.stderr) == (0, "")
    ends = {
        rank: Counter((each.type, _end(each)) for each in read(tmp_path / "traces" / f"step.{rank}.et"))
        for rank in range(2)
    }
    assert ends[0][SEND, 1] == ends[1][RECV, 0] > 0
    assert ends[1][SEND, 0] == ends[0][RECV, 1] > 0
    path = tmp_path / "again.toml"
    groups = f'groups = "{tmp_path / "traces" / GROUPS}"'
    path.write_text(f'{CLUSTER}traces = "traces"\n{groups}\n')
    # Ranks begin a script's step at different times, which are not in its traces.
    run, found = store.load(tmp_path / "run"), play(path, steps=1)
    rows: list[Any] = [one for one in run.spans.itertuples() if (one.kind, one.step) == ("step", 1)]
    apart_ns = abs(rows[0].start_ns - rows[1].start_ns)
    for one in rows:
        took_ns = one.end_ns - one.start_ns
        assert abs(ns(by_label(found, one.rank)["step 0"]) - took_ns) <= apart_ns + 0.002 * took_ns


def _end(node: TraceNode) -> object:
    return node.attributes.get("comm_dst", node.attributes.get("comm_src"))


async def with_messages(rank: Rank) -> None:
    """Send around a ring and back, gather and scatter unevenly, on two streams."""
    side, size = rank.stream("messages 0"), rank.world_size
    right, left = (rank.rank + 1) % size, (rank.rank - 1) % size

    def tensor(elements: int) -> Tensor:
        return torch.empty(elements, dtype=torch.bfloat16, device=rank.device)

    with rank.step(0):
        first = rank.compute(elementwise(100_000 * (1 + rank.rank)), list, label="first")
        both = [
            rank.send(tensor(1000 + rank.rank), right, label="on"),
            rank.recv(tensor(1000 + left), left, label="in"),
        ]
        side.after(first)
        beside = side.compute(elementwise(300_000), list, label="beside")
        for work in both:
            await work
        parts = [tensor(4096 * (1 + place)) for place in range(size)]
        gathered = side.all_gather(parts, tensor(4096 * (1 + rank.rank)), label="gather")
        back: list[Any] = [rank.send(tensor(50), left, label="back"), rank.recv(tensor(50), right, label="home")]
        for work in (*back, gathered, beside):
            await work
        await rank.reduce_scatter(tensor(4096 * (1 + rank.rank)), parts, label="scatter")
        splits = [1000 * (1 + (rank.rank + peer) % size) for peer in range(size)]
        await rank.all_to_all_single(tensor(sum(splits)), tensor(sum(splits)), splits, splits, label="exchange")


def test_messages_and_uneven_calls_are_written_from_the_recording(tmp_path: Path) -> None:
    keys = "hosts = 2\ngpus_per_host = 2\n[collective]\nop = 'all_reduce'\nsize = '1 MB'\n"
    (tmp_path / "any.toml").write_text(f'program = "collective"\n[cluster]\nprofile = "dgx_h100"\n{keys}')
    scenario = load(tmp_path / "any.toml", {"steps": 1, "payload": "sizes"})
    run, recorded = record(scenario, Play(with_messages))
    write_traces(Run.of(run), tmp_path / "traces", 0, recorded)
    found = again(scenario, tmp_path / "traces")
    assert _call(found) == _call(run)
    for rank in range(4):
        expected, took = (ns(by_label(each, rank)["step 0"]) for each in (run, found))
        assert took == expected
    sends = [each for each in read(tmp_path / "traces" / "step.1.et") if each.type == SEND]
    assert [each.attributes["comm_dst"] for each in sends] == [2, 0]


@pytest.mark.parametrize(
    "damage",
    [
        {"ranks": [0]},
        {"lines": [["issue", "send", 0, "", 0, [], [], {}, False, ""]], "sequences": [[0]] * 2},
        {"lines": [["issue", "all_to_all_single", 9, "", 9, [], [], {}, False, ""]], "sequences": [[0]] * 2},
        {"program": "script", "lines": [["issue", "send", 0, "", 0, [[[1], "x", False]], [], {}, False, ""]]},
    ],
    ids=["few ranks", "no other end", "no stream", "no dtype"],
)
def test_a_recording_that_does_not_fit_its_run_is_one_sentence(tmp_path: Path, damage: dict[str, Any]) -> None:
    scenario = load(write_trace_files(tmp_path, *[[call()], [call()]]))
    run, recorded = record(scenario, build(scenario))
    with pytest.raises(
        ReportError, match=r"^recording.json.gz: expected the recording of the run, as it was written: "
    ):
        write_traces(Run.of(run), tmp_path / "traces", 0, replace(recorded, **damage))
    assert not (tmp_path / "traces").exists()


def _call(recording: Recording) -> set[tuple[Any, ...]]:
    found = (each for each in recording.spans if each.group and each.step == 0)
    return {(each.rank, each.label, each.kind, each.bytes_in, each.bytes_out) for each in found}


def test_the_command_writes_a_trace_of_each_rank(tmp_path: Path) -> None:
    words = ("--steps", 2, "--ranks", "each", "--record", "--out", tmp_path / "run")
    assert command("sim", "all_to_all_4x2", *words).returncode == 0
    done = command("reports", "chakra", tmp_path / "run", "--step", 1, "--out", tmp_path / "traces")
    assert (done.returncode, done.stdout) == (0, f"step 1 as execution traces: {tmp_path / 'traces'}\n")
    assert len([*(tmp_path / "traces").glob("step.*.et")]) == 8
    assert any(SPLITS in node.attributes for node in read(tmp_path / "traces" / "step.7.et"))
    again = command("reports", "chakra", tmp_path / "run", "--out", tmp_path / "traces")
    assert again.returncode == 2


def test_runs_that_cannot_be_written_are_one_sentence(tmp_path: Path) -> None:
    folded = load("powersgd_4x2_3g", {"ranks": "alike", "fidelity": "links", "steps": 2})
    with pytest.raises(ReportError, match=r"^some ranks of the run stand for others; expected one of run"):
        write_traces(Run.of(simulate(folded, build(folded))), tmp_path / "folded", None)
    alike = load("all_to_all_4x2", {"ranks": "each", "steps": 1})
    run = simulate(alike, build(alike))
    run.info = replace(run.info, thinned=Thinned(ranks=(0,), steps=None, left_out=1, phases=()))
    with pytest.raises(ReportError, match=r"^the run kept the spans of some ranks alone; expected one with --keep-r"):
        write_traces(Run.of(run), tmp_path / "thinned", None)
    sends = play(write_trace_files(tmp_path, [message(SEND, 1)], [message(RECV, 0)]))
    with pytest.raises(ReportError, match=r"^the step has recv and send, and a run does not keep to whom"):
        write_traces(Run.of(sends), tmp_path / "sends", 0)
