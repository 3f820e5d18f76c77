"""What no run can be made of is refused in a sentence each, or left out and counted."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from reports.kineto import recording as kineto
from tests.reports.kineto.events import OLD, kernel, refuse, spans


def test_files_that_are_no_traces_are_refused_in_a_sentence_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("no JSON")
    Path("other").write_text('{"a": 1}')
    Path("list").write_text("[1]")
    Path("empty").write_text('{"traceEvents": [{"ph": "M"}, 7, {"ph": "X", "cat": []}]}')
    Path("cut.gz").write_bytes(gzip.compress(OLD.read_bytes())[:100])
    Path("deep").write_text("[" * 100_000)
    assert refuse(Path("text")) == [
        "text: not JSON: Expecting value: line 1 column 1 (char 0); expected a trace of torch.profiler"
    ]
    sentence = "no traceEvents; expected a trace of torch.profiler (export_chrome_trace)"
    assert refuse(Path("other"), Path("list"), Path("none")) == [
        f"other: {sentence}",
        f"list: {sentence}",
        "none: could not be read: No such file or directory",
    ]
    assert refuse(Path("empty")) == [
        "empty: neither kernels nor CPU operators; expected events of category kernel or cpu_op"
    ]
    assert refuse(Path("cut.gz"))[0].startswith("cut.gz: not readable as gzip: ")
    assert refuse(Path("deep"))[0].startswith("deep: not JSON: ")


def test_the_same_rank_twice_is_refused(trace):
    one = trace(kernel("a", 5, 1), name="one.json", distributedInfo={"rank": 0})
    two = trace(kernel("a", 5, 1), name="two.json", distributedInfo={"rank": 0})
    assert refuse(one, two) == ["two.json: rank = 0: that of one.json, too; expected one trace a rank"]


@pytest.mark.parametrize("value", ["soon", None, True, 1e300, float("nan"), 10**400, -(10**16)])
def test_a_time_that_is_none_is_refused(trace, value):
    sentence = refuse(trace({**kernel("a", 5, 1), "ts": value}))[0]
    assert sentence.startswith("t.json: traceEvents[0].ts = ")
    assert sentence.endswith(": expected a time in us")


def test_negative_durations_are_left_out_and_counted(trace):
    found = kineto.read([trace(kernel("a", 5, -1), kernel("b", 5, 1))], "r")
    assert found.notes == ("t.json: 1 event of negative duration left out",)
    assert [s.label for s in spans(found, kind="compute")] == ["b"]
