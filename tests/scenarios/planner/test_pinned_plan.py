"""Plans and pins that a scenario gives: they are what is planned, and what no rank can hold is a sentence."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.load import load
from scenarios.config.scenario import PlanFile, Recommender, Scenario
from scenarios.planner.plan import plan_tables
from scenarios.planner.plan_file import plan_json, read_plan
from scenarios.planner.plan_text import format_plan
from scenarios.seam.errors import ScenarioError
from scenarios.workloads.build import build_simulation
from sim.run import simulate
from tests.mistakes import mistakes_of
from tests.scenarios.planner.test_plan import ALL, MIB, cluster, scenario, table, tables_of_any_kind
from tests.small import change, model_of
from twinstep.scenario_files import main

TORCHREC = Path(__file__).parents[2] / "data/plans/torchrec_1_8.json"  # written by benchmarks.torchrec_plan
MODEL = """
program = "dlrm"
[cluster]
profile = "dgx_h100"
hosts = 2
gpus_per_host = 2
[run]
batch_size = 64
[model]
dense_features = 4
bottom = [256]
top = [1]
interaction = {{ kind = "cat" }}
embedding_dim = 256
tables = [{tables}]
[sharding]
{sharding}
"""


def file(folder: Path, tables: str = "", sharding: str = 'plan = "plan.json"') -> Path:
    """A scenario file; by default with the tables of TorchRec's plan."""
    ready = ", ".join(f'{{ name = "t_{kind}", rows = 1001, ids_per_sample = 3 }}' for kind in ALL)
    (folder / "s.toml").write_text(MODEL.format(tables=tables or ready, sharding=sharding))
    return folder / "s.toml"


def with_plan(asked: Scenario, path: Path, text: str) -> Scenario:
    """The scenario with what it would have read from a file."""
    path.write_text(text)
    types = {name: (str(each.sharding_type),) for name, each in read_plan(path).items()}
    tables = tuple(dataclasses.replace(each, sharding=types[each.name]) for each in asked.workload.tables)  # type: ignore[arg-type]
    plan = PlanFile(path=path, sha256=hashlib.sha256(text.encode()).hexdigest())
    planner = dataclasses.replace(Recommender.of(asked.workload).planner, plan=plan)
    return change(asked, model=dataclasses.replace(model_of(asked), tables=tables), planner=planner)


def test_a_plan_of_torchrec_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(TORCHREC.read_text())
    loaded = load(file(tmp_path))
    plan = plan_tables(loaded)
    (tables,) = json.loads(TORCHREC.read_text()).values()
    for planned in plan.tables:
        parameter = tables[planned.name]
        assert (planned.sharding_type, planned.compute_kernel) == (
            parameter["sharding_type"],
            parameter["compute_kernel"],
        )
        assert sorted(shard.rank for shard in planned.shards) == sorted(parameter["ranks"])
        if parameter["sharding_spec"] is None:
            continue
        places = [
            ([row.row_offset, row.column_offset], [row.rows, row.columns], f"rank:{row.rank}/cuda:{row.rank % 2}")
            for row in planned.shards
        ]
        shards = parameter["sharding_spec"]["shards"]
        assert places == [(each["shard_offsets"], each["shard_sizes"], each["placement"]) for each in shards]
    assert json.loads(plan_json(plan, 2, "cuda")) == json.loads(TORCHREC.read_text())
    recording = simulate(loaded, build_simulation(loaded))
    assert {row.table: row.sharding_type for row in recording.plan} == {f"t_{kind}": kind for kind in ALL}
    assert format_plan(plan).endswith("plan: as given")


