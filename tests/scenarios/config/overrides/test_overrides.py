from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from scenarios.config.load import load
from scenarios.config.overrides.option import parse_values, value_of
from scenarios.seam.errors import ScenarioError
from tests.mistakes import mistakes_of

READY = "criteo_dlrm_2x4"


def sentences(overrides: Mapping[str, object], **more: str) -> list[str]:
    return mistakes_of(load, READY, overrides, **more)


def test_any_key_is_set_by_its_path_also_what_only_the_profile_has() -> None:
    made = load(
        READY,
        {
            "cluster.hosts": 8,
            "cluster.nic.rate": "200 Gbit/s",
            "model.tables[3].sharding": ["row_wise"],
            "compression": {"kind": "none"},
        },
    )
    assert made.cluster.hosts == 8
    assert made.cluster.host.nics.link.bytes_per_s == 25e9
    assert made.workload.tables[3].sharding == ("row_wise",)
    assert made.workload.tables[2].sharding != ("row_wise",)
    assert made.rests_on.endswith("set by the scenario: nic.rate")


def test_every_item_of_an_array_is_set_at_once_and_then_one_otherwise() -> None:
    made = load(READY, {"model.tables[*].sharding": ["row_wise"], "model.tables[1].sharding[0]": "table_wise"})
    assert {table.name: table.sharding for table in made.workload.tables if table.sharding != ("row_wise",)} == {
        made.workload.tables[1].name: ("table_wise",)
    }


@pytest.mark.parametrize("key", ["model.tables[0-2,25]", "model.tables[25,2,0-1]", "model.tables[0-2,1,25]"])
def test_several_items_of_an_array_are_set_by_indices_and_ranges(key: str) -> None:
    made = load(READY, {f"{key}.sharding": ["row_wise"], f"{key}.rows": 77})
    changed = [table.sharding == ("row_wise",) and table.rows == 77 for table in made.workload.tables]
    assert [index for index, is_changed in enumerate(changed) if is_changed] == [0, 1, 2, 25]


def test_the_profile_can_be_set_by_its_path() -> None:
    assert load(READY, {"cluster.profile": "hgx_h200"}) == load(READY, {"profile": "hgx_h200"})


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("cluster.hosts", 0, "--set cluster.hosts = 0: expected a whole number of at least 1"),
        ("cluster.nic", {"rat": 3}, "--set cluster.nic.rat = 3: unknown key; expected one of per, count, rate,"),
        ("cluster.nik.rate", "3", "--set cluster.nik = {rate = '3'}: unknown key; expected one of profile, hosts,"),
        (
            "model.tables[30].rows",
            3,
            "--set model.tables[30].rows = 3: expected an index of model.tables, which has 26, [0] to [25]",
        ),
        (
            "model.tables[3,20-30].rows",
            3,
            "--set model.tables[3,20-30].rows = 3: expected an index of model.tables, which has 26, [0] to [25]",
        ),
        ("model.tables[3-1].rows", 3, "--set model.tables[3-1].rows = 3: expected a key's path, such as cluster.hosts"),
        (
            "cluster.nic[2]",
            3,
            "--set cluster.nic[2] = 3: expected a place that the scenario has, but cluster.nic is no array",
        ),
        ("a..b", 3, "--set a..b = 3: expected a key's path, such as cluster.hosts or model.tables[3].rows"),
        ("cluster.profile", "dgx", "--set cluster.profile = 'dgx': expected one of "),
    ],
)
def test_mistakes_are_those_of_files(key: str, value: object, sentence: str) -> None:
    (said,) = sentences({key: value})
    assert said.startswith(sentence)


def test_mistakes_name_the_file_in_which_overrides_stand() -> None:
    assert sentences({"cluster.hosts": 0, "steps": 0}, overrides_file="study.toml") == [
        "study.toml: run.steps = 0: expected a whole number of at least 1",
        "study.toml: cluster.hosts = 0: expected a whole number of at least 1",
    ]


