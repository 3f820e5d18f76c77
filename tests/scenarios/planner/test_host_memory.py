"""Tables in host memory: planned by TorchRec's estimators, taken from a plan, or refused in a sentence."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.compute_kernel import ComputeKernel
from scenarios.config.hardware import Inside, Link
from scenarios.config.load import load
from scenarios.config.scenario import Pipeline, Scenario, Table
from scenarios.planner.plan import plan_tables
from scenarios.planner.plan_file import read_plan
from scenarios.planner.plan_text import format_plan
from scenarios.seam.errors import ScenarioError
from scenarios.workloads.build import build_simulation
from sim.run import simulate
from tests.mistakes import mistakes_of
from tests.scenarios.planner.test_pinned_plan import file
from tests.scenarios.planner.test_plan import MIB, cluster, scenario, table
from tests.small import change, with_model
from twinstep.scenario_files import main

INSIDE = Inside(kind="nvlink", link=Link(bytes_per_s=450e9, latency_ns=500), host_bytes_per_s=50e9)
ROWS = 400_000  # of 64 columns: 99.2 MiB with what row-wise Adagrad keeps; a GPU has 100 MiB
BIG = '{ name = "big", rows = 400_000_000, ids_per_sample = 3, %s }'  # 410 GB in float32


def make_hosted(kernel: str, load_factor: float = 0.2, count: int = 6, **changes: Any) -> Scenario:
    tables = [
        dataclasses.replace(
            table(f"t{number}", ROWS, ["row_wise"]), kernel=ComputeKernel(kernel), cache_load_factor=load_factor
        )
        for number in range(count)
    ]
    memory = changes.pop("host_memory", 1 << 40)
    on = cluster(1, 2, **changes)
    host = dataclasses.replace(on.host, inside=INSIDE, memory_bytes=memory)
    return scenario(tables, dataclasses.replace(on, host=host))


def test_tables_larger_than_all_gpus_fit_with_their_rows_in_host_memory() -> None:
    with pytest.raises(ScenarioError, match=r"expected all 6 tables together to fit into 2 ranks with 100 MiB each"):
        plan_tables(make_hosted("fused"))
    uvm, caching = plan_tables(make_hosted("fused_uvm")), plan_tables(make_hosted("fused_uvm_caching"))
    whole = 6 * ROWS * (64 * 4 + 4)
    assert sum(uvm.host_bytes) == sum(caching.host_bytes) == pytest.approx(whole, rel=1e-6)
    io = sum(uvm.storage_bytes)
    books = 6 * ROWS * (4 + 0.2 * 16)
    assert sum(caching.storage_bytes) - io == pytest.approx(0.2 * whole + books, rel=1e-6)
    assert io < MIB
    assert "host memory: fullest rank has 298 MiB there (rank 0)" in format_plan(uvm)
    assert all(row.host_bytes for row in uvm.rows)
    assert {row.compute_kernel for row in caching.rows} == {"fused_uvm_caching"}
    # weights by rank are those on the device
    assert uvm.weight_bytes == (0, 0)
    assert sum(caching.weight_bytes) == pytest.approx(0.2 * 6 * ROWS * 256, rel=1e-6)


def test_the_planner_knows_the_path_and_the_cache() -> None:
    """TorchRec's formulas: a tenth of the path to host memory, a tenth of a mean with HBM, or HBM with a prefetch."""

    def perf(made: Scenario) -> float:
        return max(plan_tables(made).perf_ms)

    fused, uvm, small, large = (
        perf(made)
        for made in (
            make_hosted("fused", count=1),
            make_hosted("fused_uvm", count=1),
            make_hosted("fused_uvm_caching", 0.1, count=1),
            make_hosted("fused_uvm_caching", 0.5, count=1),
        )
    )
    assert fused < large < small < uvm
    ahead = change(make_hosted("fused_uvm_caching", count=1), pipeline=Pipeline(kind="prefetch_sparse_dist"))
    assert perf(ahead) == fused


def test_host_memory_is_limited_too() -> None:
    assert mistakes_of(plan_tables, make_hosted("fused_uvm", host_memory=400 * MIB)) == [
        "test.toml: model.tables[0].rows = 400000: expected the rows of all tables that are in host memory to fit into"
        " 2 ranks with 200 MiB each of it; they take at least 595 MiB, 99.2 MiB of it for table 't0', which is the"
        " largest; to make room: more GPUs (cluster.hosts), 16-bit rows (model.embedding_dtype = 'float16') or more"
        " host memory (cluster.host_memory)",
    ]
    assert mistakes_of(plan_tables, make_hosted("fused_uvm", host_memory=80 * MIB, count=1)) == [
        "test.toml: model.tables[0].rows = 400000: expected table 't0' to fit into 2 ranks with 40 MiB each of host"
        " memory; as row_wise, the least demanding of its sharding types, it takes 49.6 MiB on one rank; to"
        " make room: more GPUs (cluster.hosts), 16-bit rows (model.embedding_dtype = 'float16') or more host memory"
        " (cluster.host_memory)",
    ]