def test_a_different_plan_changes_the_digest(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(TORCHREC.read_text())
    before = load(file(tmp_path)).digest()
    (tables,) = json.loads(TORCHREC.read_text()).values()
    tables["t_table_wise"]["ranks"] = [1]
    tables["t_table_wise"]["sharding_spec"]["shards"][0]["placement"] = "rank:1/cuda:1"
    (tmp_path / "plan.json").write_text(json.dumps({"m": tables}))
    assert load(file(tmp_path)).digest() != before


@given(tables=tables_of_any_kind, hosts=st.integers(1, 3), gpus=st.integers(1, 3))
def test_a_plan_that_was_written_is_the_same_when_read(tables: list[Any], hosts: int, gpus: int) -> None:
    asked = scenario(tables, cluster(hosts, gpus, 1 << 40))
    plan = plan_tables(asked)
    with tempfile.TemporaryDirectory() as folder:
        given_plan = with_plan(asked, Path(folder, "plan.json"), plan_json(plan, gpus, "cuda", "any.module"))
        again = plan_tables(given_plan)
    assert (again.tables, again.rows) == (plan.tables, plan.rows)
    assert (again.weight_bytes, again.storage_bytes) == (plan.weight_bytes, plan.storage_bytes)
    assert again.perf_ms == pytest.approx(plan.perf_ms)


def test_shards_on_all_of_many_ranks_stay_runs(tmp_path: Path) -> None:
    asked = scenario([table("r", 10**6, ["row_wise"]), table("d", 100, ["data_parallel"])], cluster(64, 8, 1 << 40))
    written = plan_json(plan_tables(asked), 8, "cuda")
    again = plan_tables(with_plan(asked, tmp_path / "plan.json", written))
    assert len(again.row_runs.runs) == len(plan_tables(asked).row_runs.runs) <= 4


# Table, what is changed of it, what of its shards by their place in the file, and what is said of it.
MISTAKES: list[tuple[str, dict[str, Any] | None, dict[int, dict[str, Any]], str]] = [
    ("row_wise", None, {}, "expected a place for each of the model's tables, but it has none for 't_row_wise'"),
    ("row_wise", {"compute_kernel": "key_value"}, {},
     "expected compute_kernel of table 't_row_wise' to be fused or fused_uvm or fused_uvm_caching, not \"key_value\""),
    ("row_wise", {"sharding_type": "rows"}, {},
     "expected sharding_type of table 't_row_wise' to be data_parallel or table_wise or"),
    ("row_wise", {"sharding_spec": None}, {},
     "expected a sharding_spec of table 't_row_wise' as a JSON object, not null"),
    ("row_wise", {"sharding_spec": {}}, {},
     "expected a list of shards in the sharding_spec of table 't_row_wise'"),
    ("row_wise", {}, {0: {"shard_sizes": [1, -1]}},
     "expected shard_sizes of table 't_row_wise' as 2 whole numbers of at least 0, not [1, -1]"),
    ("row_wise", {}, {0: {"shard_sizes": [0, 0]}},
     "expected shard_sizes of table 't_row_wise' with at least 1 column, not [0, 0]"),
    ("row_wise", {}, {0: {"placement": "cuda:0"}},
     "expected placements such as 'rank:0/cuda:0', but table 't_row_wise' has \"cuda:0\""),
    ("row_wise", {}, {0: {"shard_sizes": [250, 256]}, 1: {"shard_offsets": [250, 0], "shard_sizes": [252, 256]}},
     "table 't_row_wise' (row_wise): rows 0 to 250 on rank 0, expected rows 0 to 251 on rank 0"),
    ("table_wise", {"ranks": [3]}, {},
     "expected ranks of table 't_table_wise' to be those of its shards, [0], not [3]"),
    ("table_wise", {}, {0: {"shard_sizes": [9, 256]}},
     "expected shards of 1001 x 256 for table 't_table_wise', but they make up 9 x 256"),
    ("table_wise", {"ranks": None}, {0: {"placement": "rank:4/cuda:0"}},
     "table 't_table_wise' (table_wise): expected ranks 0 to 3, not 4"),
    ("data_parallel", {"ranks": []}, {}, "expected ranks of table 't_data_parallel', which is data_parallel"),
    ("data_parallel", {"ranks": [0, 1]}, {},
     "table 't_data_parallel' (data_parallel): expected a shard on each of 4 ranks, not 2"),
    ("column_wise", {}, {0: {"shard_sizes": [1001, 256]}},
     "table 't_column_wise' (column_wise): its shards hold columns"),
    ("table_column_wise", {"ranks": None}, {0: {"placement": "rank:0/cuda:0"}, 1: {"placement": "rank:2/cuda:0"}},
     "table 't_table_column_wise' (table_column_wise): expected ranks of one host, not [0, 2]"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "of_shards", "sentence"), MISTAKES)
def test_mistakes_in_a_plan_are_one_sentence(
    kind: str,
    fields: dict[str, Any] | None,
    of_shards: dict[int, dict[str, Any]],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tables,) = json.loads(TORCHREC.read_text()).values()
    if fields is None:
        del tables[f"t_{kind}"]
    else:
        tables[f"t_{kind}"].update(fields)
    for index, values in of_shards.items():
        tables[f"t_{kind}"]["sharding_spec"]["shards"][index].update(values)
    assert sentence in refusal({"m": tables}, tmp_path, monkeypatch)


def test_tables_twice_or_unknown_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tables,) = json.loads(TORCHREC.read_text()).values()
    twice = {"m": tables, "n": {"t_row_wise": tables["t_row_wise"]}}
    assert "expected each table once, but plan.json has 't_row_wise' in" in refusal(twice, tmp_path, monkeypatch)
    more = {"m": {**tables, "new": tables["t_row_wise"]}}
    assert "expected no tables but the model's, but it has 'new'" in refusal(more, tmp_path, monkeypatch)


