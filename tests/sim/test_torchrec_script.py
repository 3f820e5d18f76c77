"""TorchRec's own DLRM as a script against our `dlrm` of the same model, collective by collective.

Needs TorchRec: `make torchrec`.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from reports.run import Run
from reports.sections.plans import PLANNERS, YOURS
from scenarios.config.load import load
from scenarios.planner.plan import plan_tables
from scenarios.seam import roles
from scenarios.seam.trace import Recording, Span
from scenarios.workloads.build import build
from scenarios.workloads.recording.file import NAME
from scenarios.workloads.script.command import load_given
from sim.run import simulate
from tests.commands import command

torchrec = pytest.importorskip("torchrec", reason="TorchRec stands in .venv-benchmarks")
pytestmark = pytest.mark.torchrec

SCRIPT = Path(__file__).parents[2] / "examples" / "scripts" / "torchrec_dlrm.py"
MODELS = Path(__file__).parents[1] / "data" / "scripts" / "torchrec_tables.py"
TABLES, ROWS, IDS, BATCH = 8, 10_000, 4, 128
# Of `dlrm` the second step after the warm-up; a script's first is not counted.
OURS, THEIRS = 3, 2
# The place among a step's collectives of the exchange of ids.
OF_IDS = 2
# Of torchrec_features.py.
BATCHES = 6


def ours(kind: str, dim: int, folder: Path) -> Recording:
    """Our program, with tables of one sharding type on 2 hosts of 2."""
    scenario = load(dlrm_file(folder, dim, f'sharding = ["{kind}"]'))
    return simulate(scenario, build(scenario))


def dlrm_file(folder: Path, dim: int, of_table: str = "", profile: str = "emulated_200mbit") -> Path:
    """A scenario of our program, each table with the lines `of_table`."""
    file = folder / "ours.toml"
    tables = "".join(
        f'[[model.tables]]\nname = "table_{number}"\nrows = {ROWS}\nids_per_sample = {IDS}\n{of_table}\n'
        for number in range(TABLES)
    )
    file.write_text(
        f"""program = "dlrm"
run = {{steps = {OURS + 1}, batch_size = {BATCH}}}
cluster = {{profile = "{profile}", hosts = 2, gpus_per_host = 2}}
[model]
dense_features = 13
bottom = [256, {dim}]
top = [256, 128, 1]
interaction = {{kind = "dot"}}
embedding_dim = {dim}
optimizer = {{kind = "sgd", learning_rate = 0.05}}
{tables}"""
    )
    return file


def theirs(*args: str, profile: str = "emulated_200mbit") -> Recording:
    """TorchRec's."""
    overrides = {"profile": profile, "steps": THEIRS + 1, "timeout": "120 s"}
    scenario = load_given(SCRIPT, overrides, args=["--fixed", *args], hosts=2, gpus_per_host=2)
    return simulate(scenario, build(scenario))


def calls(recording: Recording, step: int, rank: int, *, of_ids: bool) -> list[tuple[Any, ...]]:
    """A rank's collectives of a step in the order of their issue: what, among how many, of how many bytes.

    `of_ids`: whether ids go where their values say, which are others in both; then only the sum counts of their
    exchange.
    """

    def list_issued(span: Span) -> tuple[int, int]:
        return span.issued_ns, span.sequence

    own = [one for one in recording.spans if one.rank == rank and one.step == step and one.group]
    own.sort(key=list_issued)
    members = {"world": 4, "intra": 2, "cross": 2, "group": 2}
    found = []
    for place, span in enumerate(own):
        group = span.group.rpartition("/")[2].partition(":")[0].rstrip("0123456789")
        sizes = (span.bytes_in,) if of_ids and place == OF_IDS else (span.bytes_in, span.bytes_out, span.bytes_sent)
        found.append((span.kind, members[group], span.dtype, *sizes))
    return found


