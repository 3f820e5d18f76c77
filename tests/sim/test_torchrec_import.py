"""`twinstep import torchrec` of TorchRec's own classes; `tests/twinstep/table_import` has it of look-alikes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import command

pytest.importorskip("torchrec", reason="TorchRec stands in .venv-benchmarks")
pytestmark = pytest.mark.torchrec

MODELS = Path(__file__).parents[1] / "data" / "scripts" / "torchrec_models.py"
# With one number of ids for each feature, where a planner's constraints have them.
TABLES = """\
name,rows,dim,ids_per_sample,features,sharding,kernel,cache_load_factor,min_partition,weighted,# sequence,# data_type
t_user,40000000,128,20.5,user,row_wise table_row_wise,fused_uvm_caching,0.1,,,,
t_item,9000,64,3 0.5,seen@t_item bought,,,,32,,,
t_tag,500,64,,seen@t_tag,,,,,,,
t_ad,70,8,,ad,,,,,true,,
t_word,600,16,7.5,word,,,,,,8,FP16
"""


def test_a_model_and_its_planners_constraints_are_carried_over_or_named(tmp_path: Path) -> None:
    for words in ([f"{MODELS}:planned"], [f"{MODELS}:Model", "--constraints", f"{MODELS}:constraints"]):
        done = command("twinstep", "import", "torchrec", *words)
        assert (done.returncode, done.stdout) == (0, TABLES)
    assert done.stderr.splitlines()[1:] == [
        "not carried over: data types of single tables (4 FP32, 1 FP16): model.embedding_dtype is one for all",
        "unsummed rows (EmbeddingConfig) of 1 table are predicted as summed: rename the column '# sequence'"
        " to 'sequence' once model.dense is a module that takes such rows",
        "not carried over: pooling MEAN, which takes as long as the sum that is predicted: t_tag",
        "not carried over: features of several tables, called feature@table: seen@t_item, seen@t_tag",
        "not carried over: reserved_memory: t_user",
        "not carried over: enforce_hbm: t_item",
        "not carried over: a choice of compute kernels (fused, fused_uvm); the column kernel takes one: t_word",
        "not carried over: constraints of unknown tables: t_old",
    ]
    file = tmp_path / "tables.csv"
    assert command("twinstep", "import", "torchrec", f"{MODELS}:planned", "--out", file).returncode == 0
    assert file.read_text() == TABLES