def test_pinned_tables_are_held_against_host_memory() -> None:
    made = make_hosted("fused_uvm", host_memory=160 * MIB, count=1)
    pinned = dataclasses.replace(made.workload.tables[0], ranks=(1,), sharding=("table_wise",))
    made = with_model(made, tables=(pinned,))
    with pytest.raises(ScenarioError, match=r"in 80 MiB of its host's memory; most of it is table 't0'"):
        plan_tables(made)


def given_plan(kernel: str, **more: object) -> str:
    tables = {}
    for name, (kind, own) in {"copy": ("data_parallel", "dense"), "big": ("table_wise", kernel)}.items():
        shards = [{"shard_offsets": [0, 0], "shard_sizes": [4001, 256], "placement": "rank:1/cuda:1"}]
        tables[name] = {
            "sharding_type": kind,
            "compute_kernel": own,
            "ranks": [0, 1, 2, 3] if kind == "data_parallel" else [1],
            "sharding_spec": {"shards": shards} if kind == "table_wise" else None,
            **(more if name == "big" else {}),
        }
    return json.dumps({"ebc": tables})


TABLES = (
    '{ name = "copy", rows = 100, ids_per_sample = 3 }, { name = "big", rows = 4001, ids_per_sample = 3, ids ='
    " { zipf = 1.05 } }"
)


@pytest.mark.parametrize("kernel", ["fused_uvm", "fused_uvm_caching"])
def test_kernels_of_a_given_plan_are_taken_as_they_are(kernel: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(given_plan(kernel, cache_params={"load_factor": 0.4}))
    loaded = load(file(tmp_path, TABLES))
    assert [one.kernel for one in loaded.workload.tables] == ["fused", kernel]
    recording = simulate(loaded, build_simulation(loaded))
    assert {row.table: row.compute_kernel for row in recording.plan} == {"copy": "dense", "big": kernel}
    caches = [one for one in recording.spans if one.label.endswith("cache") and one.step == 0]
    assert bool(caches) == (kernel == "fused_uvm_caching")
    main(["plan", str(tmp_path / "s.toml"), "--out", str(tmp_path / "again.json")])
    again = read_plan(tmp_path / "again.json")["big"]
    assert (again.kernel, again.load_factor) == (kernel, 0.4 if kernel == "fused_uvm_caching" else None)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (given_plan("key_value"), "compute_kernel of table 'big' to be fused or fused_uvm or fused_uvm_caching"),
        (
            given_plan("fused_uvm_caching", cache_params={"load_factor": 2}),
            "a load_factor of table 'big' above 0 and at most 1, not 2",
        ),
    ],
)
def test_a_plan_with_other_kernels_is_a_sentence(plan: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan)
    with pytest.raises(ScenarioError, match=said):
        load(file(tmp_path, TABLES))


CACHED = given_plan("fused_uvm_caching")
UNLESS = "expected no cache_load_factor unless sharding.plan has the table as 'fused_uvm_caching'"


@pytest.mark.parametrize(
    ("plan", "keys", "said"),
    [
        (CACHED, "kernel = 'fused_uvm'", "expected no kernel with sharding.plan, which says it of every table"),
        (given_plan("fused_uvm"), "cache_load_factor = 0.3", UNLESS),
        (
            given_plan("fused_uvm_caching", cache_params={"load_factor": 0.4}),
            "cache_load_factor = 0.3",
            "expected no cache_load_factor with sharding.plan, which has the table's load_factor, 0.4",
        ),
    ],
)
def test_a_table_does_not_contradict_its_plan(plan: str, keys: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan)
    (sentence,) = mistakes_of(load, file(tmp_path, TABLES.replace("rows = 4001", f"rows = 4001, {keys}")))
    assert "model.tables[1]." in sentence
    assert sentence.endswith(said)


