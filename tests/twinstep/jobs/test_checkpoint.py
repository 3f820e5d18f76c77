"""What a checkpoint holds, and how long it takes to write and to load, alone and beside steps."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.config.hardware import Cluster
from scenarios.config.load import load
from scenarios.config.scenario import Scenario, TimedCollective
from scenarios.config.scenario.job import Checkpoints
from scenarios.seam.errors import ScenarioError
from scenarios.seam.memory import TABLE_STATE, TABLES
from scenarios.seam.program import Program
from scenarios.workloads.build import build
from sim.draws import steps_of_draw
from tests.small import cluster, recommender, scenario
from twinstep.jobs.checkpoint import JobCheckpoints, shared_s
from twinstep.jobs.checkpoint_bytes import checkpoint_bytes, evenly
from twinstep.jobs.step_while_writing import step_while_writing

LARGE = 'name = "large"\nrows = 1_000_000\nids_per_sample = 4\n'
COPIED = 'name = "copied"\nrows = 1_000\nids_per_sample = 1\nsharding = ["data_parallel"]\n'
OPTIMIZERS = {"model.optimizer": {"kind": "adagrad"}, "model.dense_optimizer": {"kind": "Adam"}}
BATCH = 128 * 4  # of all ranks

# Parameters of the dense part: 16 to 64, and of 3 vectors of 64 with 3 products of two, 67 to 64 to 1.
PARAMETERS = 17 * 64 + 68 * 64 + 65


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("checkpoint") / "small.toml"
    file.write_text(recommender(LARGE, COPIED))
    return file


@pytest.fixture(scope="module")
def small(file: Path) -> tuple[Scenario, Program]:
    built = load(file, OPTIMIZERS)
    return built, build(built)


def test_a_checkpoint_has_tables_and_dense_part_once(small: tuple[Scenario, Program]) -> None:
    found = checkpoint_bytes(*small)
    rows = 1_001_000
    assert found.parts["tables"] == rows * 64 * 4
    assert found.parts["table optimizer"] == rows * 4
    assert found.parts["dense"] == PARAMETERS * 4
    # Adam has two numbers for each parameter, and counts steps: 12 bytes a parameter with the parameter itself.
    assert found.parts["dense optimizer"] == pytest.approx(PARAMETERS * 8, rel=1e-3)
    assert found.total == pytest.approx(sum(found.parts.values()))
    assert found.written.sum() == pytest.approx(found.total)
    # Each of 4 ranks loads a copy of all that is copied.
    assert found.held.sum() == pytest.approx(1_000_000 * 260 + 4 * found.common)
    in_memory = [
        sum(row.size_bytes for row in small[1].memory if row.rank == rank and row.kind in (TABLES, TABLE_STATE))
        for rank in range(4)
    ]
    assert (found.own + 1_000 * 260).tolist() == in_memory
    assert found.common == 1_000 * 260 + found.parts["dense"] + found.parts["dense optimizer"]


@pytest.mark.parametrize(
    ("values", "groups"),
    [
        ({"dense_parallel": {"kind": "fsdp"}}, 1),
        ({"dense_parallel": {"kind": "hsdp", "shard_group_size": 2}}, 1),
        ({"replication": {"sharding_group_size": 2}}, 2),
    ],
)
def test_replicas_and_shards_make_the_same_checkpoint(
    file: Path, small: tuple[Scenario, Program], values: dict[str, Any], groups: int
) -> None:
    whole = checkpoint_bytes(*small)
    other = load(file, OPTIMIZERS | values)
    found = checkpoint_bytes(other, build(other))
    # Shards are padded.
    assert found.parts == pytest.approx(whole.parts, rel=0.04)
    assert found.written.sum() == pytest.approx(found.total)
    assert found.held.sum() == pytest.approx(1_000_000 * 260 * groups + 4 * 260_000, rel=1e-3)


@pytest.mark.parametrize(("own", "written"), [([0, 10, 4, 0], [4, 10, 4, 4]), ([0, 10, 20, 0], [4, 10, 20, 4])])
def test_the_ranks_with_the_least_of_their_own_write_what_all_hold(own: list[float], written: list[float]) -> None:
    found = dataclasses.replace(evenly(0, 4, 2), own=np.array(own, float), common=8.0)
    assert found.written.tolist() == written


def test_quantized_rows_have_a_scale_and_an_offset(small: tuple[Scenario, Program]) -> None:
    sizes = {bits: checkpoint_bytes(*small, bits).parts for bits in (2, 8, 16, 32)}
    per_row = {bits: parts["tables"] / 1_001_000 for bits, parts in sizes.items()}
    assert per_row == {2: 64 / 4 + 8, 8: 64 + 8, 16: 128, 32: 256}
    assert len({tuple(parts.items())[1:] for parts in sizes.values()}) == 1


def test_an_incremental_checkpoint_has_the_rows_looked_up_since(file: Path, small: tuple[Scenario, Program]) -> None:
    looked_up = [1_000_000 * -math.expm1(-BATCH * 100 * 4 / 1e6), 1_000 * -math.expm1(-BATCH * 100 / 1e3)]
    found, whole = checkpoint_bytes(*small, steps=100), checkpoint_bytes(*small)
    # A row is written with its number of 8 bytes; all rows are written without.
    assert found.parts["tables"] == pytest.approx(looked_up[0] * 264 + 1_000 * 256)
    assert found.parts["table optimizer"] == pytest.approx(sum(looked_up) * 4)
    assert found.parts["dense"] == whole.parts["dense"]
    assert checkpoint_bytes(*small, steps=10**8).total == pytest.approx(whole.total)


def test_frequent_rows_that_lie_together_make_their_ranks_write_more(file: Path) -> None:
    totals, busiest = [], []
    for order in ("shuffled", "by_frequency"):
        ids = {"zipf": 1.2, "order": order}
        skewed = load(file, {"model.tables.large.ids": ids, "model.tables.large.sharding": ["row_wise"]})
        found = checkpoint_bytes(skewed, build(skewed), steps=100)
        totals.append(found.total)
        busiest.append(found.written.max() / found.written.min())
    assert totals[0] == pytest.approx(totals[1], rel=1e-3)
    assert busiest[0] == pytest.approx(1, rel=0.02)
    assert busiest[1] > 2


def test_a_store_is_shared_by_the_hosts_that_still_write() -> None:
    # Both at 0.75 for 4/3 s, then one at 1.
    assert shared_s(np.array([3.0, 1.0]), 1.0, 1.5) == pytest.approx(4 / 3 + 2)
    assert shared_s(np.array([3.0, 1.0]), 1.0, 9.0) == pytest.approx(3)


def times(on: Scenario, **given: Any) -> JobCheckpoints:
    return JobCheckpoints(scenario=on, given=Checkpoints(**given))


def test_times_follow_from_size_and_rates() -> None:
    # BLOOM's 2.3 TB in 40 s at 57.5 GB/s (stas00/ml-engineering).
    bloom = scenario(with_rates(cluster(hosts=48, gpus=8)))
    assert times(bloom, size_bytes=2_300 * 10**9, store_rate=57.5e9).writing(1).blocks_s == pytest.approx((40.0,))
    two = scenario(with_rates(cluster(hosts=2, gpus=2)))  # NICs of 2.5 GB/s, copies at 0.5 GB/s a GPU
    size = {"size_bytes": 4 * 10**9}
    waits = times(two, kind="async", **size).writing(1)
    assert (waits.blocks_s, waits.background_s, waits.restore_s) == ((2.0,), (0.8,), (2.0,))
    assert times(two, **size).writing(1).blocks_s == (2.0,)  # the copy is slower than the NICs
    assert times(two, to="host", kind="async", host_rate=0.5e9, **size).writing(1).background_s == (4.0,)
    # A disk at 0.5 GB/s holds the checkpoints of two hosts.
    assert times(two, to="ssd", kind="async", host_rate=0.5e9, **size).writing(1).background_s == (8.0,)
    # Rank 0 gathers 2 GB over its NIC, copies 4 GB, and writes them over its host's NICs.
    alone = times(two, shards="rank0", **size).writing(1)
    assert alone.blocks_s == alone.restore_s == pytest.approx((4 / 0.5 + 4 / 2.5,))


def test_host_memory_has_room_for_checkpoints() -> None:
    on = scenario(with_rates(cluster(hosts=2)))  # 16 GiB a host
    assert times(on, size_bytes=20 << 30).writing(1)
    assert times(on, kind="async", size_bytes=20 << 30).writing(1)
    with pytest.raises(ScenarioError) as error:
        times(on, to="host", size_bytes=20 << 30).writing(1)
    assert str(error.value) == (
        "test.toml: cluster.host_memory = '16 GiB': expected at least 20 GiB for a host's checkpoint and that"
        " of another"
    )


def with_rates(on: Cluster) -> Cluster:
    inside = dataclasses.replace(on.host.inside, host_bytes_per_s=0.5e9)
    return dataclasses.replace(on, host=dataclasses.replace(on.host, inside=inside))


def test_given_times_are_those_of_whole_checkpoints(small: tuple[Scenario, Program]) -> None:
    given = Checkpoints(kind="async", write_ns=10**10, staging_ns=10**9, full_every=3)
    found = JobCheckpoints(scenario=small[0], given=given, program=small[1])
    parts = [1.0] + [found.size(steps).total / found.size().total for steps in (50, 100)]
    assert parts[0] > parts[2] > parts[1] > 0
    writing = found.writing(50)
    assert writing.background_s == pytest.approx([10 * part for part in parts])
    assert writing.blocks_s == pytest.approx(parts)
    assert writing.restore_s == pytest.approx([10, 10 + 10 * parts[1], 10 + 10 * parts[2]])


def test_bytes_that_nothing_tells_are_asked_for() -> None:
    on = dataclasses.replace(
        scenario(collective=TimedCollective(op="all_reduce", size_bytes=8, dtype="float32")), program="collective"
    )
    with pytest.raises(ScenarioError) as error:
        times(on).writing(1)
    assert str(error.value) == (
        "test.toml: job.checkpoint.size: missing; expected the bytes of a checkpoint, which the memory of program"
        " 'collective' does not tell"
    )


def test_checkpoints_in_part_need_tables(file: Path, tmp_path: Path) -> None:
    given = tmp_path / "given.toml"
    given.write_text('cluster = {profile = "dgx_h100", hosts = 2}\njob = {step = "1 s", days = 1}\n')
    reasons = {file: "beside size, for which no tables are known", given: "which has no tables"}
    for path, why in reasons.items():
        values = {"full_every": 2, **({"size": "1 GB"} if path == file else {})}
        with pytest.raises(ScenarioError) as error:
            load(path, {"job.checkpoint": values})
        assert str(error.value).endswith(why)


def all_reduce(file: Path, **values: Any) -> tuple[Scenario, Program, float]:
    """An all-reduce over NCCL between hosts of one GPU, with a NIC of 10 GB/s, and the seconds of its step."""
    file.write_text(
        """
        program = "collective"
        collective = {op = "all_reduce", size = "1 GB", dtype = "float32"}
        run = {steps = 1, library = "nccl"}
        [cluster]
        profile = "dgx_h100"
        gpus_per_host = 1
        payload_share = 1
        nccl_efficiency = 1
        nic = {per = "gpu", rate = "80 Gbit/s", latency = "0 us"}
        """
    )
    on = load(file, {"cluster.hosts": 2, **values})
    program = build(on)
    return on, program, step_of(on, program)


def step_of(on: Scenario, program: Program) -> float:
    (span, *_) = (span for span in steps_of_draw(on, program)[0].spans if span.kind == "step")
    return (span.end_ns - span.start_ns) / 1e9


@pytest.mark.parametrize(
    ("given", "left", "written"),
    [
        ({}, 1 / 2, 5e9),  # two flows on a NIC
        ({"to": "host"}, 1 / 2, 5e9),  # in both directions
        ({"store_rate": 4e9}, 1 - 2 / 10, 2e9),  # half of the store for each host
        ({"host_rate": 1e9}, 1 - 1 / 10, 1e9),
        ({"write_ns": 10**9, "size_bytes": 4 * 10**9}, 1 - 2 / 10, 2e9),
        ({"over": "own"}, 1, None),
    ],
)
def test_a_collective_gets_what_writes_leave_of_nics(
    tmp_path: Path, given: dict[str, Any], left: float, written: float | None
) -> None:
    on, program, step_s = all_reduce(tmp_path / "step.toml")
    # Each NIC carries 1 GB in each direction, and what NCCL adds to pipelined messages.
    carried_s = 1.025 * 0.1
    checkpoints = JobCheckpoints(
        scenario=on, given=Checkpoints(**{"kind": "async", "over": "network", **given}), program=program
    )
    slowed_s, beside = step_while_writing(checkpoints, step_s)
    assert slowed_s - step_s == pytest.approx(carried_s * (1 / left - 1), rel=1e-3)
    assert beside.beside_bytes_per_s == (written and pytest.approx(written, rel=5e-3))


@pytest.mark.parametrize("given", [{"store_rate": 6e9}, {}, {"shards": "rank0"}])
def test_representatives_write_for_their_class(tmp_path: Path, given: dict[str, Any]) -> None:
    spine = {"kind": "leaf_spine", "hosts_per_leaf": 2, "oversubscription": 2}
    found = []
    for ranks in ("each", "alike"):
        values = {"cluster.hosts": 4, "cluster.network": spine, "run.ranks": ranks, "run.fidelity": "links"}
        on, program, step_s = all_reduce(tmp_path / "step.toml", **values)
        checkpoints = JobCheckpoints(
            scenario=on, given=Checkpoints(kind="async", over="network", **given), program=program
        )
        slowed_s, beside = step_while_writing(checkpoints, step_s)
        found.append((slowed_s - step_s, beside.beside_bytes_per_s))
    assert found[0][0] > 0
    assert found[0] == pytest.approx(found[1], rel=0.01)
