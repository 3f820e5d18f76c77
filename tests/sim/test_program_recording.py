"""Recordings of programs make the program's spans to the ns, also on links other than those of the recorded run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.config.host_costs import Eager
from scenarios.config.load import load
from scenarios.config.scenario import Launching, Scenario, ShardingType, UsersCode
from scenarios.seam.backend import Work
from scenarios.seam.kernel import elementwise
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording, Span
from scenarios.workloads.build import build
from scenarios.workloads.recording.config import RecordedRun, ReplayedProgram
from scenarios.workloads.recording.file import NAME, read
from scenarios.workloads.recording.recorder import ProgramRecorder
from sim.run import play
from tests.small import CORE, GPU, TCP, Play, change, cluster, recommender, scenario

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.toml") if path.stem != "study")


def play_program(
    made: Scenario, program: Program, recorder: ProgramRecorder | None = None
) -> tuple[list[Span], Recording]:
    spans: list[Span] = []
    found = play(made, program, spans.extend, recorder=recorder)
    return sorted(spans, key=lambda span: (span.rank, span.stream, span.sequence)), found


def again(made: Scenario, file: Path) -> Scenario:
    """Return a scenario with its program's recording in place of the program."""
    found = read(file, "program")
    workload = ReplayedProgram(
        options=RecordedRun(file=file, sha256="", uses_host_path=found.uses_host_path),
        launching=Launching(cuda_graphs=found.cuda_graphs),
    )
    return change(replace(made, program="recording"), payload="sizes", workload=workload)


def check(folder: Path, made: Scenario, *others: Scenario, program: Program | None = None) -> Path:
    """Record a program, and compare what its recording does with what it does, on all these clusters."""
    recorder = ProgramRecorder(made)
    spans, recording = play_program(made, program or build(made), recorder)
    file = folder / NAME
    file.write_bytes(recording.kept[NAME])
    for each in (made, *others):
        expected, whole = (spans, recording) if each is made else play_program(each, program or build(each))
        replayed = again(each, file)
        found, replay = play_program(replayed, build(replayed))
        assert found == expected
        assert repr(replay.metrics) == repr(whole.metrics)
        assert replay.links == whole.links
        shares = [one.share for one in whole.layers]  # sums over kernels that a replay has more than once
        assert [one.share for one in replay.layers] == pytest.approx(shares)
        assert [replace(one, share=1.0) for one in replay.layers] == [replace(one, share=1.0) for one in whole.layers]
    return file


TYPES: Sequence[ShardingType] = (
    *("data_parallel", "table_wise", "row_wise", "column_wise"),
    *("table_row_wise", "table_column_wise", "grid_shard"),
)
ALL = [f'name = "{each}"\nrows = 1000\nids_per_sample = 4\nsharding = ["{each}"]' for each in TYPES]
HOSTED = 'name = "hosted"\nrows = 100_000\nids_per_sample = 4\nsharding = ["row_wise"]\nkernel = "{}"\n'
COPIES = "data = {copies = true}\n"
RECOMMENDERS = {
    **{each: recommender(table) for each, table in zip(TYPES, ALL, strict=True)},
    "all types": recommender(*ALL),
    "copied": recommender(*ALL, more=f'{COPIES}pipeline.kind = "base"'),
    "sparse_dist": recommender(*ALL, more=f'{COPIES}pipeline.kind = "sparse_dist"'),
    "prefetched": recommender(*ALL, HOSTED.format("fused_uvm_caching"), more='pipeline.kind = "prefetch_sparse_dist"'),
    "semi_sync": recommender(*ALL, more='pipeline.kind = "semi_sync"'),
    "in host memory": recommender(*ALL, HOSTED.format("fused_uvm")),
    "2D": recommender(*ALL[:4], more="replication = {sharding_group_size = 2}"),
    "quantized": recommender(*ALL[1:4], more='qcomms = {forward_precision = "fp16", backward_precision = "bf16"}'),
    "compressed": recommender(*ALL[1:4], more='compression = {kind = "layerwise_powersgd", start_powerSGD_iter = 2}'),
    "CUDA graphs": recommender(*ALL, more="launching = {cuda_graphs = true}"),
    "on cores": recommender(*ALL, profile="emulated_200mbit"),
}
ON_CORES = {"cluster.nic.rate": "100 Mbit/s"}
ON_GPUS = {"cluster.nic.rate": "100 Gbit/s", "cluster.inside.rate": "150 GB/s"}


