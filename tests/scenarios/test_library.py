"""The ready scenarios and profiles load, fit their schema, and say what their names and sources promise."""

from __future__ import annotations

import json
import pickle
import time
import tomllib
from pathlib import Path

import pytest

from scenarios.config.catalogue import failure_profiles, library_files, profile_files, profile_names
from scenarios.config.load import load, load_profile
from scenarios.config.scenario import CollectiveCalls, GradientReduction, Model, Recommender, Scenario
from scenarios.config.toml.document import editors_document
from twinstep.scenario_files import main

FILES = {path.stem: path for path in library_files()}
GPUS = {
    **{"dcnv2": (1, 8), "v1": (1, 8), "2x2": (2, 2), "2x4": (2, 4), "4x1": (4, 1), "4x2": (4, 2)},
    **{"8x8": (8, 8), "16x1": (16, 1), "2048x8": (2048, 8)},
}

JOBS = {  # hosts and GPUs of a host, as published
    **{"job_llama3": (2048, 8), "job_megascale": (1536, 8), "job_hlat": (256, 16), "job_opt": (128, 8)},
    **{"job_bloom": (48, 8), "job_cpr": (1, 8), "job_best_interval": (1, 8)},  # those of the last two do not count
}


def model_of(name: str) -> tuple[Scenario, Model]:
    scenario = load(FILES[name])
    return scenario, Recommender.of(scenario.workload).model


def test_the_library_is_complete() -> None:
    assert sorted(FILES) == [
        "all_reduce_4x1_200mbit",
        "all_to_all_4x2",
        "criteo_dlrm_2x4",
        "criteo_dlrm_2x4_straggler",
        "criteo_dlrm_8x8",
        "criteo_small_2x2",
        "job_best_interval",
        "job_bloom",
        "job_cpr",
        "job_hlat",
        "job_llama3",
        "job_megascale",
        "job_opt",
        "mlperf_dcnv2",
        "mlperf_dlrm_v1",
        "mlperf_dlrm_v1_pytorch_v0_7",
        "mlperf_dlrm_v1_pytorch_v1_0",
        "mlperf_dlrm_v1_v0_7",
        "mlperf_dlrm_v1_v1_0",
        "powersgd_16x1_10g",
        "powersgd_4x2_3g",
        "twrw_2048x8",
        "twrw_2x2",
    ]


@pytest.mark.parametrize("name", FILES)
def test_a_ready_scenario_has_the_size_in_its_name_and_is_the_same_wherever_it_is_loaded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = load(str(FILES[name]))
    assert scenario.name == name
    size = JOBS.get(name) or next(size for part in name.split("_") for key, size in GPUS.items() if part == key)
    assert (scenario.cluster.hosts, scenario.cluster.host.gpus) == size
    assert pickle.loads(pickle.dumps(scenario)) == scenario
    assert json.loads(json.dumps(scenario.as_dict())) == scenario.as_dict()
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()  # no file
    again = load(name)
    assert again == scenario
    assert again.digest() == scenario.digest()


@pytest.mark.parametrize("path", [*library_files(), *profile_files()], ids=lambda path: path.stem)
def test_ready_scenarios_fit_the_schema_and_have_a_description(path: Path) -> None:
    values = tomllib.loads(path.read_text())
    values.pop("include", None)  # checked by loading
    document = editors_document().model_validate(values, context={})
    assert document.description


@pytest.mark.parametrize("path", failure_profiles(), ids=lambda path: path.stem)
def test_a_failure_profile_has_rates_with_source_date_and_grade(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        f'[cluster]\nprofile = "dgx_h100"\nhosts = 2\n[job]\nstep = "1 s"\nfailures.profile = "{path.stem}"\n'
    )
    job = load(file).job
    assert job is not None
    failures = job.failures
    assert "" not in (failures.source, failures.date)
    assert failures.grade in ("read", "memory")
    assert all(kind.per_s(1, 8) > 0 for kind in failures.kinds)
    assert tomllib.loads(path.read_text())["description"]


def test_the_failures_of_llama_3_are_those_of_its_table() -> None:
    job = load(FILES["job_llama3"]).job
    assert job is not None
    counts = {kind.name: kind.per_s(2048, 16_384) * 54 * 86_400 for kind in job.failures.kinds}
    assert sum(counts.values()) == pytest.approx(466, rel=1e-4)
    assert (counts["faulty GPU"], counts["network switch or cable"]) == pytest.approx((148, 35), rel=1e-4)
    assert [kind.name for kind in job.failures.kinds if kind.planned] == ["planned"]
    assert counts["planned"] == pytest.approx(47, rel=1e-4)


@pytest.mark.parametrize("name", profile_names())
def test_profiles_are_whole_hosts(name: str) -> None:
    cluster = load_profile(name)
    assert (cluster.profile, cluster.hosts) == (name, 1)
    efficiency = cluster.host.gpu.efficiency
    assert set(efficiency) >= {"gemm", "embedding_lookup", "default"}
    assert "float32" in cluster.host.gpu.flops_per_s


def test_a_profile_has_the_figures_of_its_data_sheet() -> None:
    host = load_profile("dgx_h100").host
    assert (host.gpus, host.gpu.memory_bytes_per_s) == (8, 3.35e12)
    assert (host.gpu.flops_per_s["float32"], host.gpu.flops_per_s["bfloat16"]) == (67e12, 989.4e12)
    assert (host.inside.kind, host.inside.link.bytes_per_s) == ("nvlink", 450e9)
    assert (host.nics.per, host.nics.count, host.nics.link.bytes_per_s) == ("gpu", 8, 50e9)


