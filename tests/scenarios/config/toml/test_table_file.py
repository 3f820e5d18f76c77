"""Tables from files, and entries with a count: the same scenario as with all tables written out, and each mistake."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scenarios.config.load import load
from scenarios.config.scenario import Scenario, Table
from scenarios.config.toml.schema import json_schema
from scenarios.config.toml.table_file.cells import ALIASES, COLUMNS
from scenarios.sharding_kind import ShardingType
from tests.mistakes import mistakes_of

JOB = """\
name = "job"
program = "dlrm"
[run]
batch_size = 512
[cluster]
profile = "dgx_h100"
hosts = 1
[model]
dense_features = 13
bottom = [64]
top = [64, 1]
interaction = {kind = "cat"}
embedding_dim = 64
"""
WRITTEN = """
[[model.tables]]
name = "user"
rows = 1000
dim = 128
ids_per_sample = {mean = 20.5}
ids = {zipf = 1.05}
sharding = ["row_wise", "table_wise"]
[[model.tables]]
name = "item"
rows = 3000
weighted = true
ranks = [0, 1]
[[model.tables.features]]
name = "seen"
ids_per_sample = 3
ids = {zipf = 2}
[[model.tables.features]]
name = "bought"
ids_per_sample = {mean = 0.5}
ids = {zipf = 2}
[[model.tables]]
name = "tag_0"
rows = 20
ids_per_sample = 1
[[model.tables]]
name = "tag_1"
rows = 20
ids_per_sample = 1
"""
CSV = """\
name,rows,dim,ids_per_sample,ids,sharding,weighted,ranks,features,count
user,1_000,128,20.5,{zipf = 1.05},row_wise table_wise,,,,

