"""Tables of operators from profiler traces of an H200, and the command that writes them."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from reports.errors import ReportError
from reports.trace_table import table_rows
from scenarios.kernel_tables.file import read_table
from scenarios.kernel_tables.row import MeasuredOperator
from scenarios.seam.operations.bags import Bags, BagsBackward, BagsForward
from scenarios.seam.operations.moves import Cat
from scenarios.seam.operations.operation import Operation, words
from scenarios.seam.operations.products import Product
from scenarios.seam.operations.rows import Index, IndexPut
from twinstep.reporting.cli import main

H200 = Path(__file__).parents[1] / "data" / "kineto_h200"
REC, GPT = H200 / "rec_base.json.gz", H200 / "gpt2_bf16.json.gz"


@pytest.fixture(scope="module")
def rec() -> list[MeasuredOperator]:
    return table_rows([REC])[0]


@pytest.fixture(scope="module")
def gpt() -> list[MeasuredOperator]:
    return table_rows([GPT])[0]


def row(rows: list[MeasuredOperator], operation: Operation) -> MeasuredOperator:
    return next(one for one in rows if one.operations == (operation,))


def shapes(rows: list[MeasuredOperator], operator: str) -> dict[str, int]:
    """Return the calls of one operator by shapes in words."""
    said = {words(one.operations[0]): one.calls for one in rows}
    return {shapes: calls for (name, shapes), calls in said.items() if name == operator}


def test_rows_have_the_time_of_all_computing_kernels(rec, gpt):
    """The sums of the kernels of two steps: 4.57 and 46.5 ms a step."""
    for rows, total_us in ((rec, 2 * 4566.5), (gpt, 2 * 46504.5)):
        assert sum(one.us * one.calls for one in rows) == pytest.approx(total_us, rel=2e-4)


def test_a_row_has_the_mean_over_the_calls_of_one_signature(rec):
    over_arch = Product(
        rows=8192, columns=1024, inner=1024, dtype="float32", right_is_transposed=True,
        left_alignment=16, right_alignment=16, result_alignment=16,
    )  # fmt: skip
    found = row(rec, over_arch)
    assert found.calls == 2
    assert 300 < found.us < 400
    assert not found.is_cold


def test_indices_that_a_trace_does_not_say_are_as_the_gradient_is_shaped(rec):
    forward = Index(elements=8192 * 351, dtype="float32", indices=2, source_elements=8192 * 27 * 27)
    backward = IndexPut(
        slices=8192, count=351, inner=1, dtype="float32", target_elements=8192 * 729, is_contiguous=False
    )
    assert row(rec, forward).us == pytest.approx(18.7, abs=0.1)
    assert row(rec, backward).us > 623  # with all kernels of the sort ahead of it


def test_fbgemms_passes_have_their_bags_but_for_what_ids_decide(rec):
    bags = Bags(tables=26, rows=1_000_000, dim=128, bags=8192, ids=212_992, unique=0, longest=0)
    forward = row(rec, BagsForward(bags=bags))
    assert forward.us == pytest.approx(72.0 + 57.0, abs=0.1)  # with the bounds check and its fill
    assert row(rec, BagsBackward(bags=bags, optimizer="rowwise_adagrad")).us == pytest.approx(245, abs=1)


def test_operators_are_those_below_autocast_and_autograd(gpt):
    assert shapes(gpt, "linear")["16384x768 x 3072, bfloat16"] == 24
    assert shapes(gpt, "_to_copy")["824180736, bfloat16 to float32"] == 2
    assert shapes(gpt, "scaled_dot_product_attention_backward") == {"16x12x1024x64, bfloat16, causal": 24}
    assert (
        shapes(gpt, "add")["12582912, float32"] == 48
    )  # sums of gradients, which a simulated GPU does not do in place


def test_lists_have_the_dtype_that_kernels_have_and_the_shapes_of_parameters(gpt):
    assert row(gpt, Cat(dtype="bfloat16", elements=37_748_736, inputs=3, contiguous=False, dims=5)).calls == 24
    assert shapes(gpt, "_fused_adamw_") == {"163109376 in 149 tensors, float32": 2}
    assert shapes(gpt, "_foreach_add_") == {"149 in 149 tensors, float32": 2}


def test_the_table_says_which_gpu_when_and_how_much_of_the_trace_it_has():
    _, origin, notes = table_rows([REC])
    assert (origin.machine, origin.date, origin.source) == (
        "NVIDIA H200", "2026-11-26", "torch.profiler trace rec_base.json.gz",
    )  # fmt: skip
    assert notes == [f"{REC}: 100.0 % of the computing kernels' time is in rows"]


def test_the_command_writes_a_table_beside_the_run(tmp_path, capsys, rec):
    table = tmp_path / "t.parquet"
    assert main(["kineto", str(REC), "--out", str(tmp_path / "run"), "--table", str(table), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["table"] == {"file": str(table), "rows": len(rec)}
    assert list(read_table(table)) == rec
    assert main(["kineto", str(REC), "--out", str(tmp_path / "other"), "--table", str(table)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_without_shapes_there_is_no_table_and_no_run(tmp_path, capsys):
    content = json.loads(gzip.decompress(REC.read_bytes()))
    for event in content["traceEvents"]:
        for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs"):
            event["args"].pop(key, None)
    trace = tmp_path / "t.json"
    trace.write_text(json.dumps(content))
    with pytest.raises(ReportError, match=r"no shapes of arguments; expected a trace of profile\(record_shapes=True\)"):
        table_rows([trace])
    assert main(["kineto", str(trace), "--out", str(tmp_path / "run"), "--table", str(tmp_path / "t.parquet")]) == 2
    assert "record_shapes=True" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_arguments_that_no_profiler_writes_are_left_out(tmp_path):
    draw = random.Random(3)
    odd = [None, -1, 10**30, "x", [], {}, [None], [[]], [["8192"]], True, 1.5, "TensorList", [[1, -2]], "ScalarList"]
    content = json.loads(gzip.decompress(REC.read_bytes()))
    for event in draw.sample(content["traceEvents"], 600):
        for key, value in event["args"].items():
            if isinstance(value, list) and value and draw.random() < 0.5:
                value[draw.randrange(len(value))] = draw.choice(odd)
            elif draw.random() < 0.3:
                event["args"][key] = draw.choice(odd)
    trace = tmp_path / "t.json"
    trace.write_text(json.dumps(content))
    rows, _, notes = table_rows([trace])
    assert 20 < len(rows) < 80
    assert "left out" in notes[0]


def test_a_trace_without_a_gpu_gives_no_table():
    with pytest.raises(ReportError, match="no kernels of a GPU"):
        table_rows([H200.parent / "kineto" / "cpu_2.13.json"])
