"""Tables in host memory: the same model in both worlds, and what caches, copies and prefetches cost."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from scenarios.compute_kernel import ComputeKernel
from scenarios.config.hardware import Inside, Link
from scenarios.config.scenario import Optimizer, Pipeline, Scenario, ShardingType
from scenarios.seam.trace import IN_HOST, Recording, Span
from scenarios.workloads.dlrm.program import DlrmProgram
from sim.run import simulate
from tests.contract.worlds import WORLDS
from tests.sim.test_dlrm_bags import EVERY, mix
from tests.sim.test_dlrm_steps import TOLERANCE, Reference, losses, play_ready
from tests.small import CORE, GPU, change, cluster, model_of, with_model

TYPES: tuple[ShardingType, ...] = ("table_wise", "row_wise", "table_row_wise")
KERNELS = ("fused", "fused_uvm", "fused_uvm_caching")
PREFETCH = Pipeline(kind="prefetch_sparse_dist")
LINK = Link(bytes_per_s=1e11, latency_ns=1000)
BIG = dataclasses.replace(GPU, memory_bytes=1 << 40)


def make_hosted(
    kernels: tuple[str, ...] = KERNELS,
    *,
    load_factor: float = 0.3,
    host_rate: float = 1e10,
    rows: int = 0,
    **changes: Any,
) -> Scenario:
    """Tables with all kinds of bags and kernels in turn; on NVLink, `host_rate` bytes/s to host memory."""
    optimizer = changes.pop("optimizer", Optimizer(kind="adagrad", learning_rate=0.5))
    made = mix(EVERY, TYPES, **changes)
    tables = tuple(
        dataclasses.replace(
            table,
            kernel=ComputeKernel(kernels[number % len(kernels)]),
            cache_load_factor=load_factor,
            rows=rows or table.rows,
        )
        for number, table in enumerate(made.workload.tables)
    )
    inside = Inside(kind="nvlink", link=LINK, host_bytes_per_s=host_rate)
    return change(
        made,
        model=dataclasses.replace(model_of(made), tables=tables, optimizer=optimizer),
        cluster=cluster(2, 2, gpu=BIG, inside=inside),
    )


def time(kernels: tuple[str, ...], **changes: Any) -> Scenario:
    """Sizes only, over NCCL, of large batches and tables."""
    base = {"batch_size": 1024, "rows": 20_000, "payload": "sizes", "library": "nccl"}
    return make_hosted(kernels, **{**base, **changes})


def longest(recording: Recording, kind: str) -> int:
    return max(one.end_ns - one.start_ns for one in recording.spans if one.kind == kind)


def step_ns(made: Scenario) -> int:
    return longest(play_ready(made), "step")


def of_label(recording: Recording, part: str) -> list[Span]:
    return [one for one in recording.spans if part in one.label and one.kind == "compute" and one.step == 1]


@pytest.mark.parametrize(("kind", "pipeline"), [("sgd", PREFETCH), ("adagrad", Pipeline())], ids=["sgd", "adagrad"])
def test_losses_do_not_depend_on_where_rows_lie(kind: str, pipeline: Pipeline) -> None:
    own = Optimizer(kind=kind, learning_rate=0.5)  # type: ignore[arg-type]
    made = make_hosted(optimizer=own, pipeline=pipeline)
    plain = make_hosted(("fused",), optimizer=own)
    assert (
        losses(play_ready(made)) == losses(play_ready(plain)) == pytest.approx(Reference(plain).losses(), rel=TOLERANCE)
    )


@pytest.mark.real
def test_a_real_run_gives_the_plain_programs_losses_to_the_bit() -> None:
    found = [
        losses(WORLDS["real"](DlrmProgram(made), made))
        for made in (make_hosted(pipeline=PREFETCH), make_hosted(("fused",)))
    ]
    assert found[0] == found[1]


def test_a_cpu_process_has_one_memory() -> None:
    """Nothing to cache, nothing to copy: as if all tables were fused."""
    made = dataclasses.replace(
        make_hosted(), cluster=cluster(2, 2, gpu=dataclasses.replace(CORE, memory_bytes=1 << 40))
    )
    tables = tuple(dataclasses.replace(table, kernel=ComputeKernel.FUSED) for table in made.workload.tables)
    plain = with_model(made, tables=tables)
    assert play_ready(made).spans == play_ready(plain).spans
    assert {row.compute_kernel for row in DlrmProgram(made).plan} == {"fused"}


def test_slower_paths_and_smaller_caches_take_longer() -> None:
    fused = step_ns(time(("fused",)))
    uvm = [step_ns(time(("fused_uvm",), host_rate=rate)) for rate in (1e12, 1e11, 1e10)]
    caching = [step_ns(time(("fused_uvm_caching",), load_factor=share)) for share in (1.0, 0.5, 0.2, 0.05)]
    assert uvm == sorted(uvm)
    assert fused < uvm[1] < uvm[2]
    assert fused < caching[0] < caching[1] < caching[2] < caching[3] < uvm[2]


def test_a_cache_with_room_for_all_costs_its_pass_only() -> None:
    spans = {
        kernel: {(one.rank, one.label, one.sequence): one for one in play_ready(time((kernel,), load_factor=1.0)).spans}
        for kernel in ("fused", "fused_uvm_caching")
    }
    for part in ("lookup", "update"):
        took = [
            [one.end_ns - one.start_ns for (_, label, _), one in found.items() if label.endswith(part)]
            for found in spans.values()
        ]
        assert took[0] == took[1] != []
    passes = [one for (_, label, _), one in spans["fused_uvm_caching"].items() if label.endswith("cache")]
    assert passes
    assert all(one.end_ns > one.start_ns for one in passes if one.bytes_read)


def test_links_carry_what_kernels_read_and_write() -> None:
    """Without a state, each id's row comes for the look-up; for the update each row comes and goes once."""
    made = time(("fused_uvm",), optimizer=Optimizer(kind="sgd"))
    program = DlrmProgram(made)
    recording = simulate(made, program)
    lanes = [one for one in recording.links if one.link_class == "host"]
    assert len(lanes) == 2 * made.cluster.world_size
    came, went = (sum(one.bytes_carried for one in lanes if one.direction == way) for way in ("in", "out"))
    nics = {
        way: sum(one.bytes_carried for one in recording.links if one.link_class == "nic" and one.direction == way)
        for way in ("in", "out")
    }  # what comes by NIC crosses the lanes, too
    rows = [one for one in recording.spans if one.label.endswith("lookup")]
    looked_up, updated = 4 * sum(one.flops for one in rows), went - nics["out"]
    assert came - nics["in"] == pytest.approx(looked_up + updated, rel=1e-9)
    assert 0.1 * looked_up < updated < looked_up


