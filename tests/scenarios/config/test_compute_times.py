"""Files of measured times: what is read, each mistake in a sentence, which computation finds which time."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.config.compute_times import ComputeCounter, ComputeTime, ComputeTimes
from scenarios.config.load import load
from scenarios.config.scenario import Scenario
from scenarios.config.warnings import NotesAfter
from scenarios.seam.kernel import Kernel
from scenarios.seam.trace import Span
from tests.mistakes import mistakes_of
from tests.reports.recordings import span
from tests.scenarios.config.toml.bad_pieces import EXCHANGE

WORK, IDLE = Kernel(kind="gemm", flops=1.0), Kernel(kind="gemm")
KEY = "[run]\ncompute_times = 'times.csv'\n"
NUMBER = "expected a number from 0 to 3600000000"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(EXCHANGE + KEY)
    return tmp_path


def read(content: str | bytes, name: str = "times.csv") -> Scenario:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return load("s.toml")


def times(*known: tuple[str, int | None, int]) -> ComputeTimes:
    rows = tuple(ComputeTime(label=label, call=call, time_ns=ns) for label, call, ns in known)
    return ComputeTimes(path=Path("times.csv"), rows=rows)


# The file


@pytest.mark.usefixtures("folder")
def test_a_file_is_read_in_any_order_of_columns() -> None:
    plain = read("label,call,time_us,spread,samples\na,1,1.5,0.1,4\na,2,2,,\n\nb,,0.0004,,\n")
    assert plain.run.compute_times == times(("a", 1, 1500), ("a", 2, 2000), ("b", None, 0))
    text = '\ufefftime_us, label\r\n1e3 ,"x, ""y"""\r\n'
    assert read(text).run.compute_times == times(('x, "y"', None, 1_000_000))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("content", "sentences"),
    [
        ("", ["no times; expected a first line with the columns' names, and rows below it"]),
        ("label,time_us\n", ["no times; expected a first line with the columns' names, and rows below it"]),
        (
            "lable,call,call\na,1,1\n",
            [
                "first line: label, time_us: missing; expected label, call, time_us, spread, samples, with commas"
                " between them",
                "first line: 'lable': unknown column; expected label",
                "first line: call: given more than once; expected once",
            ],
        ),
        (
            'label,call,time_us\n,1,fast\na,0,1_0\nb,1\n"c\nd",1.5,nan\ne,,-1\nf,,3600000001\n',
            [
                "line 2: label = '': expected a computation's label",
                f"line 2: time_us = 'fast': {NUMBER}",
                "line 3: call = '0': expected a whole number from 1 to 999999999, or nothing for every call",
                f"line 3: time_us = '1_0': {NUMBER}",
                "line 4: 2 values; expected 3, as in the first line",
                r"line 5: label = 'c\nd': expected a computation's label",
                "line 5: call = '1.5': expected a whole number from 1 to 999999999, or nothing for every call",
                f"line 5: time_us = 'nan': {NUMBER}",
                f"line 7: time_us = '-1': {NUMBER}",
                f"line 8: time_us = '3600000001': {NUMBER}",
            ],
        ),
        (
            "label,call,time_us\na,,1\na,1,1\na,,2\na,1,2\na\n",
            [
                "line 4: label = 'a': expected each label once, but line 2 has it already",
                "line 5: label = 'a': expected call 1 of each label once, but line 3 has it already",
                "line 6: 1 value; expected 3, as in the first line",
            ],
        ),
        ('label,time_us\n"a,1\n', ["line 2: not CSV: unexpected end of data"]),
    ],
)
def test_every_mistake_is_a_sentence_with_its_line(content: str, sentences: list[str]) -> None:
    assert mistakes_of(read, content) == [f"times.csv: {sentence}" for sentence in sentences]


def test_files_that_are_no_text_are_refused_in_one_sentence(folder: Path) -> None:
    place = "s.toml: run.compute_times = 'times.csv': expected times.csv to be"
    assert mistakes_of(read, b"\xff") == [f"{place} UTF-8 text"]
    (folder / "times.csv").unlink()
    assert mistakes_of(load, "s.toml") == [f"{place} a file"]


def test_a_path_is_relative_to_the_file_in_which_it_stands(folder: Path) -> None:
    (folder / "parts").mkdir()
    (folder / "parts" / "base.toml").write_text(EXCHANGE + KEY)
    (folder / "parts" / "times.csv").write_text("label,time_us\na,1\n")
    (folder / "s.toml").write_text('include = "parts/base.toml"\n')
    assert load("s.toml").run.compute_times == ComputeTimes(
        path=Path("parts/times.csv"), rows=(ComputeTime(label="a", call=None, time_ns=1000),)
    )
    (folder / "mine.csv").write_text("label,time_us\nb,1\n")
    assert load("s.toml", {"compute_times": "mine.csv"}).run.compute_times == ComputeTimes(
        path=Path("mine.csv"), rows=(ComputeTime(label="b", call=None, time_ns=1000),)
    )
    assert mistakes_of(load, "s.toml", {"compute_times": "none.csv"}) == [
        "--compute-times = 'none.csv': expected none.csv to be a file"
    ]


