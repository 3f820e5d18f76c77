"""Published measurements: what is read of a CSV, what is refused in which sentence, and how predictions are joined."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.errors import ReportError
from reports.nccl import nccl_tests
from reports.published import collectives
from reports.published.collectives import PREDICTED, Prediction, PublishedRow
from reports.store import replace
from reports.terminal.text import WIDTH
from scenarios.seam.errors import ScenarioError
from tests.reports.published.rows import stand_in
from tests.reports.recordings import PATIENT
from tests.reports.refusals import refusal
from twinstep.reporting.cli import main

COLUMNS = [name for name in PublishedRow.__slots__ if name not in ("file", "line")]
HEAD = ",".join(COLUMNS)
ROW = {
    "source": "some, one (A100)", "op": "all_reduce", "library": "nccl", "gpu": "A100", "nodes": "2",
    "gpus_per_node": "8", "size_bytes": "16777216", "link_gbit_per_s": "200.0", "one_way_delay_ms": "",
    "time_us": "250.5", "quality": "plot", "launch_us": "",
}  # fmt: skip


def csv_text(rows: list[dict[str, str]], columns: list[str] | None = None) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns or COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Writes a file of the current folder, so that sentences name it alone."""
    monkeypatch.chdir(tmp_path)

    def write(content: str | bytes, name: str = "m.csv") -> Path:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return Path(name)

    return write


def refuse(*files: Path) -> list[str]:
    return refusal(nccl_tests.read_files, files).split("\n")


def tenth_too_slow(row: PublishedRow, profile: str | None) -> Prediction:
    if row.gpu == "B300":
        raise ReportError("gpu = 'B300': no profile")
    return Prediction(
        predicted_us=1.1 * row.time_us, formula_us=None, algorithm="ring", protocol="simple", profile=profile or "p"
    )


def test_a_row_is_read_as_it_stands(file):
    found = collectives.read(file(csv_text([ROW])))
    assert found.rows == (
        PublishedRow(
            file="m.csv", line=2, source="some, one (A100)", op="all_reduce", library="nccl", gpu="A100", nodes=2,
            gpus_per_node=8, size_bytes=16777216, link_gbit_per_s=200.0, one_way_delay_ms=None, time_us=250.5,
            quality="plot", launch_us=None,
        ),
    )  # fmt: skip
    assert found.notes == ()


@PATIENT
@given(columns=st.permutations([*COLUMNS, "comment", "predicted_us"]), blank_lines=st.integers(0, 2))
def test_order_of_columns_and_other_columns_change_nothing(tmp_path_factory, columns, blank_lines):
    path = tmp_path_factory.mktemp("any") / "m.csv"
    head, row = csv_text([ROW | {"comment": "x", "predicted_us": "no"}], columns).splitlines()
    path.write_text("\ufeff" + "\r\n".join([head, *[""] * blank_lines, row]), encoding="utf-8")
    found = collectives.read(path)
    plain = path.with_name("plain.csv")
    plain.write_text(csv_text([ROW]))
    (expected,) = collectives.read(plain).rows
    assert found.rows == (dataclasses.replace(expected, file=str(path), line=2 + blank_lines),)
    others = [repr(name) for name in columns if name not in COLUMNS]
    assert found.notes == (f"{path}: first line: {', '.join(others)}: not read",)


@PATIENT
@given(nodes=st.integers(1, 10**15), size=st.integers(0, 10**15), time=st.floats(1e-6, 1e12))
def test_numbers_come_through_unchanged(tmp_path_factory, nodes, size, time):
    path = tmp_path_factory.mktemp("any") / "m.csv"
    path.write_text(csv_text([ROW | {"nodes": str(nodes), "size_bytes": f"{size}.0", "time_us": repr(time)}]))
    (row,) = collectives.read(path).rows
    assert (row.nodes, row.size_bytes, row.time_us) == (nodes, size, time)


def test_columns_that_may_be_blank_may_be_missing(file):
    blank = ("gpu", "link_gbit_per_s", "one_way_delay_ms", "quality", "launch_us")
    kept = [name for name in COLUMNS if name not in blank]
    found = collectives.read(file(csv_text([{name: ROW[name] for name in kept}], kept)))
    (row,) = found.rows
    assert (row.gpu, row.link_gbit_per_s, row.one_way_delay_ms, row.quality, row.launch_us) == (
        "",
        None,
        None,
        "",
        None,
    )
    assert found.notes == ()


