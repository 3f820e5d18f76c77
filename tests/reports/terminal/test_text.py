from __future__ import annotations

import io
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from reports.terminal import text

NAN = float("nan")


@pytest.mark.parametrize(
    ("form", "numbers", "words"),
    [
        (text.duration, [0, 999, 1000, 8_123_456, -45_600, 2e11], "0 ns, 999 ns, 1.00 us, 8.12 ms, -45.6 us, 200 s"),
        (text.size, [0, 1023, 1536, 3 << 39], "0 B, 1023 B, 1.50 KiB, 1.50 TiB"),
        (text.rate, [0, 999, 1.25e8, 1.25e10], "0.00 B/s, 999 B/s, 125 MB/s, 12.5 GB/s"),
        (text.percent, [0.123], "12.3 %"),
        (text.signed_percent, [0.123, -0.5], "+12.3 %, -50.0 %"),
        (partial(text.representative, "rank 7"), [1, 16, 1200], "rank 7, rank 7 & 15 more, rank 7 & 1,199 more"),
        (partial(text.count_words, noun="rank"), [0, 1, 131072], "0 ranks, 1 rank, 131,072 ranks"),
    ],
    ids=["durations", "sizes", "rates", "shares", "signed shares", "representatives", "counts"],
)
def test_numbers_have_their_units(form, numbers, words):
    assert ", ".join(map(form, numbers)) == words


def test_unknown_values_are_dashes():
    forms = (text.duration, text.size, text.rate, text.number, text.percent, text.signed_percent)
    assert [form(NAN) for form in forms] == ["-"] * 6


def test_infinite_values_are_shown_as_inf():
    assert [form(float("inf")) for form in (text.duration, text.size, text.rate)] == ["inf days", "inf TiB", "inf GB/s"]


def test_labels_cannot_command_a_terminal():
    wicked = "\x1b[31mred\x1b[0m\r\ud800"
    shown = text.as_text(text.table(wicked, [wicked], [[wicked]])) + text.as_text(text.paragraph(f"a\n{wicked}"))
    assert [line.strip() for line in shown.splitlines()].count(repr(wicked)) == 4
    assert all(one.isprintable() for one in shown.splitlines())


WORDS = st.text(st.characters(codec="utf-8", categories=["L", "N"]), max_size=90)


@given(st.lists(st.tuples(WORDS, WORDS, st.integers(0, 10**9).map(str)), min_size=1, max_size=4))
def test_no_line_is_wider_than_a_terminal_and_no_number_is_cut(rows):
    lines = text.as_text(text.table("Title", ["one", "two", "a number"], rows, left=2)).splitlines()
    assert max(map(cell_len, lines)) <= text.WIDTH
    assert [line.rstrip().endswith(row[2]) for line, row in zip(lines[3:], rows, strict=False)] == [True] * len(rows)


def test_text_is_cut_first_where_it_is_wider_than_what_is_kept_of_it():
    row = ["n" * 50, "s" * 20, "1" * 30]
    for kept, width in (((30, 12), 16), ((60, 12), 14)):
        lines = text.as_text(text.table("Title", ["name", "sort", "a number"], [row], left=2, kept=kept)).splitlines()
        assert max(map(cell_len, lines)) <= text.WIDTH
        assert lines[3] == row[0]  # on a line of its own
        assert [len(words) for words in lines[4].split()] == [width, 30]


def test_steps_in_many_pieces_are_counted():
    assert [text.steps(one) for one in ([], [3], [0, 1, 2], [0, 2, 3, 5])] == [
        "no step",
        "step 3",
        "steps 0-2",
        "steps 0, 2-3, 5",
    ]
    assert text.steps([n for n in range(100) if n % 10]) == "90 of steps 1-99"


EXCHANGES = [
    "table_wise.output_dist.all_to_all @embeddings",
    "table_wise.output_dist_backward.all_to_all @embeddings",
    "table_row_wise.output_dist.all_to_all @embeddings",
    "powersgd.P @gradients",
    "powersgd.Q @gradients",
]


def test_names_are_cut_where_they_differ_least():
    assert list(text.shorten_distinctly(EXCHANGES, 29).values()) == [
        "table_wise.output_dist.all_…s",
        "table_wise.output_dist_back…s",
        "table_row_wise…ll @embeddings",
        "powersgd.P @gradients",
        "powersgd.Q @gradients",
    ]