def refusal(plan: object, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The one sentence that is said of a plan."""
    monkeypatch.chdir(folder)
    Path("plan.json").write_text(json.dumps(plan))
    file(Path())
    (said,) = mistakes_of(lambda: build_simulation(load("s.toml")))
    assert said.startswith("s.toml: sharding.plan = 'plan.json': ")
    return said


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        (None, "expected plan.json to be a file"),
        ("{", "expected a plan in JSON, but plan.json is none: "),
        ("[1]", "expected modules as a JSON object, not [1]"),
        ('{"m": 1}', "expected tables of module 'm' as a JSON object, not 1"),
        ('{"m": {"t": []}}', "expected a ParameterSharding of table 't' as a JSON object, not []"),
        ("[" * 100_000, "expected a plan in JSON, but plan.json is none: "),
        ('{"m": {}, "m": {}}', "expected a plan in JSON, but plan.json is none: key 'm' is given twice in one object"),
    ],
)
def test_files_that_are_no_plan_are_one_sentence(
    text: str | None, phrase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("plan.json").write_text(text)
    file(Path())
    assert mistakes_of(load, "s.toml")[0].startswith(f"s.toml: sharding.plan = 'plan.json': {phrase}")


def test_more_than_a_rank_holds_names_it_and_the_table(tmp_path: Path) -> None:
    tables = [table("small", 1000, ["table_wise"]), table("large", 300_000, ["table_wise"])]
    plan = json.loads(plan_json(plan_tables(scenario(tables, cluster(1, 2))), 2, "cuda", "m"))
    for each in plan["m"].values():
        each["ranks"] = None
        each["sharding_spec"]["shards"][0]["placement"] = "rank:1/cuda:1"
    asked = with_plan(scenario(tables, cluster(1, 2, 70 * MIB)), tmp_path / "plan.json", json.dumps(plan))
    with pytest.raises(ScenarioError, match=r"expected rank 1 to have room .* most of it is table 'large' with 7[45]"):
        plan_tables(asked)


def test_the_command_writes_a_plan_and_never_over_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file(Path(), sharding='types = ["table_wise"]')
    assert main(["plan", "s.toml", "--out", "plan.json", "--module", "ebc"]) == 0
    assert capsys.readouterr().out.endswith("plan: plan.json\n")
    assert list(json.loads(Path("plan.json").read_text())) == ["ebc"]
    with pytest.raises(SystemExit, match="2"):
        main(["plan", "s.toml", "--out", "plan.json"])
    assert capsys.readouterr().err == (
        "--out = plan.json: exists already; nothing is ever overwritten, give another file\n"
    )


# Where a pinned table of 256 columns may lie on 3 hosts of 2 GPUs, by sharding type.
PINS: dict[Any, tuple[tuple[int, ...], ...]] = {
    "table_wise": ((3,),),
    "column_wise": ((0, 5), (5, 0, 3, 1)),
    "table_column_wise": ((4, 5), (3, 2)),
    "table_row_wise": ((2, 3),),
    "grid_shard": ((0, 1, 4, 5),),
    "row_wise": (tuple(range(6)),),
    "data_parallel": (tuple(range(6)),),
}


@pytest.mark.parametrize(("kind", "ranks"), [(kind, ranks) for kind, pins in PINS.items() for ranks in pins])
def test_a_pinned_table_lies_there_and_the_rest_around_it(kind: Any, ranks: tuple[int, ...]) -> None:
    pinned = dataclasses.replace(table("p", 30_000, [kind], 256, ids=20), ranks=ranks)
    others = [table(f"t{index}", 9_000, ["table_wise"], 256) for index in range(10)]
    plan = plan_tables(scenario([*others[:5], pinned, *others[5:]], cluster(3, 2, 50 * MIB)))
    assert [each.name for each in plan.tables] == [*(f"t{i}" for i in range(5)), "p", *(f"t{i}" for i in range(5, 10))]
    assert [shard.rank for shard in plan.table("p").shards] == [*ranks]
    assert plan.table("p").sharding_type == kind
    assert max(plan.storage_bytes) <= plan.capacity_bytes
    for rank in range(6):
        mine = [row for row in plan.rows if row.rank == rank]
        assert sum(row.perf_ms for row in mine) == pytest.approx(plan.perf_ms[rank])
    if kind == "table_wise":
        assert [row.table for row in plan.rows if row.rank == 3] == ["p"], "it is full and busy already"


@given(st.lists(st.integers(0, 5), min_size=1, unique=True), st.sampled_from([64, 256, 96]), st.sampled_from(ALL))
def test_a_pin_is_kept_or_refused(ranks: list[int], dim: int, kind: Any) -> None:
    asked = scenario([dataclasses.replace(table("p", 300, [kind], dim), ranks=tuple(ranks))], cluster(3, 2))
    try:
        plan = plan_tables(asked)
    except ScenarioError as error:
        said = str(error)
        plan = None
    if plan is None:
        assert f"test.toml: model.tables[0], on ranks {ranks}" in said
        assert ranks not in map(list, PINS[kind]) or dim % (4 * len(ranks))
        return
    assert [shard.rank for shard in plan.table("p").shards] == ranks
    assert sum(row.rows * row.columns for row in plan.rows) == 300 * dim * (6 if kind == "data_parallel" else 1)


def test_a_file_pins_by_ranks_or_hosts(tmp_path: Path) -> None:
    tables = (
        '{ name = "a", rows = 999, ids_per_sample = 1, ranks = [3, 0] },'
        '{ name = "b", rows = 999, ids_per_sample = 1, hosts = [1], sharding = ["table_row_wise"] },'
        '{ name = "c", rows = 999, ids_per_sample = 1 }'
    )
    plan = plan_tables(load(file(tmp_path, tables, "")))
    kinds = {each.name: (each.sharding_type, [shard.rank for shard in each.shards]) for each in plan.tables}
    assert kinds["a"] == ("column_wise", [3, 0])
    assert kinds["b"] == ("table_row_wise", [2, 3])


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ("ranks = [4]", "model.tables[0].ranks = [4]: expected ranks from 0 to 3"),
        ("hosts = [2]", "model.tables[0].hosts = [2]: expected hosts from 0 to 1"),
        ("ranks = []", "model.tables[0].ranks = []: expected at least one of the ranks, and each once"),
        ("ranks = [1, 1]", "model.tables[0].ranks = [1, 1]: expected at least one of the ranks, and each once"),
        ("ranks = [1], hosts = [0]", "model.tables[0].hosts = [0]: expected no hosts with ranks"),
        ("ranks = [-1]", "model.tables[0].ranks[0] = -1: expected a whole number of at least 0"),
    ],
)
def test_mistakes_in_a_pin_are_one_sentence(keys: str, sentence: str, tmp_path: Path) -> None:
    path = file(tmp_path, f'{{ name = "a", rows = 999, ids_per_sample = 1, {keys} }}', "")
    assert mistakes_of(load, path) == [f"{path}: {sentence}"]


def test_pins_are_refused_beside_a_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(TORCHREC.read_text())
    text = file(tmp_path).read_text().replace("ids_per_sample = 3", "ids_per_sample = 3, ranks = [0]", 1)
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(ScenarioError, match=r"expected no ranks with sharding\.plan, which places every table"):
        load(tmp_path / "s.toml")


def test_pinned_tables_that_do_not_fit_are_named() -> None:
    pinned = [dataclasses.replace(table(f"p{index}", 150_000, ["table_wise"]), ranks=(1,)) for index in range(3)]
    with pytest.raises(ScenarioError, match=r"model.tables\[2\], on ranks \[1\]: expected rank 1 to have room"):
        plan_tables(scenario([*pinned, table("t", 10)], cluster(1, 2)))
