"""Error tables of published measurements: which rows count where, and that they fit a terminal."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from reports.errors import ReportError
from reports.json_document import document
from reports.published import collectives
from reports.published.collectives import PREDICTED, Prediction, PublishedRow
from reports.published.errors import CENTRED, COLLECTIVE_ERRORS, collective_errors
from reports.sections.published import COLLECTIVES, PublishedView
from reports.terminal.render import render_report
from reports.terminal.text import WIDTH, as_text
from tests.reports.published.rows import MIB, row
from tests.reports.recordings import PATIENT

DOCUMENT = (Path(__file__).parents[3] / "docs" / "reference" / "measurements.md").read_text(encoding="utf-8")


def always_100_us(one: PublishedRow, profile: str | None) -> Prediction:
    if one.gpu == "none":
        raise ReportError("gpu = 'none': no profile")
    return Prediction(predicted_us=100.0, formula_us=90.0, algorithm="ring", protocol="ll128", profile="p")


def render(joined: pd.DataFrame) -> str:
    return as_text(render_report(COLLECTIVES, PublishedView(joined=joined)))


def content() -> dict[str, Any]:
    return document(COLLECTIVES, PublishedView(joined=collectives.join([row()], always_100_us)))


def group(frame, name: str, sizes: str = "all") -> dict[str, object]:
    (found,) = frame[(frame["group"] == name) & (frame["sizes"] == sizes)].to_dict("records")
    return found


def test_groups_count_rows_with_and_without_small_ones():
    rows = [
        row(size_bytes=MIB, time_us=50.0),  # +100 %
        row(size_bytes=16 * MIB, time_us=200.0),  # -50 %
        row(size_bytes=32 * MIB, time_us=125.0),  # -20 %
        row(size_bytes=32 * MIB, gpu="none"),
    ]
    found = collective_errors(collectives.join(rows, always_100_us))["in_all"]
    everything = group(found, "all sources")
    assert (everything["rows"], everything["signed_median"]) == (3, pytest.approx(-0.2))
    assert everything["mean"] == pytest.approx((1 + 0.5 + 0.2) / 3)
    assert everything["p95"] == pytest.approx(0.5 + 0.9 * 0.5)  # linear between 0.5 and 1
    assert everything["worst"] == pytest.approx(1.0)
    large = group(found, "all sources", "16 MiB+")
    assert (large["rows"], large["signed_median"], large["worst"]) == (2, pytest.approx(-0.35), pytest.approx(-0.5))


def test_groups_without_large_rows_say_that_there_are_none():
    large = group(collective_errors(collectives.join([row()], always_100_us))["by_source"], "s", "16 MiB+")
    assert large["rows"] == 0
    assert math.isnan(large["mean"])  # type: ignore[arg-type]
    assert content()["by_source"][1]["mean"] is None


def test_sizes_and_scales_stand_from_small_to_large_and_sources_as_they_come():
    rows = [
        row(source="z", nodes=16, size_bytes=2**32),
        row(source="a", nodes=8, gpus_per_node=1, size_bytes=2**16 - 1),
        row(source="z", nodes=2, gpus_per_node=8, size_bytes=2**16),
    ]
    found = collective_errors(collectives.join(rows, always_100_us))
    assert found["by_source"]["group"].tolist() == ["z", "z", "a", "a"]
    assert found["by_size"]["group"].tolist() == ["below 64 KiB", "64 KiB to 1 MiB", "4 GiB and more"]
    assert found["by_scale"]["group"].tolist()[::2] == ["8x1", "2x8", "16x8"]


MEASURED = st.builds(
    row,
    line=st.integers(2, 9999),
    source=st.sampled_from(["a source with a name that is much too long for a terminal (8x400G)", "b", "大" * 60]),
    op=st.sampled_from(["all_reduce", "reduce_scatter", "broadcast"]),
    gpu=st.sampled_from(["A100", "none", ""]),
    nodes=st.integers(1, 128),
    gpus_per_node=st.integers(1, 8),
    size_bytes=st.integers(1, 2**35),
    time_us=st.floats(1.0, 1e6),
    file=st.sampled_from(["m.csv", "a_rather_long_name_of_a_file.csv"]),
)


@PATIENT
@given(rows=st.lists(MEASURED, max_size=20), seed=st.randoms(use_true_random=False))
def test_every_table_holds_each_predicted_row_once_in_whatever_order(rows, seed):
    found = collective_errors(collectives.join(rows, always_100_us))
    count = sum(one.gpu != "none" for one in rows)
    large = sum(one.gpu != "none" and one.size_bytes >= 16 * MIB for one in rows)
    for frame in found.values():
        assert list(frame.columns) == list(COLLECTIVE_ERRORS)
        assert frame.loc[frame["sizes"] == "all", "rows"].sum() == count
    for name in ("in_all", "by_source", "by_operation", "by_scale"):
        assert found[name].loc[found[name]["sizes"] == "16 MiB+", "rows"].sum() == large
    shuffled = seed.sample(rows, len(rows))
    again = collective_errors(collectives.join(shuffled, always_100_us))
    for name, frame in found.items():
        first, second = (
            one.sort_values(["group", "sizes"])[["rows", "signed_median", "mean", "p95"]].to_numpy(float)
            for one in (frame, again[name])
        )
        np.testing.assert_allclose(first, second, equal_nan=True)


@PATIENT
@given(rows=st.lists(MEASURED, min_size=1, max_size=20), factor=st.floats(0.1, 10.0))
def test_a_prediction_off_by_one_factor_is_off_by_it_everywhere(rows, factor):
    def predict(one: PublishedRow, profile: str | None) -> Prediction:
        return Prediction(
            predicted_us=factor * one.time_us, formula_us=None, algorithm="", protocol="", profile=""
        )  # fmt: skip

    for frame in collective_errors(collectives.join(rows, predict)).values():
        some = frame[frame["rows"] > 0]
        for name in ("signed_median", "worst"):
            np.testing.assert_allclose(some[name], factor - 1, atol=1e-12)
        for name in ("mean", "p95"):
            np.testing.assert_allclose(some[name], abs(factor - 1), atol=1e-12)


@PATIENT
@given(rows=st.lists(MEASURED, max_size=20))
def test_no_line_is_wider_than_a_terminal(rows):
    shown = render(collectives.join(rows, always_100_us))
    assert max(map(cell_len, shown.splitlines())) <= WIDTH
    assert "\x1b" not in shown


def test_the_worst_rows_stand_by_their_errors_size():
    rows = [row(line=line, time_us=time) for line, time in [(2, 110.0), (3, 400.0), (4, 40.0), (5, 99.0)]]
    shown = render(collectives.join(rows, always_100_us))
    lines = [line.split()[0] for line in shown.split("The worst rows")[1].splitlines()[3:11]]
    assert lines == ["4", "formula", "3", "formula", "2", "formula", "5", "formula"]
    assert "ring/ll128" in shown
    assert "+150.0 %" in shown


def test_nccls_own_formula_stands_beside_the_link_model_where_they_differ():
    def predict(one: PublishedRow, profile: str | None) -> Prediction:
        formula_us = {2: 104.0, 3: 70.0}.get(one.line)
        return Prediction(predicted_us=100.0, formula_us=formula_us, algorithm="ring", protocol="LL", profile="p")

    joined = collectives.join([row(line=2), row(line=3), row(line=4, op="all_to_all")], predict)
    assert joined["formula_error"].tolist() == pytest.approx([0.04, -0.3, math.nan], nan_ok=True)
    found = collective_errors(joined)["by_operation"]
    assert group(found, "all_reduce")["formula_mean"] == pytest.approx(0.17)
    assert math.isnan(group(found, "all_to_all")["formula_mean"])  # type: ignore[arg-type]
    shown = render(joined).split("The worst rows")[1]
    (line,) = [line.split() for line in shown.splitlines()[1:] if "formula" in line]
    assert line == ["formula", "70.0", "us", "-30.0", "%"]


def test_unpredicted_rows_are_listed_once_per_reason():
    rows = [row(line=line, gpu="H100" if line == 3 else "none") for line in (2, 3, 4, 5)]
    rows.append(row(gpu="none", file="n.csv"))
    shown = render(collectives.join(rows, always_100_us))
    assert "Not predicted: 4 rows" in shown
    assert "m.csv: lines 2, 4-5: gpu = 'none': no profile" in shown
    assert "n.csv: line 2: gpu = 'none': no profile" in shown


def test_files_of_nothing_that_is_modelled_are_shown_too():
    shown = render(collectives.join([row(gpu="none")], always_100_us))
    assert shown.startswith("1 measurement of 1 source, 0 of them predicted.\n")
    assert "In all" not in shown


def test_every_key_is_documented():
    section = DOCUMENT.split("## Published measurements")[1]
    names = [*content(), *COLLECTIVE_ERRORS, *CENTRED, *PREDICTED]
    assert [name for name in names if f"`{name}`" not in section] == []
