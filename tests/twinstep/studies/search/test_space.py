"""Axes as parameters: what is ordered, and which point each choice of them is."""

from __future__ import annotations

from pathlib import Path

from optuna.distributions import CategoricalDistribution, IntDistribution

from twinstep.studies.search.journal import Space
from twinstep.studies.search.proposals import proposals
from twinstep.studies.study_file import Study, read_study

STUDY = """
scenario = "criteo_dlrm_2x4"
[vary]
"cluster.nic.rate" = {from = "100 Gbit/s", to = "400 Gbit/s", times = 2}
"cluster.inside.rate" = ["1 Gbit/s", "1 GB/s"]
"compression.kind" = ["none", "batched_powersgd"]
"compression.matrix_approximation_rank" = {values = [1, 4], only_if = {"compression.kind" = "batched_powersgd"}}
"run.batch_size" = [1024, 8192, 4096]
"model.tables[0,9-11].sharding" = [["table_wise"], ["row_wise"], ["table_row_wise", "row_wise"]]
"model.tables[19-22].sharding" = [["table_row_wise"], ["table_wise", "table_row_wise"]]
"sharding.choose" = ["estimated", "simulated"]
"model.autocast" = {values = ["float16", "bfloat16"], or_unset = true}
[[vary.together]]
"cluster.hosts" = [2, 4]
"cluster.gpus_per_host" = [4, 8]
"""
NAMES = [
    "cluster.nic.rate",
    "cluster.inside.rate",
    "compression.kind",
    "compression.matrix_approximation_rank",
    "run.batch_size",
    "model.tables[0,9-11].sharding",
    "model.tables[19-22].sharding",
    "sharding.choose",
    "model.autocast",
    "cluster.hosts, cluster.gpus_per_host",
]


def study_in(folder: Path) -> Study:
    (folder / "study.toml").write_text(STUDY)
    return read_study(folder / "study.toml")


def test_rising_numbers_and_quantities_are_ranges_and_all_else_is_a_choice(tmp_path: Path) -> None:
    found = Space(study_in(tmp_path)).distributions
    assert list(found) == NAMES
    ordered = {name for name, kind in found.items() if isinstance(kind, IntDistribution)}
    assert ordered == {NAMES[0], NAMES[3], NAMES[9]}
    assert found[NAMES[0]] == IntDistribution(0, 2)
    assert found[NAMES[4]] == CategoricalDistribution(range(3))


def test_parameters_are_a_point_and_its_values_are_parameters_again(tmp_path: Path) -> None:
    space = Space(study_in(tmp_path))
    params = dict.fromkeys(NAMES, 1)
    values = space.values(params)
    assert values["cluster.nic.rate"] == "200 Gbit/s"
    assert (values["cluster.hosts"], values["cluster.gpus_per_host"]) == (4, 8)
    assert values["compression.matrix_approximation_rank"] == 4
    assert space.params(values) == params
    assert "compression.matrix_approximation_rank" not in space.values({**params, "compression.kind": 0})
    assert values["model.autocast"] == "bfloat16"
    assert "model.autocast" not in space.values({**params, "model.autocast": 2})
    # Hosts without GPUs are no value of what is varied together; what may be unset is.
    assert space.params({"cluster.hosts": 2, "run.batch_size": 8192}) == {"run.batch_size": 1, "model.autocast": 2}


def test_a_search_begins_with_the_baseline_and_what_the_planner_proposes(tmp_path: Path) -> None:
    study = study_in(tmp_path)
    found = list(proposals(study))
    base = {
        "cluster.nic.rate": "400 Gbit/s",
        "run.batch_size": 8192,
        "cluster.hosts": 2,
        "cluster.gpus_per_host": 4,
    }
    assert all(base.items() <= one.items() for one in found)
    assert [one.get("sharding.choose") for one in found[:3]] == [None, "estimated", "simulated"]
    large, small = NAMES[5], NAMES[6]
    # Then the planner's own plan, and each type alone: by the values that allow most of it and least else.
    own, *alone = [(one.get(large), one.get(small)) for one in found[3:]]
    assert own[0] is not None
    assert alone == [
        (["row_wise"], ["row_wise", "table_row_wise", "table_wise"]),  # no value of the second allows it: as it is
        (["table_row_wise", "row_wise"], ["table_row_wise"]),
        (["table_wise"], ["table_wise", "table_row_wise"]),
    ]
