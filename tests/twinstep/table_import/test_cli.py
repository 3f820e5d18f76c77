"""`twinstep import torchrec` of classes with TorchRec's attributes; `tests/sim/test_torchrec_import.py` has its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.config.toml.table_file.read import read_tables
from tests.commands import command
from twinstep.table_import.cli import table_file
from twinstep.table_import.torchrec_tables import EXPECTED, ImportedTable

ALIKE = """
from dataclasses import dataclass, field
from enum import Enum


class DataType(Enum):
    FP32 = "FP32"
    BF16 = "BF16"
    INT8 = "INT8"


@dataclass
class Config:
    name: str
    num_embeddings: int
    embedding_dim: int = 64
    feature_names: list = field(default_factory=list)
    data_type: DataType = DataType.FP32
    pooling: str = "SUM"
    use_virtual_table: bool = False


@dataclass
class Constraints:
    sharding_types: list | None = None
    compute_kernels: list | None = None
    pooling_factors: list = field(default_factory=lambda: [1.0])
    is_weighted: bool = False
    cache_params: object = None
    num_poolings: list | None = None


@dataclass
class Collection:
    configs: list
    weighted: bool = False

    def embedding_bag_configs(self):
        return self.configs

    def is_weighted(self):
        return self.weighted

"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_import(body: str, *words: object) -> tuple[list[str], list[str]]:
    """The lines of the table file, and what is said beside it."""
    Path("models.py").write_text(ALIKE + body)
    done = command("twinstep", "import", "torchrec", "models.py:tables", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


def refuse(body: str, *words: object) -> str:
    Path("models.py").write_text(ALIKE + body)
    done = command("twinstep", "import", "torchrec", *(words or ["models.py:tables"]))
    assert (done.returncode, done.stdout) == (2, "")
    (sentence,) = done.stderr.splitlines()
    return sentence


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "body",
    [
        "tables = [Config('a', 5), Config('b', 6)]",
        "tables = Collection([Config('a', 5), Config('b', 6)])",
        "def tables(): return [Collection([Config('a', 5)]), Config('b', 6)], None",
        "def tables(): return print('making') or [Config('a', 5), Config('b', 6)]",
        "def tables(): return {'ebc': Collection([Config('a', 5), Config('b', 6)])}",
        "both = [Config('a', 5), Config('b', 6)]\ndef tables(): return Collection(both), both",
    ],
)
def test_tables_are_found_wherever_they_are(body: str) -> None:
    lines, said = run_import(body)
    assert lines == ["name,rows,dim,ids_per_sample", "a,5,64,", "b,6,64,"]
    assert [line for line in said if line != "making"] == [
        "ids per sample of 2 tables are not known, as configs do not have them: fill in the column ids_per_sample, or"
        " give --constraints with pooling_factors; twinstep init assumes 1"
    ]


@pytest.mark.usefixtures("folder")
def test_what_a_table_file_cannot_have_is_named_with_its_tables() -> None:
    lines, said = run_import(
        "tables = [Config(f't{n}', 5, data_type=DataType.INT8, use_virtual_table=True) for n in range(5)], {"
        "'t0': Constraints(['row_wise', 'spiral'], ['key_value', 'dense'], [2.5]),"
        "'t1': Constraints(cache_params=object(), num_poolings=[2]),"
        "'t2': Constraints(pooling_factors=[1, 2]), 't3': Constraints(is_weighted=True)}"
    )
    assert lines == [
        "name,rows,dim,ids_per_sample,sharding,weighted,# data_type",
        *(
            "t0,5,64,2.5,row_wise,,INT8",
            "t1,5,64,1,,,INT8",
            "t2,5,64,,,,INT8",
            "t3,5,64,1,,true,INT8",
            "t4,5,64,,,,INT8",
        ),
    ]
    assert said[1:] == [
        "not carried over: rows of INT8, which is not predicted",
        "not carried over: use_virtual_table: t0, t1, t2 and 2 more",
        "not carried over: sharding type 'spiral', which is not predicted: t0",
        "not carried over: compute kernel 'key_value', which is not predicted: t0",
        "not carried over: cache_params, which need the compute kernel 'fused_uvm_caching' alone: t1",
        "not carried over: num_poolings: t1",
        "not carried over: 2 pooling_factors, which are not one per feature: t2",
    ]


@pytest.mark.usefixtures("folder")
def test_equal_names_are_told_apart_and_rows_of_half_precision_say_what_to_set() -> None:
    body = (
        "tables = [Collection([Config('a', n, feature_names=['f'], data_type=DataType.BF16)], n > 5) for n in (5, 6)]"
    )
    lines, said = run_import(body)
    assert lines == [
        "name,rows,dim,ids_per_sample,features,weighted,# data_type",
        *("a_0,5,64,,f@a_0,,BF16", "a_1,6,64,,f@a_1,true,BF16"),
    ]
    assert said[1:] == [
        "rows are BF16: set model.embedding_dtype = 'bfloat16'",
        "not carried over: equal names of tables, which are numbered: 'a', 'a'",
        "not carried over: features of several tables, called feature@table: f@a_0, f@a_1",
    ]


def test_a_file_is_written_once_and_has_what_comes_next(folder: Path) -> None:
    words = ("--out", "tables.csv")
    said, _ = run_import("tables = [Config('a', 5_000), Config('b', 6_000)]", *words)
    assert said[0] == "tables.csv: 2 tables with 11,000 rows"
    assert said[-1] == "next: twinstep init --tables tables.csv --profile dgx_h100 --hosts 2 --out job.toml"
    assert refuse("tables = [Config('a', 5)]", "models.py:tables", *words).startswith(
        "--out = tables.csv: exists already"
    )
    assert (folder / "tables.csv").read_text() == "name,rows,dim,ids_per_sample\na,5000,64,\nb,6000,64,\n"


def test_a_users_mistake_is_a_sentence_with_its_line(folder: Path) -> None:
    line = ALIKE.count("\n") + 1
    raised = f"RuntimeError: no GPU (at {folder / 'models.py'}:{line})"
    body = "def tables(): raise RuntimeError('no GPU')"
    assert refuse(body) == f"models.py:tables: expected a function that returns, but it raised {raised}"
    option = refuse(f"{body}\nmine = [Config('a', 5)]", "models.py:mine", "--constraints", "models.py:tables")
    assert option == f"--constraints = models.py:tables: expected a function that returns, but it raised {raised}"
    assert refuse("tables = []") == f"models.py:tables: expected {EXPECTED}, but found no table"
    assert refuse("tables = [3]") == f"models.py:tables: expected {EXPECTED}, but found int"
    assert "it raised SystemExit: 1" in refuse("import sys\ndef tables(): sys.exit(1)")
    wanted = "models.py:table: expected tables, or a function that returns some, in models.py, but"
    assert refuse("tables = 3", "models.py:table").startswith(wanted)
    assert refuse("", "nothing:tables").endswith("there is no module nothing")


def test_a_written_table_file_is_read_again(folder: Path) -> None:
    names = ["a b", "c,d", "[e]", "f"]
    table = ImportedTable(name='t, "x"', rows=7, dim=4, data_type="FP32", features=names, ids=[1.0, 2.5, 1e-5, 3.0])
    (folder / "t.csv").write_text(table_file([table]))
    ((_, values),) = read_tables(folder / "t.csv").tables
    ids = [1, {"mean": 2.5}, {"mean": 1e-5}, 3]
    assert values == {
        **{"name": 't, "x"', "rows": 7, "dim": 4},
        "features": [{"name": name, "ids_per_sample": count} for name, count in zip(names, ids, strict=True)],
    }