@pytest.mark.parametrize(
    ("kind", "dim"),
    [
        ("table_wise", 64),
        ("row_wise", 64),
        ("column_wise", 256),  # in columns of 128, as both cut them
        ("table_row_wise", 64),
        ("grid_shard", 256),
        ("data_parallel", 64),
    ],
)
@pytest.mark.supports("TorchRec: all sharding types", "CPUs")
def test_our_program_has_torchrecs_calls(kind: str, dim: int, tmp_path: Path) -> None:
    own, their = ours(kind, dim, tmp_path), theirs("--sharding", kind, "--dim", str(dim))
    of_ids = "row_wise" in kind or kind == "grid_shard"
    for rank in range(4):
        expected = calls(their, THEIRS, rank, of_ids=of_ids)
        assert calls(own, OURS, rank, of_ids=of_ids) == expected
        assert len(expected) == {"data_parallel": 2, "table_row_wise": 8, "grid_shard": 8}.get(kind, 6)


@pytest.mark.supports("TorchRec: 2D parallelism (DMPCollection)", "GPUs")
def test_2d_parallelism_has_the_calls_of_our_program(tmp_path: Path) -> None:
    """TorchRec's DMPCollection, on GPUs alone; the replicas' averaging comes after the optimizer, in the next step."""
    file = dlrm_file(tmp_path, 64, 'sharding = ["table_wise"]', profile="dgx_h100")
    file.write_text(f"{file.read_text()}\n[replication]\nsharding_group_size = 2\n")
    scenario = load(file)
    own = simulate(scenario, build(scenario))
    their = theirs("--sharding-group", "2", profile="dgx_h100")
    for rank in range(4):
        *others, averaging = calls(own, OURS, rank, of_ids=False)
        assert averaging[0] == "all_reduce_coalesced"
        assert calls(their, THEIRS, rank, of_ids=False) == [averaging, *others]


def test_the_reported_plan_is_torchrecs() -> None:
    """Read from the running script; each shard where its rank is."""
    recording = theirs("--sharding", "mixed")
    plan = recording.plan
    assert Run.of(recording).batch_size == recording.info.step_samples == BATCH
    kinds = {row.table: row.sharding_type for row in plan}
    types = ["table_wise", "row_wise", "column_wise", "table_row_wise", "grid_shard", "data_parallel"]
    assert list(kinds.values()) == [*types, *types[:2]]
    for table, kind in kinds.items():
        shards = [row for row in plan if row.table == table]
        elements = sum(row.rows * row.columns for row in shards)
        assert elements == ROWS * 64 * (4 if kind == "data_parallel" else 1)
        assert len(shards) == {"table_wise": 1, "column_wise": 2, "table_row_wise": 2, "grid_shard": 2}.get(kind, 4)


@pytest.mark.parametrize("profile", ["emulated_200mbit", "dgx_h100"])
@pytest.mark.parametrize("words", [[], ["--pipeline"]])
def test_the_scripts_plan_is_reported_with_our_planners_for_equal_tables(
    profile: str, words: list[str], tmp_path: Path
) -> None:
    """And so is that of the recording, played on the same cluster."""
    recording = theirs(*words, profile=profile)
    kinds = ("data_parallel", "table_wise", "column_wise", "table_column_wise")
    types = ", ".join([*kinds, "row_wise", "table_row_wise", "grid_shard"])
    notes = ("128 samples per rank, ids as in rank 0's first step", f"ours may choose among {types}")
    assert (recording.info.plan_notes, recording.info.step_samples) == (notes, BATCH)
    scenario = load(dlrm_file(tmp_path, 64, profile=profile))
    own = plan_tables(scenario).rows
    assert [replace(row, table=row.table.replace("feature_", "")) for row in recording.own_plan] == [*own]
    assert all(row.perf_ms > 0 and row.ids_per_step > 0 for row in recording.plan)
    if not words:
        (tmp_path / NAME).write_bytes(recording.kept[NAME])
        again = load_given(tmp_path, {})
        played = simulate(again, build(again))
        assert (played.plan, played.own_plan, played.info.plan_notes) == (recording.plan, recording.own_plan, notes)


