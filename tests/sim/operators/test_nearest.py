"""Rows that describe any operator: exact ones give the measured time, near ones correct the law, never for worse."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from random import Random

import pytest

from scenarios.config.gpu import Gpu
from scenarios.kernel_tables.file import Origin, read_table, write_table
from scenarios.kernel_tables.row import MeasuredOperator
from scenarios.seam.errors import ScenarioError
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.bags import BagsBackward, BagsForward, uniform
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.products import Product, linear
from scenarios.seam.operations.reductions import Reduction
from scenarios.seam.operations.rows import Gather
from sim.operators.laws import seconds
from sim.operators.tables.nearest import Nearest
from sim.operators.tables.read import about_table, table_of
from sim.operators.tables.table import OperatorTable, correction
from tests.sim.operators.rows import H200 as GPU
from tests.sim.operators.rows import PUBLISHED, mean_error
from tests.sim.operators.rows import rows as rows_of
from twinstep.published.operators.described import NotDescribedError
from twinstep.published.operators.operators import describe

LAYER = linear(8192, 1024, 512, "bfloat16", element_bytes=2)
ORIGIN = Origin(machine="NVIDIA H200", date="2026-11-27", source="a test")


def row(*operations: Operation, over_law: float, is_cold: bool = False, calls: int = 1) -> MeasuredOperator:
    law_s = sum(seconds(each, GPU, is_cold=is_cold) for each in operations)
    return MeasuredOperator(operations=operations, us=over_law * law_s * 1e6, is_cold=is_cold, calls=calls)


def correct(operation: Operation, *rows: MeasuredOperator) -> float:
    return correction([OperatorTable(surfaces={}, nearest=Nearest(rows, GPU))], operation).factor


def test_a_measured_operator_takes_its_measured_time() -> None:
    operations: list[Operation] = [
        LAYER,
        contiguous("gelu", 1 << 20, "bfloat16"),
        Foreach(name="_foreach_add_", numels=(512, 1 << 20), lists=2, read=2, written=1, dtype="float32"),
        BagsForward(bags=uniform(tables=8, rows=1000, dim=128, bags=512, length=3)),
    ]
    rows = [row(each, over_law=2.0 + place) for place, each in enumerate(operations)]
    assert [correct(each, *rows) for each in operations] == pytest.approx([2.0, 3.0, 4.0, 5.0])


def test_an_operator_within_two_percent_of_a_measured_one_is_taken_for_it() -> None:
    operations = [dataclasses.replace(LAYER, rows=LAYER.rows * size // 100) for size in (98, 99, 101, 102, 104)]
    factors = [correct(each, row(LAYER, over_law=2.0)) for each in operations]
    assert factors == pytest.approx([2.0, 2.0, 2.0, 2.0, 1.0])


def test_cold_measurements_are_compared_with_cold_laws() -> None:
    assert correct(LAYER, row(LAYER, over_law=1.5, is_cold=True)) == pytest.approx(1.5)


def test_rows_of_one_operator_are_averaged_over_their_calls() -> None:
    rows = [row(LAYER, over_law=1.0, calls=3), row(LAYER, over_law=2.0)]
    assert correct(LAYER, *rows) == pytest.approx(1.25)


def test_cold_and_warm_rows_of_one_operator_are_not_mixed_those_of_most_calls_count() -> None:
    rows = [row(LAYER, over_law=1.0, calls=2), row(LAYER, over_law=3.0, is_cold=True, calls=5)]
    assert correct(LAYER, *rows) == pytest.approx(3.0)
    assert correct(LAYER, *rows, row(LAYER, over_law=2.0, calls=6)) == pytest.approx(1.75)


def test_a_call_of_several_operators_corrects_each_of_them_unless_one_was_measured_alone() -> None:
    addition = contiguous("add_", 1 << 22, "bfloat16")
    both = row(LAYER, addition, over_law=3.0)
    assert correct(addition, both) == pytest.approx(3.0)
    assert correct(LAYER, both, row(LAYER, over_law=1.1)) == pytest.approx(1.1)


def test_only_the_16_bit_types_share_measurements() -> None:
    rows = [row(LAYER, over_law=2.0)]
    assert correct(dataclasses.replace(LAYER, dtype="float16"), *rows) == pytest.approx(2.0)
    assert correct(dataclasses.replace(LAYER, dtype="tf32"), *rows) == 1.0


def alike(over_law: float) -> list[MeasuredOperator]:
    """Return rows that agree with each other, so that they are believed between them."""
    return [row(dataclasses.replace(LAYER, rows=LAYER.rows << step), over_law=over_law) for step in range(6)]


def test_a_correction_fades_with_distance() -> None:
    scales = (32, 40, 64, 1024, 1 << 20)
    factors = [correct(dataclasses.replace(LAYER, rows=LAYER.rows * scale), *alike(4.0)) for scale in scales]
    assert factors[0] == pytest.approx(4.0)
    assert factors[1] > 2.5
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] == pytest.approx(1.0, abs=0.01)


def test_with_fewer_than_five_rows_only_exact_matches_count() -> None:
    rows = alike(4.0)[:4]
    between = dataclasses.replace(LAYER, rows=LAYER.rows * 3 // 2)
    assert [correct(each, *rows) for each in (LAYER, between)] == pytest.approx([4.0, 1.0])


def test_a_different_layout_counts_as_one_octave() -> None:
    layout = dataclasses.replace(LAYER, right_is_transposed=False)
    octave = dataclasses.replace(LAYER, columns=2 * LAYER.columns, right_alignment=16)
    assert 1.5 < correct(layout, *alike(4.0)) < 4.0
    assert correct(layout, *alike(4.0)) == pytest.approx(correct(octave, *alike(4.0)), rel=1e-6)


def products(count: int, seed: int) -> list[Product]:
    draw = Random(seed)
    sizes = [1 << each for each in range(7, 14)]
    return [
        linear(draw.choice(sizes), draw.choice(sizes), draw.choice(sizes), "bfloat16", element_bytes=2)
        for _ in range(count)
    ]


def another(operation: Operation, gpu: Gpu) -> float:
    """Return seconds of a GPU whose law is another: slower memory, quicker arithmetic."""
    return seconds(
        operation, dataclasses.replace(gpu, memory_bytes_per_s=gpu.memory_bytes_per_s / 2, multiprocessors=100)
    )


def errors(rows: list[MeasuredOperator], held: list[Operation], gpu: Gpu) -> tuple[float, float]:
    """Return the mean errors of the law alone and of the law with the rows."""
    table = OperatorTable(surfaces={}, nearest=Nearest(rows, gpu))
    truth = [another(each, gpu) for each in held]
    alone = [abs(seconds(each, gpu) / true - 1) for each, true in zip(held, truth, strict=True)]
    tabled = [seconds(each, gpu) * correction([table], each).factor for each in held]
    both = [abs(each / true - 1) for each, true in zip(tabled, truth, strict=True)]
    return sum(alone) / len(alone), sum(both) / len(both)


def test_measurements_of_another_law_halve_the_error_between_them() -> None:
    families: list[tuple[list[Operation], list[Operation]]] = [
        ([*products(80, 1)], [*products(40, 2)]),
        (
            [contiguous("add", 1 << each, "float32", inputs=2) for each in range(10, 29, 2)],
            [contiguous("add", 3 << each, "float32", inputs=2) for each in range(10, 26, 3)],
        ),
        (
            [Reduction(name="sum", dtype="float32", outer=1, reduced=1 << each, inner=1) for each in range(10, 29, 2)],
            [Reduction(name="sum", dtype="float32", outer=1, reduced=3 << each, inner=1) for each in range(10, 26, 3)],
        ),
    ]
    for measured, held in families:
        rows = [MeasuredOperator(operations=(each,), us=another(each, GPU) * 1e6) for each in dict.fromkeys(measured)]
        law, both = errors(rows, held, GPU)
        assert both < 0.5 * law


def test_measurements_that_say_nothing_of_each_other_leave_the_law_alone() -> None:
    draw = Random(3)
    rows = [row(each, over_law=draw.choice([0.5, 2.0])) for each in dict.fromkeys(products(60, 4))]
    measured = {each.operations[0] for each in rows}
    assert {correct(each, *rows) for each in products(60, 5) if each not in measured} == {1.0}


def test_an_operator_with_a_size_that_others_leave_out_is_of_another_family() -> None:
    attentions = [
        Attention(batch=8, heads=8, key_heads=8, queries=step, keys=step, head_size=64, dtype="bfloat16")
        for step in (128, 256, 512, 1024, 2048, 4096)
    ]
    rows = [row(each, over_law=2.0) for each in attentions]
    assert correct(dataclasses.replace(attentions[3], window=128, is_serving=True), *rows) == 1.0


def test_unknown_ids_of_a_trace_are_taken_from_the_predicted_operator() -> None:
    bags = uniform(tables=26, rows=100_000, dim=128, bags=8192, length=1)
    unknown = dataclasses.replace(bags, unique=0, long_runs=0, longest=0)
    for known, partial in (
        (BagsForward(bags=bags), BagsForward(bags=unknown)),
        (BagsBackward(bags=bags), BagsBackward(bags=unknown)),
    ):
        measured = MeasuredOperator(operations=(partial,), us=3e6 * seconds(known, GPU))
        assert correct(known, measured) == pytest.approx(3.0)
    gather = Gather(rows=8192, dim=768, dtype="float32", unique=100)
    measured = MeasuredOperator(operations=(dataclasses.replace(gather, unique=0),), us=3e6 * seconds(gather, GPU))
    assert correct(gather, measured) == pytest.approx(3.0)


def test_a_table_overrides_earlier_ones_by_its_weight() -> None:
    wider = dataclasses.replace(LAYER, columns=LAYER.columns * 2)
    below = OperatorTable(surfaces={}, nearest=Nearest([row(each, over_law=4.0) for each in (LAYER, wider)], GPU))
    above = OperatorTable(surfaces={}, nearest=Nearest(alike(2.0), GPU))
    assert correction([below, above], LAYER).factor == pytest.approx(2.0)
    assert 2.0 < correction([below, above], wider).factor < correction([below], wider).factor


@pytest.mark.parametrize("seed", range(6))
def test_half_of_an_h200s_operators_do_not_make_the_other_half_worse(seed: int) -> None:
    found = []
    for cells in rows_of(PUBLISHED / "h200_operators.csv"):
        try:
            one = describe(cells)
        except NotDescribedError:
            continue
        us = float(cells["us"]) - 1e6 * one.beside_s
        if us > 0:
            found.append(MeasuredOperator(operations=one.operations, us=us, is_cold=one.is_cold))
    Random(seed).shuffle(found)
    measured, held = found[::2], found[1::2]
    table = OperatorTable(surfaces={}, nearest=Nearest(measured, GPU))
    alone, both = [], []
    for kept in held:
        laws = [seconds(each, GPU, is_cold=kept.is_cold) for each in kept.operations]
        corrections = [correction([table], each).factor for each in kept.operations]
        alone.append((1e6 * sum(laws), kept.us))
        both.append((1e6 * sum(law * by for law, by in zip(laws, corrections, strict=True)), kept.us))
    assert len(held) > 60
    assert mean_error(both) <= mean_error(alone)


def test_a_file_round_trips_its_rows_and_description(tmp_path: Path) -> None:
    file = tmp_path / "mine.parquet"
    rows = (
        row(LAYER, contiguous("add_", 1 << 22, "bfloat16"), over_law=1.5, calls=7),
        row(BagsBackward(bags=uniform(tables=8, rows=1000, dim=128, bags=512, length=3)), over_law=2.0, is_cold=True),
    )
    write_table(file, rows, ORIGIN)
    assert read_table(file) == rows
    about = about_table(str(file), GPU)
    assert (about.rows, about.machines, about.sources) == (2, ("NVIDIA H200",), ("a test",))
    assert correction([table_of(str(file), GPU)], rows[1].operations[0]).factor == pytest.approx(2.0)


def test_a_file_with_a_description_of_nothing_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.parquet"
    write_table(file, [MeasuredOperator(operations=(LAYER,), us=-1.0)], ORIGIN)
    with pytest.raises(ScenarioError, match=r"mine\.parquet: .*us = -1\.0: expected a time above 0"):
        table_of(str(file), GPU)


@pytest.mark.parametrize(
    ("machine", "note"),
    [
        ("NVIDIA A100-SXM4-80GB", "operators of NVIDIA A100-SXM4-80GB, where predictions are of H200 SXM 141 GB"),
        ("NVIDIA H200", None),
        ("a machine", None),
    ],
)
def test_a_file_of_another_gpu_is_a_note(machine: str, note: str | None, tmp_path: Path) -> None:
    file = tmp_path / "mine.parquet"
    write_table(file, [row(LAYER, over_law=1.5)], Origin(machine=machine, date="2026-11-27", source="a test"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table_of(str(file), GPU)
    assert [str(one.message) for one in caught] == ([] if note is None else [f"{file}: {note}"])
