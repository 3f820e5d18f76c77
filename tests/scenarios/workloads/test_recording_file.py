"""A recording of a script that somebody hands in: read whole, or one phrase with the file and what is wrong."""

from __future__ import annotations

import gzip
import json
import math
import reprlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from scenarios.workloads.recording.events.event import EVENTS
from scenarios.workloads.recording.file import read
from scenarios.workloads.recording.recorded import Recorded

KERNEL = {"kind": "gemm", "flops": 1e9, "parts": [{"kind": "gemm", "launches": 2}]}
SHAPE = [[4, 2], "float32", False]
RECORDED = Recorded(
    script="train.py",
    sha256="00",
    args=["--steps", "2"],
    env=[["A", "1"]],
    profile="dgx_h100",
    kind="cuda",
    hosts=1,
    gpus_per_host=2,
    steps=2,
    flops_per_s=1e12,
    lines=[
        ["kernel", 0, KERNEL, "train.py:3", ""],
        ["cpu", 1000, "train.py:4", ""],
        ["issue", "all_reduce", 0, "train.py:5", 0, [SHAPE], [], {"op": "sum"}, False, ""],
        ["wait", 0, 0],
        ["event", 1],
        ["after", 0, 0],
        ["gradient", 0, [0, 3]],
        ["new_group", [0, 1]],
        ["record", ["loss", math.nan]],
        ["memory", 1 << 30],
        ["sleep", 1000],
        ["synchronize"],
        ["step"],
    ],
    sequences=[list(range(12))],
    compiled=[[]],
    ranks=[0, 0],
    recorded_by=[0, 0],
)


def write(folder: Path, changes: dict[str, Any]) -> Path:
    path = folder / "recording.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"format": 7, **asdict(RECORDED), **changes}).encode()))
    return path


def refuse(path: Path) -> str:
    with pytest.raises(ValueError, match=r"^a recording of a script, but ") as caught:
        read(path)
    return str(caught.value).removeprefix(f"a recording of a script, but {path} ")


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "recording.json.gz"
    path.write_bytes(RECORDED.to_bytes())
    assert repr(read(path)) == repr(RECORDED)


@pytest.mark.parametrize(
    ("key", "value", "wrong"),
    [
        *(("flops_per_s", one, f" = {one!r}: expected a number above 0") for one in ("x", -1, 0, math.nan, True, None)),
        *((key, 0, " = 0: expected a whole number from 1 to 1,048,576") for key in ("hosts", "steps")),
        ("script", 0, " = 0: expected a text"),
        ("lines", 0, " = 0: expected a list"),
        ("hosts", 1 << 20, " = 1048576: expected at most 1,048,576 ranks"),
        ("args", [1], " = [1]: expected a list of texts"),
        ("env", [["A"]], " = [['A']]: expected a list of names with values"),
        ("kind", [], " = []: expected 'cpu' or 'cuda'"),
        ("ranks", ["a", "b"], " = ['a', 'b']: expected a list of 2 numbers below 1"),
        ("ranks", [0], " = [0]: expected a list of 2 numbers below 1"),
        ("recorded_by", [0, 2], " = [0, 2]: expected a list of 2 numbers below 2"),
        ("sequences", [1, 2], "[0] = 1: expected numbers of 13 lines"),
        ("sequences", [[99]], "[0] = [99]: expected numbers of 13 lines"),
        ("compiled", [[99]], "[0] = [99]: expected numbers of 13 lines"),
        ("compiled", [], " = []: expected a list of 1 steps"),
    ],
    ids=str,
)
def test_a_wrong_value_is_named(key: str, value: Any, wrong: str, tmp_path: Path) -> None:
    assert refuse(write(tmp_path, {key: value})) == f"is damaged: {key}{wrong}"


def test_a_missing_and_an_unknown_key_are_named(tmp_path: Path) -> None:
    assert refuse(write(tmp_path, {"more": 1})) == "is damaged: 'more': expected no such key"
    path = tmp_path / "recording.json.gz"
    content = {name: value for name, value in asdict(RECORDED).items() if name != "ranks"}
    path.write_bytes(gzip.compress(json.dumps({"format": 7, **content}).encode()))
    assert refuse(path) == "is damaged: expected ranks"


@pytest.mark.parametrize(
    "line",
    [
        [],
        1,
        [[]],
        ["kernel"],
        ["kernel", "0", KERNEL, "", ""],
        ["kernel", 0, KERNEL, "", "a role"],
        ["kernel", 0, KERNEL, "", []],
        ["kernel", 0, {"kind": "gemm", "flops": -1}, "", ""],
        ["kernel", 0, {"kind": "gemm", "other": 1}, "", ""],
        ["kernel", 0, {"kind": "gemm", "parts": [1]}, "", ""],
        ["kernel", 0, {**KERNEL, "layers": [["top", [[1, 2]]]]}, "", ""],
        ["kernel", 0, {**KERNEL, "layers": [["top", [[0, 0]]]]}, "", ""],
        ["kernel", 0, {**KERNEL, "layers": ["top"]}, "", ""],
        ["kernel", 0, {"kind": "gemm", "launches": 2**63}, "", ""],
        ["cpu", -1, "", ""],
        ["cpu", math.inf, "", ""],
        ["wait", 0],
        ["issue", "all_reduce", 0, "", 0, [[[-1], "float32", False]], [], {}, False, ""],
        ["issue", "__init__", 0, "", 0, [], [], {}, False, ""],
        ["issue", "barrier", 0, "", 0, [], [], {}, False, "mpi"],
        ["issue", "barrier", 0, "", 0, [], [], {}, False, {}],
        ["no kind", 0],
        ["synchronize_call"],
        ["synchronize_call", -1],
        ["new_group", [0, 0]],
        ["step", 1, 2],
        ["replica", [0, 0]],
    ],
    ids=str,
)
def test_a_wrong_line_is_named(line: Any, tmp_path: Path) -> None:
    path = write(tmp_path, {"lines": [RECORDED.lines[0], line, *RECORDED.lines[2:]]})
    kind = line[0] if isinstance(line, list) and line and str(line[0]) in EVENTS else None
    expected = "an event of a rank" if kind is None else f"the values of '{kind}'"
    assert refuse(path) == f"is damaged: lines[1] = {reprlib.repr(line)}: expected {expected}"


def test_steps_become_the_recorded_compiled_ones() -> None:
    step = RECORDED.lines.index(["step"])
    recorded = replace(RECORDED, sequences=[[0, step, 1, step, 1, 2, step, 10]], compiled=[[3, step]])
    made = recorded.as_compiled()
    assert made is not None
    assert made.sequences == [[0, step, 3, step, 3, step, 10]]
    assert RECORDED.as_compiled() is None


def test_damaged_bytes_are_said(tmp_path: Path) -> None:
    path = write(tmp_path, {})
    whole = path.read_bytes()
    path.write_bytes(whole[:12] + bytes([whole[12] ^ 255]) + whole[13:])
    assert refuse(path).startswith("could not be read: not readable as gzip: ")
    path.write_bytes(gzip.compress(b"[" * 200_000))
    assert refuse(path) == "could not be read: nested too deep"
