"""`run.balanced`: each rank does the mean of all ranks' work, no more and no less in all, and every value arrives."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from scenarios.config.compute_times import ComputeTime, ComputeTimes
from scenarios.config.faults import Fault, GpuPart
from scenarios.config.load import load
from scenarios.seam.errors import ProgramError
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording, Span
from scenarios.workloads.build import build_simulation
from sim.run import simulate
from tests.small import Play, cluster, scenario

ARITHMETIC = Kernel(kind="test", flops=1e10)  # 1 ms on the tests' GPU
MEMORY = Kernel(kind="test", bytes_read=4e9)  # 4 ms
NOTHING = Kernel(kind="test", launches=0)


def simulate_ready(name: str, **changes: object) -> Recording:
    found = load(name, changes)
    return simulate(found, build_simulation(found))


def by_operation(spans: list[Span]) -> dict[object, list[Span]]:
    """Those that are the same in a balanced run, of all ranks."""
    seen: dict[object, int] = defaultdict(int)
    found: dict[object, list[Span]] = defaultdict(list)
    for span in spans:
        kind = span.stream, span.step, span.kind, span.label
        seen[span.rank, kind] += 1
        found[kind, seen[span.rank, kind]].append(span)
    return found


def work(span: Span) -> tuple[float, ...]:
    return span.flops, span.bytes_read, span.bytes_written, span.bytes_in, span.bytes_out, span.bytes_sent


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("criteo_dlrm_2x4", {"batch_size": 512}),
        ("criteo_small_2x2", {"payload": "values"}),
        ("twrw_2048x8", {"ranks": "alike"}),
    ],
)
def test_balanced_ranks_have_equal_work_and_an_unchanged_total(name: str, changes: dict[str, object]) -> None:
    own = simulate_ready(name, steps=1, **changes)
    balanced = simulate_ready(name, steps=1, **{"run.balanced": True}, **changes)
    before, after = by_operation(own.spans), by_operation(balanced.spans)
    assert list(after) == list(before)
    assert any(len({work(span) for span in spans}) > 1 for spans in before.values())
    for operation, spans in after.items():
        assert len({work(span) for span in spans}) == 1, operation
        for expected, found in zip(totals(before[operation]), totals(spans), strict=True):
            # Bytes of an exchange are rounded to elements for each pair of ranks.
            assert found == pytest.approx(expected, rel=1e-4, abs=4 * len(spans) ** 2), operation
    assert balanced.metrics == own.metrics


def totals(spans: list[Span]) -> list[float]:
    amounts = [[span.rank_count * amount for amount in work(span)] for span in spans]
    return [sum(of_all) for of_all in zip(*amounts, strict=True)]


def test_where_ranks_do_the_same_nothing_changes() -> None:
    own, balanced = (
        simulate_ready("all_reduce_4x1_200mbit", steps=2, **{"run.balanced": value}) for value in (False, True)
    )
    assert balanced.spans == own.spans


def play(body: Any, **changes: Any) -> dict[str, list[Span]]:
    found = scenario(cluster(2, 2), balanced=True, **changes)
    spans = defaultdict(list)
    for span in simulate(found, Play(body)).spans:
        spans[span.label].append(span)
    return spans


@pytest.mark.parametrize("library", ["gloo", "nccl"])
def test_a_pair_sends_what_pairs_like_it_send_and_all_values_arrive(library: str) -> None:
    """To itself, within hosts and between them: bytes stay on links of their kind."""
    splits = torch.tensor([[1, 2, 3, 4], [8, 7, 6, 5], [0, 0, 0, 0], [9, 0, 0, 1]])

    async def body(rank: Rank) -> None:
        gives, gets = splits[rank.rank].tolist(), splits[:, rank.rank].tolist()
        output = torch.zeros(sum(gets))
        await rank.all_to_all_single(output, torch.full((sum(gives),), float(rank.rank)), gets, gives, label="x")
        assert output.tolist() == [float(source) for source, count in enumerate(gets) for _ in range(count)]

    (itself, near, far) = (round(total / pairs) for total, pairs in ((9, 4), (10, 4), (27, 8)))
    spans = play(body, library=library)["x"]
    assert [span.bytes_in for span in spans] == [4 * (itself + near + 2 * far)] * 4
    assert [span.bytes_sent for span in spans] == [4 * (near + 2 * far)] * 4


@pytest.mark.parametrize(("op", "each"), [("reduce_scatter_tensor", 2), ("all_gather_into_tensor", 2)])
def test_groups_of_one_size_share_what_they_send(op: str, each: int) -> None:
    async def body(rank: Rank) -> None:
        share, whole = (torch.ones(elements * (rank.host + 1)) for elements in (8, 16))
        tensors = (share, whole) if op == "reduce_scatter_tensor" else (whole, share)
        await getattr(rank, op)(*tensors, group=rank.intra, label="x")

    spans = play(body, library="nccl")["x"]
    assert {min(span.bytes_in, span.bytes_out) for span in spans} == {4 * 12}
    assert {max(span.bytes_in, span.bytes_out) for span in spans} == {each * 4 * 12}


def test_a_message_and_a_broadcast_stay_as_they_are() -> None:
    async def body(rank: Rank) -> None:
        tensor = torch.ones(8)
        await rank.broadcast(tensor, src=1, label="b")
        if rank.rank == 0:
            await rank.send(tensor, 3, label="s")
        if rank.rank == 3:
            await rank.recv(tensor, 0, label="r")

    spans = play(body)
    assert [span.bytes_sent for span in spans["b"]] == [0, 32, 0, 0]
    assert [span.bytes_sent for span in (*spans["s"], *spans["r"])] == [32, 0]


def test_kernels_of_all_kinds_take_the_mean_and_nothing_has_its_share() -> None:
    of_rank = [ARITHMETIC, ARITHMETIC, MEMORY, NOTHING]

    async def body(rank: Rank) -> None:
        with rank.step(0):
            await rank.compute(of_rank[rank.rank], int, label="x")

    spans = play(body, library="nccl")["x"]
    assert {span.end_ns - span.start_ns for span in spans} == {1_000_000}  # a quarter of 4 ms, beside a half of 1 ms
    assert {(span.flops, span.bytes_read, span.kernel) for span in spans} == {(5e9, 1e9, "test")}


def test_measured_times_are_shared_as_well() -> None:
    async def body(rank: Rank) -> None:
        with rank.step(0):
            await rank.compute(NOTHING if rank.rank else ARITHMETIC, int, label="x")

    times = ComputeTimes(path=Path("t.csv"), rows=(ComputeTime(label="x", call=None, time_ns=8_000),))
    spans = play(body, library="nccl", compute_times=times)["x"]
    assert {span.end_ns - span.start_ns for span in spans} == {2_000}


def test_a_slow_gpu_stays_slow() -> None:
    """It is work that is balanced: what is left to gain by other hardware stays to be seen."""

    async def body(rank: Rank) -> None:
        await rank.compute(NOTHING if rank.rank else ARITHMETIC, int, label="x")

    fault = Fault(GpuPart(1, 0), 0.5)
    found = scenario(cluster(2, 2, faults=(fault,)), library="nccl", balanced=True)
    spans = simulate(found, Play(body)).spans
    assert [span.end_ns - span.start_ns for span in spans] == [250_000, 250_000, 500_000, 250_000]


def test_a_mistake_in_a_call_is_the_programs_own() -> None:
    async def body(rank: Rank) -> None:
        gets = [1, 1, 1, 2 if rank.rank == 1 else 1]
        await rank.all_to_all_single(torch.zeros(sum(gets)), torch.zeros(4), gets, [1] * 4, label="x")

    for balanced in (False, True):
        with pytest.raises(ProgramError, match="rank 3 sends 4 bytes to rank 1, which expects 8"):
            simulate(scenario(cluster(2, 2), balanced=balanced), Play(body))
