"""Published times of single operators: what is read and refused, how rows are joined, and what the tables say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from reports.errors import ReportError
from reports.published import kernels
from reports.published.errors import operator_errors
from reports.published.kernels import KernelPrediction, PublishedTime
from reports.published.outcome import tell_missed_by_count
from reports.terminal.text import WIDTH
from tests.reports.refusals import refusal
from twinstep.reporting.cli import main

Write = Callable[..., Path]
OPERATORS = "kind,desc,us,flops\nadd,4096,4.0,1\nfft,4096,5.0,1\nadd,8192,50.0,1\n"
TBE_HEAD = "T,E,D,B,L,opt,w,zipf,fwd_ms,bwd_ms\n"
FP32 = "id,file,op,gpu,B,M,N,K,H,ms\n1,elem,add,H100,64,,,,1024,0.03\n2,elem,add,Q1,64,,,,1024,0.03\n"
GPUS = "op,gpu,dtype,shape,value_us\nlinear,H100,bf16,m64 n64 k64,3.5\n"
PUBLISHED = Path(__file__).parents[2] / "data" / "published" / "kernels"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def write_(text: str, name: str = "k.csv") -> Path:
        Path(name).write_text(text)
        return Path(name)

    return write_


def half_too_slow(row: PublishedTime, profile: str | None) -> KernelPrediction:
    """1.5 times the measured time; of `fft` nothing."""
    if row.cells.get("kind") == "fft":
        raise ReportError("kind 'fft': no law\nof such rows")
    return KernelPrediction(
        predicted_us=1.5 * row.measured_us,
        law_us=2 * row.measured_us,
        family="f",
        profile=row.cells.get("gpu") or str(profile),
    )


def join(*paths: Path, profile: str | None = "p") -> pd.DataFrame:
    return kernels.join((row for path in paths for row in kernels.read(path, profile).rows), half_too_slow, profile)


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        (OPERATORS, ["operators"] * 3),
        (TBE_HEAD + "8,100,128,64,10,ADAM,FP32,,0.5,1.5\n", ["embeddings forward", "embeddings backward"]),
        (TBE_HEAD + "8,100,128,64,10,ADAM,FP32,,0.5,\n", ["embeddings forward"]),
        (FP32, ["float32"] * 2),
        (GPUS, ["gpus"]),
    ],
)
def test_the_header_says_which_form_rows_have(write: Write, text: str, forms: list[str]) -> None:
    assert [row.form for row in kernels.read(write(text), "p").rows] == forms


def test_times_are_in_us_and_cells_stay_as_they_are(write: Write) -> None:
    forward, backward = kernels.read(write(TBE_HEAD + "8,100,128,64,10,ADAM,FP32,,0.50,1.5\n"), "p").rows
    assert (forward.measured_us, backward.measured_us, forward.timed) == (500.0, 1500.0, "fwd_ms")
    assert (forward.cells["T"], forward.cells["fwd_ms"], forward.line) == ("8", "0.50", 2)


def test_other_files_have_no_form(write: Write) -> None:
    assert kernels.form_of(write("source,op,library\na,b,c\n")) is None
    assert kernels.form_of(Path("absent.csv")) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("kind,desc,us\nadd,4096,0\n", "k.csv: line 2: us = '0': expected a number above 0"),
        ("kind,desc,us\nadd,4096,\n", "k.csv: line 2: us = '': expected a number above 0"),
        ("kind,desc,us\nadd,4096\n", "k.csv: line 2: 2 values; expected 3, as in the first line"),
    ],
)
def test_a_mistake_is_a_sentence_with_its_line(write: Write, text: str, sentence: str) -> None:
    assert refusal(kernels.read, write(text), "p") == sentence


def test_rows_keep_their_columns_and_get_errors_or_reasons(write: Write) -> None:
    found = join(write(OPERATORS), write(GPUS, "g.csv"))
    assert found.columns.tolist()[:6] == ["file", "line", "kind", "desc", "us", "flops"]
    assert found["error"].dropna().tolist() == [0.5, 0.5, 0.5]
    assert found["reason"].tolist() == ["", "kind 'fft': no law of such rows", "", ""]
    assert found["profile"].tolist() == ["p", "", "p", "H100"]
    assert found["shape"].tolist() == ["", "", "", "m64 n64 k64"]


def test_tables_are_by_family_gpu_and_size(write: Write) -> None:
    found = operator_errors(join(write(OPERATORS), write(GPUS, "g.csv")))
    assert found["by_size"]["group"].tolist() == ["below 5 us", "20 to 100 us"]
    assert found["by_gpu"]["group"].tolist() == ["H100", "p"]
    assert found["by_family_and_gpu"][["group", "gpu", "rows"]].values.tolist() == [["f", "H100", 1], ["f", "p", 2]]
    (row,) = found["in_all"].to_dict("records")
    assert row["rows"] == 3
    assert {row[name] for name in ("mean", "median", "p95", "signed_median", "worst")} == {0.5}
    assert row["law_mean"] == 1.0


def test_unpredicted_rows_are_counted_with_their_reason(write: Write) -> None:
    path = write(OPERATORS + "fft,1,1.0,1\n")
    assert list(tell_missed_by_count(join(path))) == ["k.csv: 2 rows (line 3, 5): kind 'fft': no law of such rows"]


def test_the_command_predicts_by_the_laws_and_writes_csv(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(OPERATORS)
    assert main(["published", str(path), "--profile", "hgx_h200", "--csv", "out.csv"]) == 0
    shown, complaint = capsys.readouterr()
    assert complaint == ""
    assert shown.startswith("3 measured operators, 2 of them predicted.")
    assert "k.csv: 1 row (line 3): kind 'fft': no law of such rows" in shown
    assert max(map(len, shown.splitlines())) <= WIDTH
    out = pd.read_csv("out.csv")
    assert out["predicted_us"].notna().tolist() == [True, False, True]
    assert out["error"][0] == pytest.approx(out["predicted_us"][0] / 4.0 - 1)
    assert out["us"].tolist() == [4.0, 5.0, 50.0]


def test_the_command_gives_json_by_the_rows_gpus(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["published", str(write(FP32)), "--json"]) == 0
    shown, complaint = capsys.readouterr()
    assert complaint == "note: k.csv: first line: 'file': not read\n"
    content = json.loads(shown)
    assert [row["profile"] for row in content["measurements"]] == ["dgx_h100", ""]
    assert content["measurements"][1]["reason"] == "no profile: no ready one has a GPU 'Q1'"
    assert [row["group"] for row in content["by_family"]] == ["elementwise"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "k.csv: no column gpu; expected --profile NAME, the profile of the GPU that was measured"),
        (["--profile", "absent.toml"], "absent.toml"),
        (["--profile", "hgx_h200", "--gpu", "H100"], "--gpu: no file is nccl-tests' output"),
        (["steps.csv"], "k.csv: times of single operators, and others beside it; expected files of one kind"),
    ],
)
def test_the_command_refuses_in_one_sentence(
    write: Write, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    write(OPERATORS)
    write("source,op\n", "steps.csv")
    assert main(["published", "k.csv", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_thousands_of_rows_are_described_and_priced_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["published", str(PUBLISHED / "fp32.csv")]) == 0
    assert capsys.readouterr().out.startswith("4,806 measured operators, 4,806 of them predicted.")
