"""Tables of measured operators: what lies between points, what far away, and the tables that the project ships."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any
from zipfile import Path as ZippedPath
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scenarios.seam.errors import ScenarioError
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.products import linear
from sim.operators.laws import seconds
from sim.operators.tables.making import _points_to_keep, table_of
from sim.operators.tables.read import about_table
from sim.operators.tables.read import table_of as named_table
from sim.operators.tables.surface import surface
from sim.operators.tables.table import OPERATIONS, OperatorTable, correction, read
from sim.operators.tables.wheel import DATA
from tests.sim.operators.rows import H200, SYSTEMS, system

LAYER = linear(64, 512, 256, "bfloat16", element_bytes=2)
LAYER_S = seconds(LAYER, H200)
PREFILL = Attention(
    batch=2,
    heads=8,
    key_heads=4,
    queries=512,
    keys=512,
    head_size=64,
    dtype="bfloat16",
    is_causal=True,
    is_serving=True,
)
PREFILL_S = seconds(PREFILL, H200)
SHIPPED = Path(__file__).parents[3] / "scenarios" / "profiles" / "tables"


@pytest.fixture(scope="module")
def shipped() -> OperatorTable:
    return read(SHIPPED / "h200_sxm.parquet", H200)


def test_a_surface_is_linear_between_points_and_halves_with_each_octave_beyond() -> None:
    line = surface(np.array([[4], [16]]), np.array([1.0, 3.0]))
    assert [line.at((math.log2(x),)) for x in (4, 8, 16)] == [1.0, 2.0, 3.0]
    assert (line.at((5.0,)), line.at((1.0,))) == (1.5, 0.5)


def test_a_point_between_lines_takes_of_both() -> None:
    plane = surface(np.array([[8, 8], [2, 8]]), np.array([3.0, 1.0]))
    assert plane.at((2.0, 3.0)) == 2.0


def test_equal_points_count_once() -> None:
    assert surface(np.array([[2], [2]]), np.array([1.0, 3.0])).at((1.0,)) == 3.0


def test_a_table_without_the_law_is_compared_when_it_is_read(tmp_path: Path) -> None:
    layer = linear(512, 1024, 256, "bfloat16", element_bytes=2)
    zeros = {name: [0] for name in ("batch", "heads", "key_heads", "queries", "head_size", "window")}
    row = {"operator": ["linear"], "dtype": ["bfloat16"], "rows": [512], "columns": [256], "inner": [1024], **zeros}
    table = pa.table({**row, "us": [2e6 * seconds(layer, H200)], "machine": ["mine"], "source": ["us"]})
    pq.write_table(table, tmp_path / "mine.parquet")
    own = read(tmp_path / "mine.parquet", H200)
    assert correction([own], layer).factor == pytest.approx(2)
    assert correction([own], dataclasses.replace(layer, dtype="float16")).factor == pytest.approx(2)
    assert correction([own], dataclasses.replace(layer, right_is_transposed=False)).factor == pytest.approx(2**0.5)
    known = about_table(str(tmp_path / "mine.parquet"), H200)
    assert (known.rows, known.machines, known.sources) == (1, ("mine",), ("us",))
    assert known.quality[0].law_error == pytest.approx(0.5)
    assert correction([own], dataclasses.replace(layer, rows=512 << 12)).factor == pytest.approx(1, abs=1e-3)


def test_unmeasured_operators_keep_the_laws_time(shipped: OperatorTable) -> None:
    script = Attention(batch=8, heads=8, key_heads=8, queries=512, keys=512, head_size=64, dtype="bfloat16")
    convolution = Convolution(
        batch=8, in_channels=64, out_channels=64, size=(8,), out_size=(8,), kernel=(3,), stride=(1,), dtype="bfloat16"
    )
    odd = linear(8192, 479, 1024, "bfloat16", element_bytes=2)
    single = linear(512, 1024, 256, "float32", element_bytes=4)
    others: tuple[Any, ...] = (script, convolution, odd, single, object())
    assert [correction([shipped], each).factor for each in others] == [1.0] * 5


def test_points_are_kept_until_the_others_lie_between_them() -> None:
    assert _points_to_keep(np.arange(5.0), np.zeros(5)) == [0, 4]
    assert _points_to_keep(np.arange(5.0), np.array([0.0, 0.0, 0.5, 0.0, 0.0])) == [0, 1, 2, 3, 4]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install an aiconfigurator-core 0.1 of one system 'gpu': `LAYER` and `PREFILL` measured on three servers."""
    system = tmp_path / "aiconfigurator_core" / "systems" / "data" / "gpu"
    for server, times in (("one", 1.0), ("two", 2.0), ("three", 30.0)):
        layer = {"gemm_dtype": "bfloat16", "m": 64, "n": 256, "k": 512, "latency": times * 1e3 * LAYER_S}
        wider = {**layer, "k": 1024}
        measure(system / "gemm" / server / "1" / "gemm_perf.parquet", layer, {**layer, "gemm_dtype": "fp8"}, wider)
        sizes = {"batch_size": 2, "isl": 512, "num_heads": 8, "num_key_value_heads": 4, "head_dim": 64}
        prefill = {"attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "latency": times * 1e3 * PREFILL_S, **sizes}
        folder = system / "attention" / server / "1"
        measure(folder / "context_attention_perf.parquet", prefill, {**prefill, "kv_cache_dtype": "fp8"})
        measure(folder / "generation_attention_perf.parquet", {**prefill, "latency": 1e6})
    (tmp_path / "aiconfigurator_core" / "__init__.py").write_text("raise AssertionError('imported')")
    about = tmp_path / "aiconfigurator_core-0.1.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: aiconfigurator-core\nVersion: 0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    return system


def measure(file: Path, *rows: dict[str, object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame([{**row, "device": "mine"} for row in rows]).to_parquet(file)


def test_a_wheel_becomes_a_table_of_medians(package: Path, tmp_path: Path) -> None:
    name = "aiconfigurator_core-0.1-py3-none-any.whl"
    with ZipFile(tmp_path / name, "w") as wheel:
        for file in package.rglob("*.parquet"):
            wheel.write(file, file.relative_to(tmp_path))
    table, quality = table_of(ZippedPath(tmp_path / name, f"{DATA}/gpu/"), "0.1", H200)
    assert list(table["over_law"][:1]) == [pytest.approx(2)]
    assert [(each.operator, each.measured) for each in quality] == [("linear", 2), ("prefill", 1)]
    assert quality[1].law_error == pytest.approx(0.5)
    assert table["source"][0] == "aiconfigurator-core 0.1 (NVIDIA, Apache-2.0), medians over its servers"
    assert table["machine"][0] == "mine"


def test_a_whole_table_is_read_where_it_is_installed(package: Path) -> None:
    whole = named_table("aiconfigurator/gpu", H200)
    assert [correction([whole], each).factor for each in (LAYER, PREFILL)] == [pytest.approx(2), pytest.approx(2)]
    encoder = dataclasses.replace(PREFILL, is_causal=False, key_heads=8)  # which nobody has measured
    assert [correction([whole], each).factor for each in (dataclasses.replace(LAYER, dtype="float32"), encoder)] == [
        1,
        1,
    ]


def test_files_of_a_family_are_read_when_an_operator_of_it_is_priced(package: Path) -> None:
    next(package.rglob("context_attention_perf.parquet")).write_bytes(b"damaged")
    whole = named_table("aiconfigurator/gpu", H200)
    assert correction([whole], LAYER).factor == pytest.approx(2)
    sentence = rf"^{re.escape(str(package))}: cluster\.gpu\.kernel_table: expected Parquet with measured operators"
    with pytest.raises(ScenarioError, match=sentence):
        correction([whole], PREFILL)


def test_quality_of_a_whole_table_leaves_out_one_shape_at_a_time(package: Path) -> None:
    table = about_table("aiconfigurator/gpu", H200)
    assert (table.rows, table.machines) == (3, ("mine",))
    assert table.sources == ("aiconfigurator-core 0.1 (NVIDIA, Apache-2.0), medians over its servers",)
    alone = table.quality[1]  # on a line of its own: the law's error
    assert (alone.operator, alone.measured, alone.is_whole) == ("prefill", 1, True)
    assert alone.law_error == pytest.approx(0.5)
    assert alone.table_error == pytest.approx(0.5)


def test_a_table_is_not_compared_with_laws_that_a_gpu_does_not_have(package: Path) -> None:
    without = dataclasses.replace(H200, multiprocessors=None)
    assert about_table("aiconfigurator/gpu", without).quality == ()


def test_a_left_out_point_is_interpolated_on_its_line() -> None:
    plane = surface(np.array([[1, 4], [1, 8], [1, 16], [2, 4]]), np.array([1.0, 5.0, 3.0, 7.0]))
    assert list(plane.leave_one_out()) == [(1.0, 2.5), (5.0, 2.0), (3.0, 2.5), (7.0, 0.0)]


@pytest.mark.parametrize("name", SYSTEMS)
def test_shipped_tables_are_of_today_s_law(name: str) -> None:
    """Fails after a law has changed: make the tables again (NOTICE says how)."""
    table = pq.read_table(SHIPPED / f"{name}.parquet")
    for row in table.take(list(range(0, table.num_rows, 997))).to_pylist():
        build = OPERATIONS[row["operator"]]
        assert row["us"] * 1e-6 / seconds(build(row), system(name)) == pytest.approx(row["over_law"], rel=0.01), row