def test_every_mistake_of_every_file_is_said(file):
    one = file(
        csv_text(
            [
                ROW | {"size_bytes": "16 MiB", "time_us": "0"},
                ROW,
                ROW | {"nodes": "1.5", "gpus_per_node": "0", "link_gbit_per_s": "nan", "one_way_delay_ms": "-1"},
                ROW | {"source": " ", "time_us": "1_000", "quality": "\x1b[31mred"},
            ]
        )
    )
    two = file(HEAD + "\nhalf,a,row\n" + '"two\nlines",x\n' + "last\n", "n.csv")
    assert refuse(one, Path("none.csv"), two) == [
        "m.csv: line 2: size_bytes = '16 MiB': expected a whole number from 0 to 10^15",
        "m.csv: line 2: time_us = '0': expected a number above 0",
        "m.csv: line 4: nodes = '1.5': expected a whole number from 1 to 10^15",
        "m.csv: line 4: gpus_per_node = '0': expected a whole number from 1 to 10^15",
        "m.csv: line 4: link_gbit_per_s = 'nan': expected a number above 0 or nothing",
        "m.csv: line 4: one_way_delay_ms = '-1': expected a number from 0 on or nothing",
        "m.csv: line 5: source = '': expected printable text",
        "m.csv: line 5: time_us = '1_000': expected a number above 0",
        "m.csv: line 5: quality = '\\x1b[31mred': expected printable text or nothing",
        "none.csv: could not be read: No such file or directory",
        "n.csv: line 2: 3 values; expected 12, as in the first line",
        "n.csv: line 3: 2 values; expected 12, as in the first line",
        "n.csv: line 5: 1 value; expected 12, as in the first line",
    ]


def test_a_first_line_that_lacks_columns_is_one_sentence(file):
    names = [name for name in COLUMNS if name not in ("op", "time_us")]
    row = ROW | {"time": "250"}
    assert refuse(file(csv_text([{name: row[name] for name in (*names, "time")}], [*names, "time"]))) == [
        f"m.csv: first line: op, time_us: missing; expected {', '.join(COLUMNS)}, with commas between them"
    ]
    assert refuse(file(f"{HEAD},op\n")) == ["m.csv: first line: op: given more than once; expected once"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "no measurements; expected a first line with the columns' names, and rows below it"),
        (HEAD + "\n\n , \n", "no measurements; expected a first line with the columns' names, and rows below it"),
        (b"\xff\xfe,\n", "not UTF-8 text; expected CSV"),
        (f'{HEAD}\n"never closed,1\n2\n', "line 2: not CSV: unexpected end of data"),
    ],
)
def test_files_that_are_no_tables_are_refused_in_one_sentence(file, content, sentence):
    assert refuse(file(content)) == [f"m.csv: {sentence}"]


def test_a_folder_is_no_file(tmp_path):
    assert refuse(tmp_path) == [f"{tmp_path}: could not be read: Is a directory"]


def test_rows_that_cannot_be_predicted_keep_their_reason_and_stop_nothing(file):
    rows = collectives.read(file(csv_text([ROW | {"gpu": "B300"}, ROW, ROW | {"size_bytes": "0"}]))).rows
    joined = collectives.join(rows, tenth_too_slow, "mine")
    assert joined["reason"].tolist() == [
        "gpu = 'B300': no profile",
        "",
        "size_bytes = 0: expected something to send",
    ]
    assert joined["error"].isna().tolist() == [True, False, True]
    assert joined["error"][1] == pytest.approx(0.1)
    assert joined["profile"].tolist() == ["", "mine", ""]


def test_dtypes_are_fixed_even_of_no_rows(file):
    rows = collectives.read(file(csv_text([ROW]))).rows
    some, none = collectives.join(rows, tenth_too_slow), collectives.join([], tenth_too_slow)
    assert list(some.columns) == list(PREDICTED)
    pd.testing.assert_series_equal(some.dtypes, none.dtypes)
    assert some["nodes"].dtype == "int64"
    assert math.isnan(some["formula_us"][0])