@pytest.mark.parametrize("profile", ["emulated_200mbit", "dgx_h100"])
@pytest.mark.supports("TorchRec: EmbeddingCollection, several models, the plan shown", "CPUs", "GPUs")
def test_tables_of_several_models_pooled_or_not_are_planned_together(profile: str) -> None:
    """What decides costs is read from modules and from what comes into them."""
    recording = short("tables", profile)
    lines = json.loads(gzip.decompress(recording.kept[NAME]))["lines"]
    (found,) = (line[1] for line in lines if line[0] == "plan")
    told = {
        table["name"]: (table["features"], table["dtype"], table["is_pooled"], table["is_weighted"])
        for table in found["tables"]
    }
    assert told == {
        "tables.same": ({"a": 2.0, "b": 6.0}, "FP32", True, True),
        "other": ({"c": 3.0}, "FP32", True, True),
        "tables.same (2)": ({"d": 5.0}, "FP16", False, False),
    }
    assert (found["batch_size"], found["ranks"], found["optimizers"]) == (16, [2], ["EXACT_SGD"])
    assert {row.table for row in recording.own_plan} == {row.table for row in recording.plan} == {*told}
    assert "elements of type FP16 and FP32 are planned as float32" in recording.info.plan_notes


def test_the_best_plan_of_a_script_is_what_predictions_with_its_file_say(tmp_path: Path) -> None:
    """And the script's ranks then have their tables where the file has them."""
    best = tmp_path / "best.json"
    args = ["--fixed", "--sharding", "row_wise"]
    words = ["--hosts", 1, "--gpus-per-host", 2, "--profile", "dgx_h100", "--steps", 2, "--moves", 0, "--seconds", 20]
    done = command("twinstep", "plan", *words, "--json", "--out", best, SCRIPT, *args)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["plan"] for row in found["plans"]][:2] == [YOURS, PLANNERS]
    given = {"profile": "dgx_h100", "steps": 2, "script.plan": str(best)}
    scenario = load_given(SCRIPT, given, args=args, hosts=1, gpus_per_host=2)
    run = Run.of(simulate(scenario, build(scenario)))
    fastest_ns = min(row["step_ns"] for row in found["plans"])
    assert run.step_ms == pytest.approx(fastest_ns / 1e6, rel=0.03)  # the host's own work is measured
    placed = {row["table"]: row["ranks"] for row in found["tables"]}
    assert {name: own["rank"].tolist() for name, own in run.plan.groupby("table")} == placed
    assert set(placed) == {f"table_feature_{number}" for number in range(TABLES)}


def test_models_whose_tables_no_plan_can_tell_apart_are_refused() -> None:
    done = command("twinstep", "plan", "--gpus-per-host", 2, "--profile", "dgx_h100", "--steps", 2, MODELS)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip().splitlines()[-1] == (
        f"{MODELS}: no other plan of its tables can be tried: two models have a table 'same' of module 'tables'"
    )


@pytest.mark.parametrize("words", [["--pipeline"], ["--hook", "powersgd"]])
@pytest.mark.supports("TorchRec: `TrainPipelineSparseDist`", "CPUs")
def test_pipelines_and_hooks_run(words: list[str]) -> None:
    recording = theirs(*words)
    steps = [span for span in recording.spans if span.kind == "step"]
    assert {span.step for span in steps} == set(range(THEIRS + 1))
    losses = [metric.value for metric in recording.metrics]
    assert "--pipeline" in words or all(0.5 < loss < 1 for loss in losses)


def by_group(recording: Recording, rank: int) -> list[tuple[Any, ...]]:
    """A rank's collectives in the order of each group, as streams of a GPU go beside each other; but for the plan's
    broadcast, which names devices.
    """
    own = [one for one in recording.spans if one.rank == rank and one.group and one.dtype != "uint8"]
    own.sort(key=lambda span: (span.group.rpartition("/")[2], span.call))
    return [(one.step, one.group, one.kind, one.label, one.dtype, one.bytes_in, one.bytes_out) for one in own]