def test_a_prefetch_is_hidden_where_it_fits_and_only_there() -> None:
    """On one host, where nothing but copies crosses the path: as long as without misses, or as the copies."""
    kinds = {"ids": Pipeline(kind="sparse_dist"), "rows": PREFETCH}
    quick, slow = 2e9, 2e8

    def one(kernel: str, ahead: str, rate: float) -> Recording:
        made = time((kernel,), pipeline=kinds[ahead], host_rate=rate, load_factor=0.2)
        host = dataclasses.replace(made.cluster.host, gpus=4)
        return play_ready(dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, hosts=1, host=host)))

    took = {
        (ahead, rate): longest(one("fused_uvm_caching", ahead, rate), "step")
        for ahead in kinds
        for rate in (quick, slow)
    }
    fused = longest(one("fused", "ids", quick), "step")
    assert fused < took["rows", quick] < 1.01 * fused < 1.2 * fused < took["ids", quick]
    slowly = one("fused_uvm_caching", "rows", slow)
    fills = of_label(slowly, "cache")  # of step 1
    own = max(span.end_ns - span.start_ns for span in slowly.spans if (span.kind, span.step) == ("step", 1))
    assert {each.stream for each in fills} == {"prefetch"}
    copies = max(sum(each.end_ns - each.start_ns for each in fills if each.rank == rank) for rank in range(4))
    assert 2 * fused < copies == own <= took["rows", slow] < took["ids", slow]


def test_prefetches_are_one_batch_ahead_and_exchanges_two() -> None:
    recording = play_ready(make_hosted(pipeline=PREFETCH))
    mine = [one for one in recording.spans if one.rank == 0]
    told = [one.step for one in mine if one.stream == "data_dist" and one.label.endswith(".splits")]
    filled = [one.step for one in mine if one.stream == "prefetch" and one.kind == "compute"]
    assert told == [-1, -1, 0, 1, 2]
    assert sorted(set(filled)) == [-1, 0, 1, 2]
    assert filled.count(-1) == filled.count(0) > 0


@pytest.mark.parametrize("state", ["row", "element"])
def test_memory_is_where_rows_are(state: str) -> None:
    """Whole tables in host memory, the caches' share on GPUs; a state for each element goes with the tables."""
    own = Optimizer(kind="adagrad", state=state)  # type: ignore[arg-type]
    made = make_hosted(("fused_uvm", "fused_uvm_caching"), rows=1000, load_factor=0.25, optimizer=own)
    rows = DlrmProgram(made).memory
    sizes = {part: sum(row.size_bytes for row in rows if row.part == part) for part in {row.part for row in rows}}
    weights = sum(4 * table.rows * table.dim for table in made.workload.tables)
    cached = [table for table in made.workload.tables if table.kernel == "fused_uvm_caching"]
    in_state = weights if state == "element" else 0
    assert sizes["embedding weights"] == 0
    assert sizes["embedding rows in host memory"] == weights + in_state
    assert sizes["embedding optimizer"] == (
        0 if state == "element" else sum(4 * each.rows for each in made.workload.tables)
    )
    # 4 bytes for each row, 16 for each that has a place
    assert sizes["embedding cache"] == pytest.approx(
        sum(each.rows * (4 + each.dim * 4 * 0.25 + 16 * 0.25) for each in cached), rel=0.02
    )
    host_rows = [row for row in rows if row.phases == IN_HOST]
    assert {row.capacity_bytes for row in host_rows} == {(1 << 34) // 2}
    assert {row.part for row in host_rows} == {"embedding rows in host memory"}