def test_times_change_what_is_stored_and_not_what_is_compared(folder: Path) -> None:
    (folder / "plain.toml").write_text("name = 's'\n" + EXCHANGE)
    timed, plain = read("label,time_us\na,1.5\n"), load("plain.toml")
    assert timed.digest() == plain.digest()
    assert plain.as_dict()["compute_times"] is None
    assert timed.as_dict()["compute_times"] == {
        "path": "times.csv",
        "rows": [{"label": "a", "call": None, "time_ns": 1500}],
    }


# Which computation finds which time


def find(
    calls: ComputeCounter, rank: int, step: int, label: str, stream: str = "main", *, idle: bool = False
) -> int | None:
    row = calls.next(rank, stream, step, label, cost=IDLE if idle else WORK)
    return None if row is None else row.time_ns


def test_calls_are_counted_by_rank_stream_step_and_label() -> None:
    calls = ComputeCounter(times(("a", 1, 10), ("a", 2, 20), ("b", 1, 30)))
    assert [find(calls, 0, 0, "a") for _ in range(3)] == [10, 20, None]
    assert [find(calls, 1, 0, "a"), find(calls, 0, 0, "b"), find(calls, 0, 0, "a", "side")] == [10, 30, 10]
    assert [find(calls, 0, 1, "a"), find(calls, 0, 1, "a"), find(calls, 0, 0, "c")] == [10, 20, None]


def test_a_time_without_call_is_for_each_call_that_has_none() -> None:
    calls = ComputeCounter(times(("a", None, 5), ("a", 2, 20)))
    assert [find(calls, 0, 0, "a") for _ in range(3)] == [5, 20, 5]


def test_empty_computations_and_those_outside_steps_have_no_measured_time() -> None:
    calls = ComputeCounter(times(("a", 1, 10), ("a", 2, 20)))
    assert find(calls, 0, -1, "a") is None
    assert [find(calls, 0, 0, "a", idle=True), find(calls, 0, 0, "a")] == [None, 20]
    assert find(ComputeCounter(None), 0, 0, "a") is None


# What is said after a prediction


def compute(*labels: tuple[str, int]) -> list[Span]:
    return [span(0, "compute", 0, took, label=label, flops=1.0, sequence=at) for at, (label, took) in enumerate(labels)]


def notes_after(scenario: Scenario, spans: list[Span]) -> list[str]:
    notes, half = NotesAfter(scenario), len(spans) // 2
    notes.add(spans[:half])
    notes.add(spans[half:])
    return list(notes.sentences())


@pytest.mark.usefixtures("folder")
def test_notes_say_how_much_was_measured_and_what_was_not_used() -> None:
    scenario = read("label,call,time_us\na,1,1\na,3,1\nb,,1\nz,,1\n")
    begin = "s.toml: run.compute_times = 'times.csv':"
    outside = [span(0, "compute", 0, 10**6, label="b", step=-1, flops=1.0)]
    assert notes_after(scenario, compute(("a", 30), ("a", 20), ("b", 20), ("d", 50), *[("b", 80)]) + outside) == [
        f"{begin} measured times are 65.0 % of the steps' compute time; not measured, longest first: d, a",
        f"{begin} not in any step of this program: a (call 3), z",
    ]
    assert notes_after(scenario, compute(("a", 3), ("a", 0), ("a", 1), ("b", 1), ("z", 1))) == [
        f"{begin} measured times are 100.0 % of the steps' compute time",
    ]
    assert notes_after(scenario, []) == [
        f"{begin} measured times are 0.0 % of the steps' compute time",
        f"{begin} not in any step of this program: a (call 1), a (call 3), b, z",
    ]


@pytest.mark.usefixtures("folder")
def test_long_lists_in_notes_are_cut() -> None:
    scenario = read("label,time_us\n" + "".join(f"l{n},1\n" for n in range(10)))
    *_, unused = notes_after(scenario, [])
    assert unused.endswith("program: l0, l1, l2, l3, l4, l5, l6, l7 and 2 more")


def test_without_a_file_there_is_nothing_to_say(folder: Path) -> None:
    (folder / "plain.toml").write_text(EXCHANGE)
    assert notes_after(load("plain.toml"), compute(("a", 1))) == []


@pytest.mark.usefixtures("folder")
def test_empty_computations_do_not_count_as_unmeasured() -> None:
    scenario = read("label,call,time_us\na,1,1\n")
    idle = [span(1, "compute", 0, 10, label="a", sequence=0)]
    assert notes_after(scenario, compute(("a", 30)) + idle) == [
        "s.toml: run.compute_times = 'times.csv': measured times are 75.0 % of the steps' compute time"
    ]