@pytest.mark.parametrize(
    "args",
    [
        *(["--sharding", kind] for kind in ("table_wise", "row_wise", "table_row_wise", "data_parallel")),
        *(["--sharding", kind, "--dim", "256"] for kind in ("column_wise", "grid_shard")),
        ["--sharding", "mixed", "--dim", "256", "--pipeline", "--hook", "fp16"],
    ],
    ids=lambda args: "-".join(args).replace("--", ""),
)
@pytest.mark.supports("TorchRec: all sharding types", "GPUs")
@pytest.mark.supports("TorchRec: `TrainPipelineSparseDist`", "GPUs")
def test_calls_on_simulated_gpus_equal_those_on_cpus(args: list[str]) -> None:
    """Size for size, and what a step launches of fbgemm's bags is priced by ids, dims and optimizer."""
    on_cpus = theirs(*args)
    on_gpus = theirs(*args, profile="dgx_h100")
    for rank in range(4):
        assert by_group(on_gpus, rank) == by_group(on_cpus, rank)
    kernels = [line[2] for line in json.loads(gzip.decompress(on_gpus.kept[NAME]))["lines"] if line[0] == "kernel"]
    found = {kernel["kind"] for kernel in kernels}
    assert {"embedding_lookup", "embedding_update", "gemm"} <= found
    for spans in (on_cpus.spans, on_gpus.spans):
        named = {span.role for span in spans if span.kind == "compute"}
        exchanged = set() if "data_parallel" in args else {roles.IDS, roles.ROWS}
        assert {roles.OPTIMIZER, *exchanged} <= named
    if args == ["--sharding", "table_wise"]:
        elements = TABLES / 4 * 4 * BATCH * IDS * 64
        naming = 8 * elements / 64 * (1 + 1 / IDS)
        for looked_up in (kernel for kernel in kernels if kernel["kind"] == "embedding_lookup"):
            assert looked_up["flops"] == elements
            assert looked_up["bytes_written"] == 4 * elements / IDS
            assert looked_up["bytes_read"] == 4 * elements + naming
        updates = [one for one in kernels if one["kind"] == "embedding_update" and one.get("flops") == 2 * elements]
        assert updates
        for updated in updates:
            rows = TABLES / 4 * ROWS * (1 - (1 - 1 / ROWS) ** (4 * BATCH * IDS))
            ordering = updated["bytes_written"] - 4 * 64 * rows
            assert updated["bytes_read"] == pytest.approx(4 * elements + naming + 4 * 64 * rows + ordering, rel=0.02)


def short(name: str, profile: str, *args: str, steps: int = 2) -> Recording:
    """Two ranks of one of the scripts beside the tests."""
    script = MODELS.with_name(f"torchrec_{name}.py")
    given = {"profile": profile, "steps": steps, "timeout": "120 s"}
    scenario = load_given(script, given, args=args, hosts=1, gpus_per_host=2)
    return simulate(scenario, build(scenario))


@pytest.mark.supports("TorchRec: variable batches (VBE)", "CPUs", "GPUs")
def test_calls_with_batch_sizes_per_feature_equal_on_gpus_and_cpus() -> None:
    on_gpus, on_cpus = short("batches", "dgx_h100"), short("batches", "emulated_200mbit")
    for rank in range(2):
        found = calls(on_gpus, 1, rank, of_ids=False)
        assert len(found) > 2
        assert found == calls(on_cpus, 1, rank, of_ids=False)


@pytest.mark.supports("TorchRec: weighted bags", "CPUs", "GPUs")
def test_weights_travel_with_as_many_ids_on_gpus() -> None:
    """Planned otherwise than on CPUs, so that calls are not the same."""
    recording = short("weighted", "dgx_h100")
    for rank in range(2):
        torch.manual_seed(rank)
        ids = int(torch.randint(0, 8, (4 * 512,)).sum())
        sent = {(kind, dtype, size) for kind, _, dtype, size, *_ in calls(recording, 1, rank, of_ids=False)}
        assert {("all_to_all_single", "int64", 8 * ids), ("all_to_all_single", "float32", 4 * ids)} <= sent