@given(st.sets(st.sampled_from(EXCHANGES) | st.text("ab.é漢", max_size=30), max_size=12), st.integers(8, 60))
def test_names_that_differ_never_print_the_same(names: set[str], width: int):
    short = text.shorten_distinctly(sorted(names), width)
    assert len({*short.values()}) == len(names)
    assert all(short[name] == name for name in names if cell_len(name) <= width)
    shown = text.as_text(text.table("T", ["name", "number"], [[name, "1" * 30] for name in sorted(names)]))
    assert names <= {line.removesuffix("1" * 30).rstrip() for line in shown.splitlines()}


def test_tables_are_as_wide_as_the_variable_columns_says(monkeypatch):
    table = text.table("Title", ["name", "number"], [["n" * 100, "1"]])
    assert max(map(cell_len, text.as_text(table).splitlines())) == text.WIDTH
    monkeypatch.setenv("COLUMNS", "120")
    assert "n" * 100 in text.as_text(table)
    monkeypatch.setenv("COLUMNS", "0")
    assert max(map(cell_len, text.as_text(table).splitlines())) == text.WIDTH


def test_labels_are_never_taken_for_markup():
    printed = text.as_text(text.table("Title", ["operation"], [["[red]all[/red] :smile:"]]))
    assert "[red]all[/red] :smile:" in printed


def test_colours_are_for_terminals(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    text.show(text.paragraph("bold", style="bold"), terminal)
    assert "\x1b[" in terminal.getvalue()
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in text.as_text(text.paragraph("bold", style="bold red"))


def test_json_has_no_nan_and_no_numpy():
    content = {"one": [np.int64(3), np.float64("nan"), (np.bool_(True), float("inf"), {1: np.int64(2)})]}
    assert text.json_ready(content) == {"one": [3, None, [True, None, {"1": 2}]]}


DIGITS = st.integers(0, 10**60) | st.floats(1e-9, 1e12)
FIGURES = st.builds(
    lambda value, form: form.format(value), DIGITS, st.sampled_from(["{:,}", "{:+,} %", "{:,} B", "{:,} to 7 ms", "{}"])
)


@given(st.data(), st.integers(40, 200), st.integers(1, 3), st.integers(0, 7))
def test_no_digit_is_ever_cut(data: st.DataObject, width: int, left: int, numbers: int):
    words = [st.text("abc_.", max_size=60) | FIGURES] * left + [FIGURES | st.just("-")] * numbers
    columns = data.draw(st.lists(st.text("abc d", min_size=1, max_size=30), min_size=len(words), max_size=len(words)))
    rows = data.draw(st.lists(st.tuples(*words), max_size=4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        shown = text.as_text(text.table("Title", columns, rows, left=left))
    lines = shown.splitlines()
    assert max(map(cell_len, lines)) <= width
    folded = "".join(shown.split())
    for figure in (cell for row in rows for cell in row if cell[:1].isdigit() or cell[:1] == "+"):
        assert figure.replace(" ", "") in folded
        number = figure.split()[0]
        assert len(number) > width or any(number in line for line in lines)


def test_columns_without_room_follow_below_beside_the_names(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    rows = [["dense.forward", "20,674,000", "31,415,926", "+12.5 %"], ["b", "1", "2", "-"]]
    lines = text.as_text(text.table("Title", ["operation", "first", "second", "change"], rows)).splitlines()
    assert [line.split() for line in lines if line.strip("─ ")] == [
        ["Title"],
        ["operation", "first", "second"],
        ["dense.forward", "20,674,000", "31,415,926"],
        ["b", "1", "2"],
        ["operation", "change"],
        ["dense.forward", "+12.5", "%"],
        ["b", "-"],
    ]


def test_rows_are_lists_where_no_column_has_room(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    rows = [["f" * 30, "1" * 30, "2" * 50]]
    lines = text.as_text(text.table("Title", ["name", "one", "two"], rows)).splitlines()
    assert lines[1:] == ["name: " + "f" * 30, "one: " + "1" * 30, "two: ", "2" * 40, "2" * 10, ""]


@pytest.mark.parametrize(
    ("words", "width", "short"),
    [
        ("20,674,000 ids of a table", 14, "20,674,000 …le"),
        ("table of 20,674,000 ids", 16, "… 20,674,000 ids"),
        ("layer.12.attention.34", 12, "layer.…on.34"),
        ("1234567890", 8, "1234…890"),
    ],
)
def test_a_cut_takes_numbers_whole_where_it_can(words, width, short):
    assert text.shorten(words, width) == short
