from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reports.json_document import document
from reports.sections.run.report import RUN
from reports.sections.run.subject import RunView
from reports.store import run_folder as store
from tests.commands import unfold
from tests.reports.recordings import by_hand, with_kernels
from twinstep.reporting.cli import main

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[str, str]:
    base = tmp_path_factory.mktemp("runs")
    sim, real = store.write(by_hand(), base / "sim"), store.write(by_hand(world="real"), base / "real")
    return str(sim), str(real)


def test_a_run_alone_is_shown(folders, capsys):
    assert main(["show", folders[0]]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("by_hand: predicted")
    assert not (Path(folders[0]) / "reports").exists()
    assert main([folders[0]]) == 0
    page = Path(folders[0]) / "reports" / "report.html"
    assert capsys.readouterr().out == f"{shown}report: {page}\n"
    assert page.is_file()


def test_json_output_writes_no_folder(folders, tmp_path, capsys):
    out = tmp_path / "out"
    assert main([folders[0], "--json", "--out", str(out)]) == 0
    assert main([*folders, "--json", "--out", str(out)]) == 0
    assert main(["compare", *folders, "--json", "--out", str(out)]) == 0
    assert not out.exists()


def test_several_runs_are_held_against_the_first(folders, tmp_path, capsys):
    assert main([*folders, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("2 runs side by side")
    assert printed.endswith(f"report: {tmp_path / 'side_by_side.html'}\n")
    assert max(map(len, printed.splitlines()[:-1])) <= 80
    assert main([folders[0], "--step", "7", "--json"]) == 2
    assert capsys.readouterr() == ("", "--step 7: the run has steps 0 to 2\n")
    assert main([*folders, "--step", "1"]) == 2
    assert capsys.readouterr().err == "--step 1: expected with one run; several may not have that step\n"


def test_json_is_json(folders, capsys):
    assert main(["show", folders[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "by_hand"
    assert main(["compare", *folders, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["steps"]["median_absolute_error"] == 0.0
    assert [check["agrees"] for check in content["checks"]] == [True, True, True]


@pytest.mark.parametrize("words", [["show"], []])
def test_json_is_of_the_requested_step(folders, capsys, words):
    assert main([*words, folders[0], "--json", "--step", "0"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == document(RUN, RunView.of(store.load(folders[0]), 0))
    assert found["dominant"] != document(RUN, RunView.of(store.load(folders[0])))["dominant"]


def test_two_runs_are_compared(folders, capsys):
    assert main(["compare", *folders]) == 0
    printed = capsys.readouterr().out
    assert "Steps: median error 0.0 %, worst +0.0 %" in printed
    assert "Same bytes per operation and rank: all 18 compared." in printed
    assert max(map(len, printed.replace(str(folders[1]), "measured").splitlines())) <= 80


def test_two_of_a_world_need_any(folders, capsys):
    assert main(["compare", folders[0], folders[0]]) == 2
    assert capsys.readouterr().err == (
        "both runs of 'by_hand' are simulated ones, expected a simulated and a real one;"
        " --any compares them all the same\n"
    )
    assert main(["compare", folders[0], folders[0], "--any"]) == 0


def test_a_single_folder_to_compare_must_be_a_validation(folders, tmp_path, capsys):
    assert main(["compare", folders[0]]) == 2
    assert capsys.readouterr().err == (
        f"{folders[0]}: expected two run folders, or that of a validation, which has validation.json\n"
    )
    assert main(["compare", folders[0], "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"--out {tmp_path}: expected with runs; a validation's page lies beside its runs\n"
    )


def test_every_frame_is_exported(folders, tmp_path, capsys):
    assert main(["export", folders[0], "--csv", str(tmp_path / "csv")]) == 0
    names = {path.stem for path in (tmp_path / "csv").iterdir()}
    assert names == set(store.load(folders[0]).derived())
    assert (tmp_path / "csv" / "spans.csv").read_text().count("\n") == 1 + 24
    assert main(["export", folders[0], "--csv", str(tmp_path / "csv")]) == 2
    assert capsys.readouterr().err == (
        f"{tmp_path / 'csv'}: exists already; nothing is ever overwritten, give another folder\n"
    )


def test_kernels_are_exported_alone_to_a_new_file(folders, tmp_path, capsys):
    run, file = store.write(with_kernels(by_hand()), tmp_path / "run"), tmp_path / "kernels.csv"
    assert main(["export", str(run), "--kernels-csv", str(file)]) == 0
    assert capsys.readouterr() == ("", "")
    assert file.read_text(encoding="utf-8") == (
        "operator,shapes,priced_by,predicted_us,count,share\n"
        'mm,"0x8 x 8, float32",roofline,10.0,2.0,0.5\n'
        'mm,"1x8 x 8, float32",law,10.0,2.0,0.5\n'
    )
    assert main(["export", folders[0], "--kernels-csv", str(file)]) == 2
    assert capsys.readouterr().err == f"{file}: exists already; nothing is ever overwritten, give another file\n"
    other = tmp_path / "other.csv"
    assert main(["export", folders[1], "--kernels-csv", str(other)]) == 0
    assert (
        unfold(capsys.readouterr().err) == f"note: {other}: no rows, as only predictions on GPUs list their kernels\n"
    )
    assert other.read_text(encoding="utf-8") == "operator,shapes,priced_by,predicted_us,count,share\n"


def test_a_mistake_is_one_sentence(tmp_path, folders, capsys):
    assert main([str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err == f"{tmp_path / 'no'}: no such run folder\n"
    assert main([folders[0], "--step", "7"]) == 2
    assert capsys.readouterr() == ("", "--step 7: the run has steps 0 to 2\n")


@pytest.mark.parametrize("words", [[], ["compare"], ["show", "x", "--frobnicate"], ["export", "x"]])
def test_a_wrong_command_line_ends_with_2(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "usage: python -m reports" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_error(folders):
    read, written = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "reports", folders[0]], cwd=ROOT, stdout=written, stderr=subprocess.PIPE, check=False
    )
    os.close(written)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_is_quiet(tmp_path):
    pipe = tmp_path / "run"
    pipe.mkdir()
    os.mkfifo(pipe / "run.json")  # nobody writes, so that loading waits; the door would refuse a pipe
    code = (
        "import pathlib, sys; pathlib.Path.is_file = pathlib.Path.exists\n"
        "from scenarios import given_file\n"
        "given_file.content = lambda path, *_: open(path, 'rb').read()\n"
        "from twinstep.reporting.cli import main\n"
        "import twinstep.reporting.commands\n"
        "print('ready', flush=True)\n"
        "sys.exit(main([sys.argv[1]]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(pipe)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=30)
    assert (process.returncode, complaint) == (130, b"")


def test_a_label_that_the_terminal_lacks_is_no_error(tmp_path):
    recording = by_hand(name="größer")
    folder = store.write(recording, tmp_path / "run")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "reports", str(folder)], cwd=ROOT, capture_output=True, env=environment, check=True
    )
    assert done.stdout.startswith(b"gr??er: predicted")