def exchanges(recording: Recording, rank: int) -> Counter[tuple[str, str, int, int]]:
    """A rank's exchanges of ids and rows over the whole run, how often each."""
    kinds = ("all_to_all_single", "reduce_scatter_tensor", "all_gather_into_tensor")
    own = [span for span in recording.spans if span.rank == rank and span.kind in kinds]
    return Counter((span.kind, span.dtype, span.bytes_in, span.bytes_out) for span in own)


@cache
def plain() -> Recording:
    """The same tables and batches on CPUs, over gloo, without pipeline and caches."""
    return short("features", "emulated_200mbit", "plain", steps=1000)


def kernels_of(recording: Recording) -> list[tuple[int, dict[str, Any]]]:
    """The stream of each kernel of tables, and the kernel."""
    lines = json.loads(gzip.decompress(recording.kept[NAME]))["lines"]
    found = [(line[1], line[2]) for line in lines if line[0] == "kernel"]
    return [(stream, kernel) for stream, kernel in found if kernel["kind"].startswith("embedding")]


@pytest.mark.supports("TorchRec: tables in the host's memory and their caches (UVM), ITEP", "GPUs")
@pytest.mark.supports("TorchRec: TrainPipelineSemiSync, PrefetchTrainPipelineSparseDist, StagedTrainPipeline", "GPUs")
@pytest.mark.parametrize("kind", ["uvm", "caching", "prefetch", "semi_sync", "staged", "itep"])
def test_other_tables_and_pipelines_exchange_as_much_as_plain_ones(kind: str) -> None:
    """All batches of the script, whenever a pipeline begins each. TorchRec's staged pipeline exchanges the ids of the
    first one twice, as it starts once to find what to override (`SparseDataDistUtil.start_sparse_data_dist`).
    """
    recording = short("features", "dgx_h100", kind, steps=1000)
    for rank in range(2):
        found, expected = exchanges(recording, rank), exchanges(plain(), rank)
        twice = {key[1]: count for key, count in (found - expected).items()}
        assert not expected - found
        assert twice == ({"int64": 1} if kind == "staged" else {})
    of_host = [stream for stream, kernel in kernels_of(recording) if kernel.get("host_read")]
    others = {stream for stream, kernel in kernels_of(recording) if not kernel.get("host_read")}
    if kind in ("caching", "prefetch"):  # one fill a batch and rank
        assert len(of_host) == 2 * BATCHES
        assert others.isdisjoint(of_host) == (kind == "prefetch")
    else:
        assert bool(of_host) == (kind == "uvm")


@pytest.mark.supports("TorchRec: managed collisions (zch), MPZCH", "GPUs")
@pytest.mark.parametrize("kind", ["zch", "mpzch"])
def test_managed_collisions_are_sharded_by_rows(kind: str) -> None:
    """Ids go to the rank of their slot and come back, a bag's sums are scattered, and their gradients gathered."""
    recording = short("features", "dgx_h100", kind, steps=1000)
    sums = 4 * 3 * 16 * 32
    sent = received = 0
    for rank in range(2):
        found = exchanges(recording, rank)
        assert found["reduce_scatter_tensor", "float32", 2 * sums, sums] == BATCHES
        assert found["all_gather_into_tensor", "float32", sums, 2 * sums] == BATCHES
        ids = {key: count for key, count in found.items() if key[0] == "all_to_all_single" and key[2:] != (48, 48)}
        sent += sum(count * key[2] for key, count in ids.items())
        received += sum(count * key[3] for key, count in ids.items())
    lengths = 8 * 2 * 3 * 32 * BATCHES
    assert (
        sent
        == received
        == 2 * lengths
        + sum(
            key[2] * count
            for rank in range(2)
            for key, count in exchanges(plain(), rank).items()
            if key[1] == "int64" and key[2] not in (48, 768)
        )
    )