item,3000.0,,"3, 0.5",{zipf = 2},,true,"[0, 1]",seen bought,
tag,20,,1,,,,,,2
"""
ENTRY = {"name": "z", "rows": 7, "ids_per_sample": 1, "count": 2}
NAME = "expected a name of its own, but line 2 has it already"
FEATURE = "expected a name of its own, but line 2: features[0] has it already"
COLUMN = (
    f"expected {', '.join(COLUMNS)}, with commas between them; or TorchRec's names, such as num_embeddings,"
    " embedding_dim and pooling_factor; a column '# NAME' is not read"
)
TYPES = ", ".join(map(repr, get_args(ShardingType)[:-1])) + f" or {get_args(ShardingType)[-1]!r}"
KERNELS = "'fused', 'fused_uvm' or 'fused_uvm_caching'"
IDS = "name,rows,ids_per_sample"
AT_LEAST_1 = "expected a whole number of at least 1"
MEAN = f"{AT_LEAST_1} or a table such as {{mean = 2.5}}"
EACH = "expected one number of ids, or one for each of"
TWICE = "given more than once; expected once"
EMPTY = "no tables; expected a first line with the columns' names, and a table in each line below it"


def job(
    content: str | None = None, name: str = "tables.csv", overrides: Mapping[str, object] | None = None
) -> Scenario:
    Path("job.toml").write_text(f"{JOB}tables = '{name}'\n")
    if content is not None:
        Path(name).write_text(content)
    return load("job.toml", overrides)


def write(tables: str) -> Scenario:
    Path("written.toml").write_text(JOB + tables)
    return load("written.toml")


def mistakes(content: str, overrides: Mapping[str, object] | None = None) -> list[str]:
    Path("job.toml").write_text(f"{JOB}tables = 'tables.csv'\n")
    Path("tables.csv").write_text(content)
    return mistakes_of(load, "job.toml", overrides)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "content",
    [
        CSV,
        CSV.replace("name,rows,dim,ids_per_sample", "\ufeffTable Name,Num-Embeddings,embedding_dim,pooling_factor"),
        CSV.replace("row_wise table_wise", "ROW_WISE|TABLE_WISE").replace("true", "True"),
        CSV.replace("seen bought", "\"['seen', 'bought']\""),
        "\n".join(
            f"{n},{line},why" if n else f",{line},# note" for n, line in enumerate(filter(None, CSV.splitlines()))
        ),
        CSV.replace('"3, 0.5"', "3 0.5").replace('"[0, 1]"', "0 1").replace(",", ";"),
    ],
    ids=["keys", "torchrec", "enums", "lists", "unread", "semicolons"],
)
def test_a_csv_file_is_the_same_scenario_as_tables_written_out(content: str) -> None:
    made, wanted = job(content), write(WRITTEN)
    assert made.workload == wanted.workload
    assert made.digest() == wanted.digest()


@pytest.mark.usefixtures("folder")
def test_a_parquet_file_has_lists_and_tables_and_nothing_where_it_is_null() -> None:
    rows: list[dict[str, object]] = [
        {
            "name": "user",
            "rows": 1000,
            "dim": 128.0,
            "ids_per_sample": [20.5],
            "ids": {"zipf": 1.05},
            "sharding": ["row_wise", "table_wise"],
        },
        {"name": "item", "rows": 3000, "dim": float("nan"), "ids_per_sample": [3, 0.5], "ids": {"zipf": 2.0}},
        {"name": "tag", "rows": 20, "ids_per_sample": [1.0], "count": 2},
    ]
    rows[1] |= {"features": ["seen", "bought"], "weighted": True, "ranks": [0, 1]}
    names = dict.fromkeys(key for row in rows for key in row)
    pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]), "t.parquet")
    assert job(name="t.parquet").workload == write(WRITTEN).workload


def test_a_table_file_stands_beside_the_file_that_names_it_and_so_do_its_files(folder: Path) -> None:
    (folder / "base" / "data").mkdir(parents=True)
    (folder / "base" / "job.toml").write_text(f"{JOB}tables = 'data/tables.csv'\n")
    (folder / "base" / "data" / "tables.csv").write_text("name,rows,ids\na,9,{file = 'ids.csv'}\n")
    (folder / "base" / "data" / "ids.csv").write_text("1 2\n3 4\n")
    (folder / "top.toml").write_text("include = 'base/job.toml'\n[set]\n'model.tables.a.dim' = 32\n")
    (table,) = load("top.toml").workload.tables
    assert (table.dim, table.ids_per_sample, table.ids.path) == (32, 2, Path("base/data/ids.csv"))


@pytest.mark.usefixtures("folder")
def test_values_of_the_command_line_count_the_tables_that_there_are() -> None:
    Path("other.csv").write_text("name,rows,ids_per_sample\nx,5,1\ny,6,1\n")
    cases: list[tuple[dict[str, object], dict[str, int]]] = [
        ({"model.tables[3].rows": 8}, {"user": 1000, "item": 3000, "tag_0": 20, "tag_1": 8}),
        ({"model.tables.tag_0.rows": 8}, {"user": 1000, "item": 3000, "tag_0": 8, "tag_1": 20}),
        ({"model.tables[*].rows": 8}, dict.fromkeys(("user", "item", "tag_0", "tag_1"), 8)),
        ({"model.tables[2].count": 1, "model.tables.tag_0.rows": 8}, {"user": 1000, "item": 3000, "tag_0": 8}),
        ({"model.tables.user.count": 1}, {"user_0": 1000, "item": 3000, "tag_0": 20, "tag_1": 20}),
        ({"model.tables[1].rows": 9, "model.tables": "other.csv"}, {"x": 5, "y": 9}),
        ({"model.tables": [ENTRY], "model.tables.z_1.rows": 9}, {"z_0": 7, "z_1": 9}),
    ]
    for overrides, rows in cases:
        made = job(CSV, overrides=overrides)
        assert {table.name: table.rows for table in made.workload.tables} == rows, overrides


@pytest.mark.usefixtures("folder")
def test_tables_alike_have_features_of_their_own() -> None:
    made = write("[[model.tables]]\nname = 'a'\nrows = 3\ncount = 2\nfeatures = [{name = 'f', ids_per_sample = 1}]\n")
    assert [(table.name, table.features[0].name) for table in made.workload.tables] == [("a_0", "f_0"), ("a_1", "f_1")]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("", [EMPTY]),
        ("name,rows\n", [EMPTY]),
        (
            "name,dim,owner\na,8,1\n",
            [f"first line: rows: missing; {COLUMN}", f"first line: 'owner': unknown column; {COLUMN}"],
        ),
        (
            "name,hash_size,pf,poolin factor\na,8,1,1\n",
            [
                "first line: 'pf': unknown column; expected ids_per_sample, or '# pf', which is not read",
                "first line: 'poolin factor': unknown column; expected ids_per_sample, or '# poolin factor', which is"
                " not read",
            ],
        ),
        ("name,rows,num_embeddings\n", [f"first line: rows: {TWICE}", f"first line: num_embeddings: {TWICE}"]),
        ("name,rows\na\n", ["line 2: 1 value; expected 2, as in the first line"]),
        ('name,rows\n"a,1\n', ["line 2: not CSV: unexpected end of data"]),
        (f"{IDS}\na,1,1\n\na,2,1\n", [f"line 4: name = 'a': {NAME}"]),
        (f"{IDS},dim\na,1,1,\nb,x,1,-1\n", [f"line 3: rows = 'x': {AT_LEAST_1}", f"line 3: dim = -1: {AT_LEAST_1}"]),
        ("name,hash_size,ids_per_sample\na,1.5,1\n", [f"line 2: hash_size = 1.5: {AT_LEAST_1}"]),
        ("name,rows\na,1\nb,2\n", [f"ids_per_sample: missing; {MEAN}"]),
        ("name,rows,pooling factor\na,1,\nb,2,3\n", [f"line 2: pooling factor: missing; {MEAN}"]),
        (f"{IDS}\na,1,0.0\n", [f"line 2: ids_per_sample = 0: {MEAN}"]),
        (f"{IDS}\na,1,1 2\n", [f"line 2: ids_per_sample = '1 2': {EACH} several features"]),
        (f"{IDS},features\na,1,1 2,x y z\n", [f"line 2: ids_per_sample = '1 2': {EACH} 3 features"]),
        (f"{IDS},features\na,1,1,f\nb,1,1,f\n", [f"line 3: features[0].name = 'f': {FEATURE}"]),
        (f"{IDS},sharding\na,1,1,row_wise|tw\n", [f"line 2: sharding[1] = 'tw': expected {TYPES}"]),
        (f"{IDS},compute_kernel\na,1,1,dense\n", [f"line 2: compute_kernel = 'dense': expected {KERNELS}"]),
        (f"{IDS},count\na,-1,1,40\n", [f"line 2: rows = -1: {AT_LEAST_1}"]),
        (f"{IDS},count\na,1,1,0\n", [f"line 2: count = 0: {AT_LEAST_1}"]),
        (f"{IDS},count\na,1,1,100001\n", ["line 2: count = 100001: expected a whole number of at most 100000"]),
        (f"{IDS},dim\na,1.000,1.000,8\n", [f"line 2: rows = '1.000': {AT_LEAST_1}"]),  # perhaps 1000, as in Germany
    ],
)
def test_a_bad_file_is_described_by_exactly_these_sentences(content: str, wanted: list[str]) -> None:
    assert mistakes(content) == [f"tables.csv: {sentence}" for sentence in wanted]


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("no.csv", None, "expected no.csv to be a file"),
        ("t.xlsx", b"", "expected a path that ends in .csv or .parquet"),
        ("t.csv", b"name,rows\n\xff\n", "expected t.csv to be UTF-8 text"),
        ("t.csv", "name,rows\n".encode("utf-16"), "expected t.csv to be UTF-8 text, not UTF-16; save it as UTF-8"),
        ("t.csv", b"name,rows\na,\0\n", "expected t.csv to be UTF-8 text, without NUL bytes such as byte 12; "),
        ("t.parquet", b"name,rows\n", "expected t.parquet to be Parquet: "),
    ],
)
def test_a_file_that_cannot_be_read_is_one_mistake(name: str, content: bytes | None, wanted: str, folder: Path) -> None:
    if content is not None:
        (folder / name).write_bytes(content)
    # No second mistake for what counts its tables.
    (sentence,) = mistakes_of(job, name=name, overrides={"model.tables.a.rows": 3})
    assert sentence.startswith(f"job.toml: model.tables = '{name}': {wanted}")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("model.tables[9].count", 2, "expected an index of model.tables, which has 3, [0] to [2]"),
        ("model.tables.usr.rows", 2, "expected a name in model.tables, such as user"),
        ("model.tables.tag_0.rows", -1, AT_LEAST_1),
        ("model.tables.tag_0.hosts.x", 1, "expected an array"),
        ("model.tables[0]", ENTRY, "expected a value of its own, such as --set model.tables[0].count=2"),
    ],
)
def test_a_wrong_place_or_value_on_the_command_line_is_one_sentence(key: str, value: object, wanted: str) -> None:
    (sentence,) = mistakes(CSV, {key: value})
    assert sentence.startswith("--set model.tables")
    assert sentence.endswith(f": {wanted}")


@pytest.mark.usefixtures("folder")
def test_tables_and_features_without_a_number_of_ids_have_the_models() -> None:
    content = "name,rows,ids_per_sample,ids,features\na,9,,,\nb,9,7,,\nc,9,,,x y\nd,9,,{file = 'ids.csv'},\n"
    Path("ids.csv").write_text("1 2\n3 4\n")
    for usual, kinds in ((3, "fixed"), ({"mean": 3.0}, "poisson")):
        tables = job(content, overrides={"model.ids_per_sample": usual}).workload.tables
        assert [table.ids_per_sample for table in tables] == [3, 7, 6, 2]
        assert {tables[0].ids_per_sample_kind, *(one.ids_per_sample_kind for one in tables[2].features)} == {kinds}
    expected = f"--set model.ids_per_sample = 0: {MEAN}"
    assert mistakes(content, {"model.ids_per_sample": 0}) == [expected]  # no table lacks one besides
    missing = "--set model.ids_per_sample.mean: missing; expected a number above 0"
    assert mistakes(content, {"model.ids_per_sample": {}}) == [missing]
    by_first = f"{IDS},ids\na,9,,\"{{zipf = 1.1, bags = 'by_first'}}\"\n"
    (sentence,) = mistakes(by_first, {"model.ids_per_sample": {"mean": 3.0}})
    assert sentence == "--set model.ids_per_sample = {mean = 3.0}: expected a number with ids.bags = 'by_first'"


@pytest.mark.usefixtures("folder")
def test_an_entry_that_stands_for_several_tables_has_its_mistake_once() -> None:
    text = "[[model.tables]]\nname = 'a'\nrows = 3\n[[model.tables]]\nname = 'b'\nrows = 3\ndim = 0\ncount = 9\n"
    expected = "a whole number of at least 1"
    ids = f"missing; expected {expected} or a table such as {{mean = 2.5}}"
    assert mistakes_of(write, text) == [
        f"written.toml: model.tables[0].ids_per_sample: {ids}",
        f"written.toml: model.tables[1].dim = 0: expected {expected}",
        f"written.toml: model.tables[1].ids_per_sample: {ids}",
    ]


def test_editors_accept_a_file_and_every_column_is_a_key_of_a_table() -> None:
    tables = json_schema()["$defs"]["ModelSection"]["properties"]["tables"]
    assert [one["type"] for one in tables["oneOf"]] == ["array", "string"]
    assert set(ALIASES.values()) <= set(COLUMNS)
    assert set(COLUMNS) - {"hosts", "count"} <= set(Table.__dataclass_fields__)