@pytest.mark.parametrize("name", RECOMMENDERS)
def test_a_recommender_and_its_recording_make_the_same_spans(name: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(RECOMMENDERS[name])
    check(tmp_path, load(path), load(path, ON_CORES if name == "on cores" else ON_GPUS))


READY = ("all_to_all_4x2", "criteo_small_2x2", "powersgd_4x2_3g", "twrw_2x2")


@pytest.mark.parametrize("name", [*READY, *map(str, EXAMPLES)], ids=lambda name: Path(name).stem)
@pytest.mark.parametrize("fidelity", ["flows", "links"])
def test_ready_scenarios_and_examples_are_recorded(name: str, fidelity: str, tmp_path: Path) -> None:
    made = load(name, {"ranks": "each", "fidelity": fidelity, "steps": 2})
    check(
        tmp_path, made, load(name, {"ranks": "each", "fidelity": fidelity, "steps": 2, "cluster.nic.latency": "1 ms"})
    )


def test_values_that_decide_sizes_are_recorded_as_sizes(tmp_path: Path) -> None:
    made = load("twrw_2x2", {"payload": "values"})
    file = check(tmp_path, made)
    assert len(read(file, "program").sequences) > 1  # the ids of each rank differ


def tensor(rank: Rank, *shape: int) -> torch.Tensor:
    return torch.empty(shape, device=rank.device)


async def every_verb(rank: Rank) -> None:
    """Call all verbs, each with its further arguments, on several groups."""
    pair = [rank.new_group(ranks) for ranks in ([0, 2], [1, 3])][rank.rank % 2]
    size, right, left = rank.world_size, (rank.rank + 1) % rank.world_size, (rank.rank - 1) % rank.world_size
    root = rank.rank == 1
    with rank.step(0):
        one, rows = tensor(rank, 4), tensor(rank, size, 4)
        lists = [tensor(rank, 4) for _ in range(size)]
        uneven = [tensor(rank, 1 + place) for place in range(size)]
        works: list[Work[Any]] = [
            rank.all_reduce(one, torch.distributed.ReduceOp.MAX, pair, label="in a pair", role="other"),
            rank.all_reduce_coalesced([tensor(rank, 4), tensor(rank, 3)]),
            rank.reduce_scatter_tensor(tensor(rank, 4), rows),
            rank.all_gather_into_tensor(tensor(rank, size, 4), one),
            rank.all_gather(uneven, tensor(rank, 1 + rank.rank)),
            rank.reduce_scatter(tensor(rank, 1 + rank.rank), [tensor(rank, 1 + place) for place in range(size)]),
            rank.all_gather_into_tensor_coalesced([tensor(rank, size, 4), tensor(rank, size)], [one, tensor(rank, 1)]),
            rank.all_gather_coalesced(
                [[tensor(rank, 4), tensor(rank, 2)] for _ in range(size)], [one, tensor(rank, 2)]
            ),
            rank.reduce_scatter_tensor_coalesced([tensor(rank, 4), tensor(rank, 1)], [rows, tensor(rank, size)]),
            rank.all_to_all(lists, [tensor(rank, 4) for _ in range(size)]),
            rank.all_to_all_single(tensor(rank, 1 + 2 + 3 + 0), tensor(rank, 6), *_uneven(rank)),
            rank.broadcast(one, 1),
            rank.reduce(one, 1),
            rank.gather(one, [tensor(rank, 4) for _ in range(size)] if root else None, 1),
            rank.scatter(one, [tensor(rank, 4) for _ in range(size)] if root else None, 1),
            rank.barrier(rank.cross),
            rank.monitored_barrier(),
            rank.send(tensor(rank, 7), right),
            rank.recv(tensor(rank, 7), left, label="from the left"),
        ]
        for work in works:
            await work
        rank.record("loss", 0.5)


def _uneven(rank: Rank) -> tuple[list[int], list[int]]:
    """Return the splits of an exchange in which rank n sends (n + m) % 4 rows to rank m."""
    splits = [(rank.rank + peer) % 4 for peer in range(4)]
    return splits, splits


async def with_streams(rank: Rank) -> None:
    """Compute on streams that wait for each other, with tasks that await works of the program's own coroutine."""
    side, copies = rank.stream("side"), rank.stream("copies")
    own = side.new_group([0, 1, 2, 3])
    for index in range(3):
        with rank.step(index):
            first = rank.compute(elementwise(1000 + 100 * rank.rank), list, label="first")
            side.after(first)
            sums = side.all_reduce(tensor(rank, 1000), group=own)

            async def task(works: Sequence[Work[Any]], index: int = index) -> int:
                for work in works:
                    await work
                await copies.compute(elementwise(50 * (index + rank.rank)), list)
                return index

            begun = copies.spawn(task([sums]))
            second = rank.compute(elementwise(10_000), list, label="second", role="dense")
            await rank.synchronize(second)
            assert await begun == index
            copied = copies.compute(elementwise(10), list)
            rank.after(copied)
            await rank.all_gather_into_tensor(tensor(rank, 40), tensor(rank, 10))
            rank.record("loss", 1.0 + index)


async def after_errors(rank: Rank) -> None:
    """Go on after errors in a step and in a computation for which the host waits."""
    for index in range(3):
        with pytest.raises(KeyError):
            await _failing_step(rank, index)
        await rank.compute(elementwise(1000), list)


async def _failing_step(rank: Rank, index: int) -> None:
    with rank.step(index):
        with pytest.raises(KeyError):
            await rank.synchronize(rank.compute(elementwise(50_000_000), {}.__getitem__, "key"))
        await rank.all_reduce(tensor(rank, 100))
        raise KeyError


def _slower(made: Scenario) -> Scenario:
    """Return the scenario with NICs of a tenth of the rate, and with far longer latencies."""
    host = made.cluster.host
    link = replace(host.nics.link, bytes_per_s=host.nics.link.bytes_per_s / 10, latency_ns=50_000)
    slow = replace(host, nics=replace(host.nics, link=link))
    return replace(made, cluster=replace(made.cluster, host=slow))


@pytest.mark.parametrize("function", [every_verb, with_streams, after_errors], ids=lambda function: function.__name__)
@pytest.mark.parametrize("payload", ["sizes", "values"])
@pytest.mark.parametrize("where", ["gloo", "nccl", "eager", "cores"])
def test_every_verb_and_stream_is_recorded(function: Any, payload: str, where: str, tmp_path: Path) -> None:
    gpu: dict[str, dict[str, Any]] = {"cores": {"gpu": CORE, "tcp": TCP}, "eager": {"gpu": replace(GPU, eager=Eager())}}
    on, library = cluster(**gpu.get(where, {})), "gloo" if where in ("gloo", "cores") else "nccl"
    made = scenario(on, payload=payload, library=library, options=None, steps=3)
    check(tmp_path, made, _slower(made), program=Play(function))


@dataclass(frozen=True)
class Drawn(Program):
    """A program of drawn calls: on the main stream, in tasks of two further streams, and waits for any of them."""

    calls: Sequence[tuple[str, int, int, Sequence[int]]]

    async def __call__(self, rank: Rank) -> None:
        streams = [rank.stream("one"), rank.stream("two")]
        left = list[tuple[Work[Any], bool]]()  # with whether it is a task
        for index in range(2):
            with rank.step(index):
                for kind, place, size, sizes in self.calls:
                    is_wait = kind in ("await", "after", "synchronize")
                    work, is_task = left.pop(place % len(left)) if left and is_wait else (None, False)
                    if kind == "task":
                        side = streams[place % 2]
                        left.append((side.spawn(_task(side, sizes)), True))
                    elif kind == "compute":
                        left.append((rank.compute(elementwise(size * (1 + rank.rank)), list, label="own"), False))
                    elif kind == "call":
                        left.append((rank.all_gather_into_tensor(tensor(rank, 4 * size), tensor(rank, size)), False))
                    elif work is None:
                        continue
                    elif kind == "await" or is_task:  # a stream that waits for a task of its own never goes on
                        await work
                    elif kind == "after":
                        [rank, *streams][size % 3].after(work)
                    else:
                        await rank.synchronize(work)
        for last, _ in left:
            await last


async def _task(side: Rank, sizes: Sequence[int]) -> None:
    for size in sizes:
        work = side.all_reduce(tensor(side, size))
        await side.compute(elementwise(size + side.rank), list)
        await work


CALLS = st.tuples(
    st.sampled_from(["compute", "call", "task", "await", "after", "synchronize"]),
    st.integers(0, 7),
    st.integers(1, 100_000),
    st.lists(st.integers(1, 100_000), max_size=3),
)


@settings(max_examples=60)
@given(st.lists(CALLS, min_size=1, max_size=12), st.sampled_from(["gpus", "graphs", "cores"]))
def test_drawn_programs_are_recorded(calls: list[tuple[str, int, int, list[int]]], where: str) -> None:
    on = cluster(gpu=CORE, tcp=TCP) if where == "cores" else cluster(gpu=replace(GPU, eager=Eager()))
    workload = UsersCode(options=None, launching=Launching(cuda_graphs=where == "graphs"))
    library = "gloo" if where == "cores" else "nccl"
    made = scenario(on, workload=workload, payload="sizes", library=library, fidelity="links")
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder), made, _slower(made), program=Drawn(calls))