@pytest.mark.parametrize(
    ("name", "gib"), [("dgx_h100", 79.11), ("dgx_a100", 79.25), ("hgx_h200", 139.8), ("dgx1_v100", 31.74)]
)
def test_a_profile_has_the_memory_that_torch_has(name: str, gib: float) -> None:
    """A data sheet's 80 GB are 6 % more than 80e9 bytes."""
    assert load_profile(name).host.gpu.memory_bytes == pytest.approx(gib * 2**30, abs=1)


@pytest.mark.parametrize("name", ["criteo_dlrm_2x4", "criteo_dlrm_8x8"])
def test_criteo_is_the_model_of_mlperf(name: str) -> None:
    scenario, model = model_of(name)
    assert scenario.run.batch_size * scenario.cluster.world_size == 65536
    assert len(model.tables) == 26
    assert sum(table.rows for table in model.tables) == 204_184_588
    assert sum(table.ids_per_sample for table in model.tables) == 214
    assert {table.dim for table in model.tables} == {128}
    assert (model.dense_features, model.bottom, model.top) == (13, (512, 256, 128), (1024, 1024, 512, 256, 1))
    assert (model.interaction.kind, model.interaction.layers, model.interaction.low_rank) == ("dcn", 3, 512)
    assert (scenario.run.payload, scenario.run.library) == ("sizes", "nccl")
    types = {kind for table in model.tables for kind in table.sharding}
    assert types == {"table_row_wise", "table_wise", "row_wise", "data_parallel"}
    assert all(table.rows < 1000 for table in model.tables if "data_parallel" in table.sharding)


def test_criteo_scenarios_of_two_sizes_have_the_same_model() -> None:
    (small, small_model), (large, large_model) = model_of("criteo_dlrm_2x4"), model_of("criteo_dlrm_8x8")
    assert small_model == large_model
    assert (small.run.fidelity, large.run.fidelity) == ("flows", "links")


def test_criteo_fits_eight_gpus_only_when_spread() -> None:
    scenario, model = model_of("criteo_dlrm_2x4")
    weights = sum(table.rows * table.dim * 4 for table in model.tables)
    room = scenario.cluster.host.gpu.memory_bytes * (1 - Recommender.of(scenario.workload).planner.reserved_share)
    assert room < weights < room * scenario.cluster.world_size


def test_small_criteo_has_all_four_shardings_and_both_kinds_of_reduction() -> None:
    scenario, model = model_of("criteo_small_2x2")
    _, whole = model_of("criteo_dlrm_2x4")
    assert [table.rows for table in model.tables] == [min(table.rows, 2000) for table in whole.tables]
    only = {table.sharding[0] for table in model.tables if len(table.sharding) == 1}
    assert only == {"table_row_wise", "table_wise", "row_wise", "data_parallel"}
    run = scenario.run
    assert (run.payload, run.library, run.batch_size, run.steps) == ("values", "gloo", 64, 4)
    assert scenario.workload.compression.kind == "batched_powersgd"
    assert 0 < scenario.workload.compression.start_powerSGD_iter < scenario.run.steps


def test_twrw_has_three_jagged_tables_of_one_sharding() -> None:
    scenario, model = model_of("twrw_2x2")
    assert [table.sharding for table in model.tables] == [("table_row_wise",)] * 3
    assert {table.ids_per_sample_kind for table in model.tables} == {"poisson"}
    assert model.tables[2].ids.kind == "file"
    assert scenario.run.payload == "values"


def test_powersgd_reduces_resnet50_before_and_after_it_starts() -> None:
    scenario = load(FILES["powersgd_16x1_10g"])
    assert len(GradientReduction.of(scenario.workload).shapes) == 161
    assert scenario.workload.compression.matrix_approximation_rank == 4
    assert 0 < scenario.workload.compression.start_powerSGD_iter < scenario.run.steps
    assert scenario.cluster.host.nics.link.bytes_per_s == 1.25e9


def test_all_to_all_draws_its_splits() -> None:
    scenario = load(FILES["all_to_all_4x2"])
    calls = CollectiveCalls.of(scenario.workload)
    assert (calls.splits, calls.size_bytes) == ("random", 2**20)


def test_a_file_in_the_working_directory_comes_before_a_ready_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = FILES["all_to_all_4x2"].read_text()
    (tmp_path / "twrw_2x2").write_text(text)
    assert (load("twrw_2x2").program, load("twrw_2x2").path) == ("all_to_all", Path("twrw_2x2"))


def test_below_the_working_directory_a_ready_scenario_has_a_relative_path(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = FILES["twrw_2x2"].parent
    monkeypatch.chdir(folder.parent)
    assert load("twrw_2x2").path == Path(folder.name, "twrw_2x2.toml")


def test_loading_is_quick_once_python_is_warm() -> None:
    load(FILES["criteo_dlrm_8x8"])
    start = time.process_time()
    load(FILES["criteo_dlrm_8x8"])
    assert time.process_time() - start < 0.3


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("list", sorted(FILES)),
        ("profiles", [*profile_names(), *(path.stem for path in failure_profiles())]),
        ("schema", ["$schema"]),
        ("keys", ["`batch_size`"]),
    ],
)
def test_the_command_prints_what_is_ready(
    command: str, named: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command]) == 0
    printed = capsys.readouterr().out
    assert [name for name in named if name not in printed] == []
    assert command not in ("list", "profiles") or max(map(len, printed.split("\nfiles: ")[0].splitlines())) <= 80