def test_a_table_says_how_much_a_cache_of_its_plan_holds(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(CACHED)
    loaded = load(file(tmp_path, TABLES.replace("rows = 4001", "rows = 4001, cache_load_factor = 0.3")))
    assert [(one.kernel, one.cache_load_factor) for one in loaded.workload.tables] == [
        ("fused", 0.2),
        ("fused_uvm_caching", 0.3),
    ]


def test_replicas_are_not_averaged_in_host_memory(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(given_plan("fused_uvm").replace("[0, 1, 2, 3]", "[0, 1]"))
    path = file(tmp_path, TABLES)
    path.write_text(f"{path.read_text()}[replication]\nsharding_group_size = 2\n")
    assert mistakes_of(load, path) == [
        f"{path}: sharding.plan = 'plan.json': expected tables that are 'fused' with replication, which averages rows"
        " in GPU memory, but it has 'big' as fused_uvm",
    ]


@pytest.mark.parametrize("kind", ["none", "prefetch_sparse_dist", "semi_sync"])
def test_replicas_are_not_averaged_while_their_rows_are_in_caches(kind: str, tmp_path: Path) -> None:
    """An average has caches written back and emptied, under the rows of batches that were fetched ahead."""
    path = file(tmp_path, '{ name = "t", rows = 4000, ids_per_sample = 3, kernel = "fused_uvm_caching" }', "")
    path.write_text(f"{path.read_text()}[replication]\nsharding_group_size = 2\n[pipeline]\nkind = '{kind}'\n")
    assert mistakes_of(load, path) == [
        f"{path}: model.tables[0].kernel = 'fused_uvm_caching': expected 'fused' with replication, which averages rows"
        " in GPU memory",
    ]


@pytest.mark.parametrize(
    ("table_keys", "cluster_keys", "said"),
    [
        (
            'kernel = "fused_uvm"',
            "inside = { host_rate = '50 GB/s', gpus_per_host_link = 0 }",
            "cluster.inside.gpus_per_host_link = 0: expected",
        ),
        (
            "cache_load_factor = 0.3",
            "",
            "cache_load_factor = 0.3: expected no cache_load_factor unless kernel = 'fused_uvm_caching'",
        ),
        (
            'kernel = "fused_uvm", sharding = ["data_parallel"]',
            "",
            "kernel = 'fused_uvm': expected 'fused', because the table may be data_parallel only",
        ),
    ],
)
def test_keys_that_do_not_fit_together(table_keys: str, cluster_keys: str, said: str, tmp_path: Path) -> None:
    path = file(tmp_path, f'{{ name = "t", rows = 4000, ids_per_sample = 3, {table_keys} }}', "")
    path.write_text(path.read_text().replace("gpus_per_host = 2\n", f"gpus_per_host = 2\n{cluster_keys}\n"))
    assert any(said in sentence for sentence in mistakes_of(load, path))


def test_a_file_whose_tables_are_larger_than_memory_runs(tmp_path: Path) -> None:
    """400 GB of rows on 4 H100 of 80 GB: refused as fused, simulated with their rows in host memory."""
    with pytest.raises(ScenarioError, match="expected at most"):
        load(file(tmp_path, BIG % 'kernel = "fused"', ""))
    loaded = load(file(tmp_path, BIG % 'kernel = "fused_uvm_caching", cache_load_factor = 0.1', ""))
    recording = simulate(loaded.with_run(payload="sizes"), build_simulation(loaded))
    assert any(row.link_class == "host" and row.bytes_carried for row in recording.links)


def test_a_path_to_host_memory_is_needed(tmp_path: Path) -> None:
    """Of a profile without one, a sentence says what is missing and which table needs it."""
    text = (Path(__file__).parents[3] / "scenarios/profiles/dgx_h100.toml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("host_rate")]
    (tmp_path / "mine.toml").write_text("\n".join(lines) + "\n")
    path = file(tmp_path, '{ name = "t", rows = 4000, ids_per_sample = 3, kernel = "fused_uvm" }', "")
    path.write_text(path.read_text().replace('"dgx_h100"', '"./mine.toml"'))
    (sentence,) = mistakes_of(load, path)
    assert sentence.endswith(
        "cluster.inside.host_rate: missing; expected a GPU's rate to its host's memory, such as '25 GB/s' over PCIe"
        " 4.0, because table 't' is fused_uvm"
    )


def test_tables_in_host_memory_have_no_copies() -> None:
    """The planner leaves data_parallel out, which TorchRec looks up by the dense kernel."""
    made = make_hosted("fused_uvm", count=1)
    free: Table = dataclasses.replace(made.workload.tables[0], rows=10, sharding=("data_parallel", "row_wise"))
    made = with_model(made, tables=(free,))
    assert {row.sharding_type for row in plan_tables(made).rows} == {"row_wise"}
