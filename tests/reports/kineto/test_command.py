"""`python -m reports kineto`: a run of a profiler's traces, whatever letters and numbers are in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import reports
from tests.reports.kineto.events import CPU, GPU, kernel
from twinstep.reporting.cli import main


def test_the_command_writes_a_run_that_is_shown(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["kineto", *map(str, GPU), "--out", str(folder)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "32 kernels; of their time 68.8 % without operator, 28.9 % without annotation" in printed.out
    assert max(map(len, printed.out.splitlines()[:-1])) <= 80
    info = reports.load(folder).info
    assert (info.world, info.played_on, info.world_size) == ("real", "a profiler's trace", 2)
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out.startswith("run: measured, 2 ranks on 1 host\n\nstep time   887 us")


def test_json_is_json(tmp_path, capsys):
    assert main(["kineto", str(CPU), "--out", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    tables = {"by_kind", "by_label", "by_operator", "by_module", "top_kernels"}
    assert set(found) == {"run", "notes", "annotation", "attribution", *tables}
    for table in tables:
        assert sum(row["share"] for row in found[table]) == pytest.approx(1)


def test_a_taken_folder_is_refused(tmp_path, capsys):
    assert main(["kineto", str(CPU), "--out", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_odd_letters_and_numbers_of_a_trace_reach_the_folder(trace, capsys):
    odd: dict[str, Any] = {
        "Collective name": 7,
        "In msg nelems": 10**30,
        "Group size": "x",
        "dtype": [],
        "Process Group Name": "\ud800",
    }
    path = trace(kernel("[red]\ud800", 0, 0), kernel("ncclKernel", 0, 1, **odd), host_name=None)
    assert main(["kineto", str(path), "--out", "run"]) == 0
    assert "[red]?" in capsys.readouterr().out
    assert main(["run"]) == 0


def test_half_letters_anywhere_in_a_trace_become_question_marks(tmp_path):
    """Lone surrogates, which JSON can write and UTF-8 cannot."""
    text = GPU[0].read_text()
    path = tmp_path / "trace.json"
    path.write_text(text.replace('"dtype": "Float"', '"dtype": "\\ud800"').replace('"name": "', '"name": "\\udfff'))
    assert main(["kineto", str(path), "--out", str(tmp_path / "run")]) == 0
    assert reports.load(tmp_path / "run").spans["label"].str.startswith("?").any()
