"""Format numbers and tables for a terminal, by default of 80 columns."""

from __future__ import annotations

import io
import math
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

WIDTH, _LEAST_WIDTH = 80, 40
_GAP = 2  # between columns
_TEXT_LEAST, _NAME_LEAST = 14, 20  # least letters of a column of text, and of the first one
_SEEN = 5  # letters that make a difference between two names easy to see
_PIECES = 5  # most pieces of a list of steps
_NUMBER = re.compile(r"\d(?:[\d.,]*\d)?")
# Numbers with their units, several with short words between them: "1,024", "+3.1 %", "7.90 ms to 8.41 ms".
_FIGURE = re.compile(
    r"(?:[-+±~<>(]*\d[\d.,]*(?:e[-+]?\d+)?[%A-Za-z/)]{0,7}[,;]?)(?: (?:\S{1,7}|[-+±~<>(]*\d[\d.,]*\S{0,7}))*"
)
# The space between a number and its unit, and what holds its place while lines are folded.
_UNIT, _JOINT = re.compile(r"(?<=\d) (?=(?:%|[num]?s|B|[KMGT]iB|[kMG]B/s|[MGTP]FLOP/s)(?![A-Za-z]))"), "\x00"
_DURATIONS = ((86_400e9, "days"), (3600e9, "h"), (1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s"))
_FLOP_RATES = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"))
_SIZES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


def duration(ns: float) -> str:
    """Return "8.12 ms" for 8,123,456; a dash for nan."""
    return _in_unit(ns, _DURATIONS)


def size(size_bytes: float) -> str:
    """Return "1.50 GiB" for 1,610,612,736; a dash for nan."""
    return _in_unit(size_bytes, _SIZES)


def rate(bytes_per_s: float) -> str:
    """Return "12.5 GB/s" for 1.25e10: decimal, as in datasheets; a dash for nan."""
    return _in_unit(bytes_per_s, _RATES)


def flop_rate(flops_per_s: float) -> str:
    """Return "67.0 TFLOP/s" for 6.7e13; a dash for nan."""
    return _in_unit(flops_per_s, _FLOP_RATES)


def size_unit(size_bytes: float) -> tuple[str, float]:
    """Return the unit in which a size is written, and its bytes, for axes that have one unit: ("MiB", 1,048,576.0)."""
    return next(((unit, factor) for factor, unit in _SIZES if size_bytes >= factor), ("B", 1.0))


def _in_unit(value: float, units: Sequence[tuple[float, str]]) -> str:
    """Return the value to three digits in the largest unit that it reaches; ns and bytes have no fractions."""
    if math.isnan(value):
        return "-"
    factor, unit = next(((factor, unit) for factor, unit in units if abs(value) >= factor), units[-1])
    return f"{value:.0f} {unit}" if unit in ("ns", "B") else f"{to_three_digits(value / factor)} {unit}"


def number(value: float) -> str:
    """Return a number to about four digits, with separators where it is large; a dash for nan."""
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def to_three_digits(value: float) -> str:
    """Return "0.847", "12.3", "1,234": three digits, or all before the point; a dash for nan."""
    if math.isnan(value):
        return "-"
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value and math.isfinite(value) else 2
    return f"{value:,.{digits}f}"


def percent(share: float) -> str:
    """Return "12.3 %" for 0.123; a dash for nan."""
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


def signed_percent(share: float) -> str:
    """Return "+12.3 %" for 0.123; a dash for nan."""
    return "-" if math.isnan(share) else f"{100 * share:+.1f} %"


def interval(low: float, high: float, form: Callable[[float], str] = duration) -> str:
    """Return "7.90 ms to 8.41 ms"; a dash for nan."""
    return "-" if math.isnan(low) else f"{form(low)} to {form(high)}"


def format_range(low: float, high: float) -> str:
    """ "7.90-8.41 ms"; with two units where they differ."""
    first, second = duration(low), duration(high)
    if first == second:
        return first
    number, _, unit = first.rpartition(" ")
    return f"{number}-{second}" if second.endswith(f" {unit}") else f"{first}-{second}"


def count_words(count: int, noun: str) -> str:
    """Return "1 rank", "2 ranks", "3 classes"."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def ranges(numbers: Sequence[int]) -> str:
    """Return "0, 2-4" for 0, 2, 3, 4."""
    starts = [n for at, n in enumerate(numbers) if at == 0 or numbers[at - 1] != n - 1]
    ends = [n for at, n in enumerate(numbers) if at == len(numbers) - 1 or numbers[at + 1] != n + 1]
    return ", ".join(str(one) if one == two else f"{one}-{two}" for one, two in zip(starts, ends, strict=True))


def representative(name: object, count: int) -> str:
    """Return "rank 4139 & 15 more" for a representative of 16; the name itself for one."""
    return str(name) if count == 1 else f"{name} & {count - 1:,} more"


def steps(numbers: Sequence[int]) -> str:
    """Return "step 3", "steps 0-2", or "81 of steps 1-89" where they are in too many pieces."""
    if not numbers:
        return "no step"
    if len(numbers) == 1:
        return f"step {numbers[0]}"
    pieces = ranges(numbers)
    return f"steps {pieces}" if pieces.count(",") < _PIECES else f"{len(numbers)} of steps {numbers[0]}-{numbers[-1]}"


def printable(name: object) -> str:
    """Return a file's name as error messages quote it: on one line, whatever it contains."""
    words = str(name)
    return words if words.isprintable() else repr(words)


def shortest_endings(names: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return the fewest last parts of each name that no other name ends with; all of them if there are none."""
    return [
        next((one[-n:] for n in range(1, len(one)) if all(to == one or to[-n:] != one[-n:] for to in names)), one)
        for one in names
    ]


def shorten(words: str, width: int) -> str:
    """Return text cut in its middle to fit, since labels differ at both ends; numbers are cut whole."""
    middle = width - 1 - (width - 1) // 2
    return words if cell_len(words) <= width else _cut(words, width, _head(words, width, middle))


def clip(words: str, most: int) -> str:
    """Return at most the first `most` letters of a sentence, whole words and then an ellipsis."""
    return words if len(words) <= most else f"{words[: most - 2].rpartition(' ')[0] or words[: most - 2]} …"


def fold(words: str, width: int) -> list[str]:
    """Return printable text as lines of a width; a number keeps its unit, and words longer than a line are divided."""
    lines = (_UNIT.sub(_JOINT, printable(line)) for line in words.split("\n"))
    folded = (textwrap.wrap(line, width, break_on_hyphens=False) or [""] for line in lines)
    return [line.replace(_JOINT, " ") for lines in folded for line in lines]


def shorten_distinctly(names: Iterable[str], width: int) -> dict[str, str]:
    """Return names cut to fit such that no two become equal: in the middle, else near it.

    Where no single cut keeps names distinct, the differing part is kept between two cuts; failing that they are
    numbered.
    """
    short = {name: shorten(name, width) for name in names}
    for group in _alike(short):
        others = {cut for name, cut in short.items() if name not in group}
        ways = [[_cut(name, width, head) for name in group] for head in range(width)]
        ways.sort(key=lambda way: (-min(_SEEN, _unlike(way)), abs(2 * way[0].index("…") - width)))
        alike = next(at for at, letters in enumerate(zip_longest(*group)) if len({*letters}) > 1)
        ways += [[_around(name, width, alike) for name in group]]
        ways += [[f"{name[: width - len(f'{at}') - 1]}…{at}" for at, name in enumerate(group, 1)]]
        fits = (way for way in ways if len({*way}) == len(way) and not others.intersection(way))
        short.update(zip(group, next(fits, ways[-1]), strict=True))
    return short


def _unlike(way: Sequence[str]) -> int:
    """Return how many letters differ."""
    return sum(len({*letters}) > 1 for letters in zip(*way, strict=False))


def _alike(short: Mapping[str, str]) -> list[list[str]]:
    """Return groups of names that are cut to equal words."""
    groups: dict[str, list[str]] = {}
    for name, cut in short.items():
        groups.setdefault(cut, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _head(words: str, width: int, middle: int) -> int:
    """Return where a cut begins that no number touches, as near to the middle as possible; else the middle."""
    numbers = [match.span() for match in _NUMBER.finditer(words)]
    tail = len(words) - (width - 1)  # where the tail of a cut at 0 begins
    whole = (
        at
        for at in sorted(range(width), key=lambda at: abs(at - middle))
        if not any(first < at <= last or first <= tail + at < last for first, last in numbers)
    )
    return next(whole, middle)


def _cut(words: str, width: int, head: int) -> str:
    return f"{words[:head]}…{words[len(words) - (width - 1 - head) :]}"


def _around(words: str, width: int, place: int) -> str:
    """Return the beginning of the words, the part around a place, and the end."""
    part = max(1, (width - 2) // 3)
    return f"{words[:part]}…{words[place : place + width - 2 - 2 * part]}…{words[len(words) - part :]}"


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A grid that fits the width it is given, and cuts no figure; rich alone would cut numbers off.

    Text is narrowed first, then headers. Columns of numbers that do not fit follow below, next to the text again; if
    not even one fits, each row is a list.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int
    kept: Sequence[int] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width
        for name in (_NAME_LEAST, _TEXT_LEAST):
            if blocks := self._blocks(room, name):
                break
        else:
            yield self._lists()
        for at, columns in enumerate(blocks):
            if at:
                yield Text("")
            yield self._grid(columns, self._widths(columns, room, name))

    def _grid(self, columns: Sequence[int], widths: Sequence[int]) -> Text:
        """Return the header, a rule and the rows; a first cell wider than its column has a line of its own."""
        head = [shorten(self.columns[at], width) for at, width in zip(columns, widths, strict=True)]
        short = [
            shorten_distinctly(dict.fromkeys(row[at] for row in self.rows), width)
            for at, width in zip(columns[1:], widths[1:], strict=True)
        ]
        lines = [self._line(columns, widths, head), "─" * _wide(widths)]
        for name, *others in ([row[at] for at in columns] for row in self.rows):
            is_long = cell_len(name) > widths[0]
            cells = [words[cell] for words, cell in zip(short, others, strict=True)]
            lines += [name] if is_long else []
            lines.append(self._line(columns, widths, ["" if is_long else name, *cells]))
        return Text("\n".join(lines), overflow="fold")

    def _line(self, columns: Sequence[int], widths: Sequence[int], cells: Sequence[str]) -> str:
        padding = (width - cell_len(cell) for cell, width in zip(cells, widths, strict=True))
        padded = (
            cell + " " * room if at < self.left else " " * room + cell
            for at, cell, room in zip(columns, cells, padding, strict=True)
        )
        return (" " * _GAP).join(padded).rstrip()

    def _lists(self) -> Text:
        """Return each row as lines of column and cell, folded where they are too long."""
        rows = [
            "\n".join(f"{column}: {cell}" if column else cell for column, cell in zip(self.columns, row, strict=True))
            for row in self.rows
        ]
        return Text("\n\n".join(rows), overflow="fold")

    def _blocks(self, room: int, name: int) -> list[list[int]]:
        """Return the columns of each grid, one below the other; empty if a column does not fit next to the text."""
        every = [*range(len(self.columns))]
        text, least = every[: max(self.left, 1)], [self._least(at, name) for at in every]
        blocks = [[*text]]
        for at in every[len(text) :]:
            if len(blocks[-1]) > len(text) and _wide([least[one] for one in (*blocks[-1], at)]) > room:
                blocks.append([*text])
            blocks[-1].append(at)
        return blocks if all(_wide([least[at] for at in block]) <= room for block in blocks) else []

    def _widths(self, columns: Sequence[int], room: int, name: int) -> list[int]:
        widths = [max(cell_len(self.columns[at]), self._content(at)) for at in columns]
        shortest = [self._least(at, name) for at in columns]
        kept = [max([own, *self.kept[at : at + 1]]) for at, own in zip(columns, shortest, strict=True)]
        headers = [wide if at >= self.left else 0 for at, wide in zip(columns, widths, strict=True)]
        # text is narrowed before the headers of numbers
        for least in (kept, shortest):
            _narrow(widths, [max(pair) for pair in zip(least, headers, strict=True)], room)
        _narrow(widths, shortest, room)
        return widths

    def _content(self, at: int) -> int:
        return max((cell_len(row[at]) for row in self.rows), default=1)

    def _least(self, at: int, name: int) -> int:
        """Return how narrow a column may be: as wide as each figure in it, with its text still readable."""
        cells = [row[at] for row in self.rows]
        figures = cells if at >= self.left else filter(_FIGURE.fullmatch, cells)
        whole = max(cell_len(self.columns[at]), self._content(at))
        return max([min(_TEXT_LEAST if at else name, whole), *map(cell_len, figures)])


def _narrow(widths: list[int], least: Sequence[int], room: int) -> None:
    """Narrow the widest column above its least width, until all fit or none is left."""
    while _wide(widths) > room and (spare := [at for at in range(len(widths)) if widths[at] > least[at]]):
        widths[max(spare, key=lambda at: widths[at])] -= 1


def _wide(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, kept: Sequence[int] = ()
) -> RenderableType:
    """Return a table under its title; the first `left` columns are text, the others numbers on the right.

    Figures are never cut, even in a column of text: columns that do not fit follow below, next to the text again. Text
    wider than its column's width in `kept` is cut first. Control characters in labels are escaped.
    """
    head, *cells = [[printable(cell) for cell in row] for row in (columns, *rows)]
    return Group(_Folded([("", title)], "bold"), _Fitted(head, cells, left, kept), Text(""))


def paragraph(text: str, style: str = "") -> RenderableType:
    """Return a line or more, each folded at the width."""
    return Group(_Folded([("", text)], style), Text(""))


@dataclass(frozen=True, slots=True)
class _Folded:
    """Paragraphs, each behind its name in bold; lines after the first are indented below the text."""

    pairs: Sequence[tuple[str, str]]
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        indent = max((cell_len(name) + _GAP for name, _ in self.pairs if name), default=0)
        for name, value in self.pairs:
            for at, line in enumerate(fold(value, options.max_width - indent)):
                head = "" if at else name
                yield Text.assemble((head.ljust(indent) if line else head, "bold"), (line, self.style))


def facts(pairs: Sequence[tuple[str, str]]) -> RenderableType:
    """Return names with their values next to them, each of a line or more, folded at the width."""
    return Group(_Folded(pairs), Text(""))


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # the entry point handles it; rich would end the process


def show(renderable: RenderableType, stream: TextIO) -> None:
    """Print as wide as the variable COLUMNS, else the terminal, else 80 columns; colours only on a terminal."""
    on_terminal, columns = stream.isatty(), os.environ.get("COLUMNS", "")
    width = max(_LEAST_WIDTH, int(columns[:4])) if columns.isdecimal() and int(columns) else None
    console = _Console(
        file=stream,
        width=width or (None if on_terminal else WIDTH),
        no_color=None if on_terminal else True,
        force_terminal=None if on_terminal else False,
        force_jupyter=False,  # else a notebook shows what is only to be a string
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(renderable)


def as_text(renderable: RenderableType) -> str:
    """Return the text that `show` prints into a pipe."""
    stream = io.StringIO()
    show(renderable, stream)
    return stream.getvalue()


def json_ready(value: Any) -> Any:
    """Return a plain value: no numpy scalars, and None for nan and infinities, which JSON lacks."""
    if isinstance(value, dict):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