def test_written_tables_can_be_read_again(file):
    rows = collectives.read(file(csv_text([ROW, ROW | {"gpu": "B300", "link_gbit_per_s": ""}]))).rows
    out = Path("out.csv")
    replace.write_csv(collectives.join(rows, tenth_too_slow), out)
    again = collectives.read(out).rows
    assert [dataclasses.replace(row, file="m.csv") for row in again] == list(rows)
    assert [path.name for path in sorted(Path().iterdir())] == ["m.csv", "out.csv"]
    sentence = "out.csv: exists already; nothing is ever overwritten, give another file"
    assert refusal(replace.write_csv, collectives.join(rows, tenth_too_slow), out) == sentence
    assert refusal(replace.check_free, Path("no/out.csv")) == "no/out.csv: could not be written: no is not a folder"


@pytest.fixture
def asked(monkeypatch):
    """Stands for the simulator's door and keeps what it is asked."""

    def answer(given: dict[str, Any]) -> dict[str, Any]:
        if given["gpu"] == "B300":
            raise ScenarioError(["gpu = 'B300': no profile", "expected A100"])
        return {"predicted_us": given["size_bytes"] / 1e5, "formula_us": 100.0, "protocol": "simple", "profile": "dgx"}

    return stand_in(monkeypatch, answer)


def test_the_command_asks_the_simulator_and_shows_tables(file, asked, capsys):
    path = file(csv_text([ROW, ROW | {"gpu": "B300"}, ROW | {"gpu": "B300"}]))
    assert main(["published", str(path)]) == 0
    shown, complaint = capsys.readouterr()
    assert complaint == ""
    assert shown.startswith("3 measurements of 1 source, 1 of them predicted.")
    assert "m.csv: lines 3-4: gpu = 'B300': no profile; expected A100" in shown
    assert max(map(len, shown.splitlines())) <= WIDTH
    assert "\x1b" not in shown
    assert asked[0] == {
        "op": "all_reduce", "library": "nccl", "gpu": "A100", "nodes": 2, "gpus_per_node": 8, "size_bytes": 16777216,
        "link_gbit_per_s": 200.0, "one_way_delay_ms": None, "profile": None,
    }  # fmt: skip


def test_launch_time_is_the_lower_bound_of_a_prediction(file, asked, capsys):
    assert main(["published", str(file(csv_text([ROW, ROW | {"launch_us": "47.2"}])))]) == 0
    assert capsys.readouterr().err == ""
    assert [given.get("figures") for given in asked] == [None, {"nccl_floor_ns": 47_200}]


def test_the_command_gives_json_and_csv(file, asked, capsys):
    path = file(csv_text([ROW | {"comment": ""}], [*COLUMNS, "comment"]))
    assert main(["published", str(path), "--json", "--csv", "out.csv", "--profile", "dgx_a100"]) == 0
    shown, complaint = capsys.readouterr()
    assert complaint == "note: m.csv: first line: 'comment': not read\n"
    content = json.loads(shown)
    assert (content["files"], content["profile"]) == (["m.csv"], "dgx_a100")
    (measurement,) = content["measurements"]
    (line,) = csv.DictReader(Path("out.csv").read_text().splitlines())
    assert list(line) == list(measurement) == list(PREDICTED)
    assert float(line["error"]) == measurement["error"] == pytest.approx(167.77216 / 250.5 - 1)
    assert (line["formula_us"], line["one_way_delay_ms"]) == ("100.0", "")
    assert asked[0]["profile"] == "dgx_a100"


def test_the_command_refuses_before_it_predicts(file, asked, capsys):
    path = str(file(csv_text([ROW])))
    bad = str(file("a,b\n", "bad.csv"))
    assert main(["published", path, bad]) == 2
    assert capsys.readouterr().err.startswith("bad.csv: first line: source, op, library, nodes,")
    assert main(["published", path, "--csv", path]) == 2
    assert capsys.readouterr().err == "m.csv: exists already; nothing is ever overwritten, give another file\n"
    assert main(["published", path, "--profile", "dgx_x"]) == 2
    assert capsys.readouterr().err.startswith("profile = 'dgx_x': expected a profile such as dgx_h100, ")
    assert asked == []