def test_overrides_are_not_changed_by_what_is_put_into_them(tmp_path: Path) -> None:
    given = {"run": {"steps": 3, "batch_size": 8}, "run.steps": 5}
    with pytest.raises(ScenarioError):
        load(READY, given | {"run.stepz": 1})
    assert given == {"run": {"steps": 3, "batch_size": 8}, "run.steps": 5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("0.5", 0.5),
        ("true", True),
        ("200 Gbit/s", "200 Gbit/s"),
        ('"200 Gbit/s"', "200 Gbit/s"),
        ("nccl", "nccl"),
        ('["row_wise"]', ["row_wise"]),
        ('{kind = "none"}', {"kind": "none"}),
        ("1\nseed = 2", "1\nseed = 2"),
        ("", ""),
    ],
)
def test_a_value_is_toml_or_else_text(text: str, value: object) -> None:
    assert value_of(text) == value


def test_the_last_value_of_a_key_counts_and_what_is_none_is_a_sentence() -> None:
    assert parse_values(["cluster.hosts=2", "run.seed=1", "cluster.hosts=8"]) == {"run.seed": 1, "cluster.hosts": 8}
    expected = "expected KEY=VALUE, such as cluster.hosts=8 or model.tables[3].rows=1000"
    assert mistakes_of(parse_values, ["cluster.hosts", "=3", "model.tables[x]=1", "run.seed=1"]) == [
        f"--set 'cluster.hosts': {expected}",
        f"--set '=3': {expected}",
        f"--set 'model.tables[x]=1': {expected}",
    ]


SET = """include = "criteo_dlrm_2x4"
[run]
steps = 4
[set]
"run.steps" = 5
"model.tables[0-3].sharding" = ["row_wise"]
"cluster.nic.rate" = "200 Gbit/s"
"cluster.network" = {kind = "leaf_spine", hosts_per_leaf = 2, oversubscription = 2}
"""


def test_a_file_may_set_keys_by_their_paths_over_what_it_includes(folder: Path) -> None:
    (folder / "a.toml").write_text(SET)
    network = {"kind": "leaf_spine", "hosts_per_leaf": 2, "oversubscription": 2}
    same = load(
        READY,
        {
            "steps": 5,
            "model.tables[0-3].sharding": ["row_wise"],
            "cluster.nic.rate": "200 Gbit/s",
            "cluster.network": network,
        },
    )
    assert {**load("a.toml").as_dict(), "name": "", "path": ""} == {**same.as_dict(), "name": "", "path": ""}
    assert load("a.toml", {"run.steps": 6}).run.steps == 6
    (folder / "b.toml").write_text('include = "a.toml"\n[set]\n"run.steps" = 7\n')
    assert load("b.toml").run.steps == 7
    assert load("b.toml").cluster.network == same.cluster.network


def test_mistakes_in_set_name_the_file_in_which_they_stand(folder: Path) -> None:
    (folder / "parts").mkdir()
    (folder / "parts" / "a.toml").write_text(SET.replace("0-3", "9-30") + '"compute_times" = "none.csv"\n')
    (folder / "b.toml").write_text('include = "parts/a.toml"\n[set]\n"run.steps" = 0\n')
    assert mistakes_of(load, "b.toml") == [
        "parts/a.toml: model.tables[9-30].sharding = ['row_wise']: expected an index of model.tables, which has 26,"
        " [0] to [25]",
        "b.toml: run.steps = 0: expected a whole number of at least 1",
        "parts/a.toml: run.compute_times = 'none.csv': expected parts/none.csv to be a file",
    ]
    (folder / "b.toml").write_text(f'include = "{READY}"\nset = 3\n')
    with pytest.raises(ScenarioError, match=r"^b.toml: set = 3: expected a table of values by their keys' paths, such"):
        load("b.toml")
