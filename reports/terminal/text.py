"""Formats numbers and tables for a terminal, by default of 80 columns."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import zip_longest
from typing import Any, Literal, ParamSpec, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

P = ParamSpec("P")

WIDTH = 80
_LEAST_WIDTH = 40
_GAP = 2  # between columns
_TEXT_LEAST = 8
_SEEN = 5  # letters that show at a glance that two names differ
_PIECES = 5  # of a list of steps
_DURATIONS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s"))
_FLOP_RATES = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"))
_SIZES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


def duration(ns: float) -> str:
    """ "8.12 ms" for 8,123,456; a dash for nan."""
    return _in_unit(ns, _DURATIONS)


def size(size_bytes: float) -> str:
    """ "1.50 GiB" for 1,610,612,736; a dash for nan."""
    return _in_unit(size_bytes, _SIZES)


def rate(bytes_per_s: float) -> str:
    """ "12.5 GB/s" for 1.25e10: decimal, as datasheets have it; a dash for nan."""
    return _in_unit(bytes_per_s, _RATES)


def flop_rate(flops_per_s: float) -> str:
    """ "67.0 TFLOP/s" for 6.7e13; a dash for nan."""
    return _in_unit(flops_per_s, _FLOP_RATES)


def size_unit(size_bytes: float) -> tuple[str, float]:
    """The unit in which a size is written, and its bytes, for axes that have one unit: ("MiB", 1,048,576.0)."""
    return next(((unit, factor) for factor, unit in _SIZES if size_bytes >= factor), ("B", 1.0))


def _in_unit(value: float, units: Sequence[tuple[float, str]]) -> str:
    """To three digits in the largest unit of which there is one; ns and bytes have no fractions."""
    if math.isnan(value):
        return "-"
    factor, unit = next(((factor, unit) for factor, unit in units if abs(value) >= factor), units[-1])
    return f"{value:.0f} {unit}" if unit in ("ns", "B") else f"{to_three_digits(value / factor)} {unit}"


def number(value: float) -> str:
    """A number to about four digits, with separators where it is large; a dash for nan."""
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def to_three_digits(value: float) -> str:
    """ "0.847", "12.3", "1,234": three digits, and all of those before the point; a dash for nan."""
    if math.isnan(value):
        return "-"
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value and math.isfinite(value) else 2
    return f"{value:,.{digits}f}"


def percent(share: float) -> str:
    """ "12.3 %" for 0.123; a dash for nan."""
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


def signed_percent(share: float) -> str:
    """ "+12.3 %" for 0.123; a dash for nan."""
    return "-" if math.isnan(share) else f"{100 * share:+.1f} %"


def interval(low: float, high: float, form: Callable[[float], str] = duration) -> str:
    """ "7.90 ms to 8.41 ms"; a dash for nan."""
    return "-" if math.isnan(low) else f"{form(low)} to {form(high)}"


def counted(count: int, noun: str) -> str:
    """ "1 rank", "2 ranks", "3 classes"."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def ranges(numbers: Sequence[int]) -> str:
    """ "0, 2-4" for 0, 2, 3, 4."""
    starts = [n for at, n in enumerate(numbers) if at == 0 or numbers[at - 1] != n - 1]
    ends = [n for at, n in enumerate(numbers) if at == len(numbers) - 1 or numbers[at + 1] != n + 1]
    return ", ".join(str(one) if one == two else f"{one}-{two}" for one, two in zip(starts, ends, strict=True))


def representative(name: object, count: int) -> str:
    """ "rank 4139 & 15 more" for a representative of 16; the name itself for one."""
    return str(name) if count == 1 else f"{name} & {count - 1:,} more"


def steps(numbers: Sequence[int]) -> str:
    """ "step 3", "steps 0-2", "81 of steps 1-89" where they are in too many pieces."""
    if not numbers:
        return "no step"
    if len(numbers) == 1:
        return f"step {numbers[0]}"
    pieces = ranges(numbers)
    return f"steps {pieces}" if pieces.count(",") < _PIECES else f"{len(numbers)} of steps {numbers[0]}-{numbers[-1]}"


def printable(name: object) -> str:
    """A file's name as errors have it: on one line, whatever is in it."""
    words = str(name)
    return words if words.isprintable() else repr(words)


def shortened(words: str, width: int) -> str:
    """Text cut in its middle to fit, since labels differ at both ends."""
    return words if cell_len(words) <= width else _cut(words, width, width - 1 - (width - 1) // 2)


def told_apart(names: Iterable[str], width: int) -> dict[str, str]:
    """Names cut to fit such that no two become the same: in the middle, else near it where they differ less.

    Where no one cut tells names apart, that stays which differs between two cuts; failing that they are numbered.
    """
    short = {name: shortened(name, width) for name in names}
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
    """How many letters differ."""
    return sum(len({*letters}) > 1 for letters in zip(*way, strict=False))


def _alike(short: Mapping[str, str]) -> list[list[str]]:
    """Names that are cut to the same words."""
    groups: dict[str, list[str]] = {}
    for name, cut in short.items():
        groups.setdefault(cut, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _cut(words: str, width: int, head: int) -> str:
    return f"{words[:head]}…{words[len(words) - (width - 1 - head) :]}"


def _around(words: str, width: int, place: int) -> str:
    """The beginning, what is around a place, and the end."""
    part = max(1, (width - 2) // 3)
    return f"{words[:part]}…{words[place : place + width - 2 - 2 * part]}…{words[len(words) - part :]}"


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A grid that shortens text, then headers, to fit the width it is given; rich alone would cut numbers off."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int
    kept: Sequence[int] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(options.max_width)
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0), header_style="")
        for at, (column, width) in enumerate(zip(self.columns, widths, strict=True)):
            justify: Literal["left", "right"] = "left" if at < self.left else "right"
            grid.add_column(Text(column), justify=justify, width=width, no_wrap=True, overflow="ellipsis")
        columns = [[row[at] for row in self.rows] for at in range(len(self.columns))]
        short = [told_apart(dict.fromkeys(cells), width) for cells, width in zip(columns, widths, strict=True)]
        for row in self.rows:
            # Text, so that a label such as "[red]" is not markup
            grid.add_row(*(Text(words[cell]) for words, cell in zip(short, row, strict=True)))
        yield grid

    def _widths(self, room: int) -> list[int]:
        contents = [max((cell_len(row[at]) for row in self.rows), default=1) for at in range(len(self.columns))]
        widths = [max(pair) for pair in zip(map(cell_len, self.columns), contents, strict=True)]
        shortest, numbers = [_TEXT_LEAST] * self.left, widths[self.left :]
        # text gives way before the headers of numbers
        for least in ([*(self.kept or shortest), *numbers], [*shortest, *numbers], [*shortest, *contents[self.left :]]):
            while sum(widths) + _GAP * (len(widths) - 1) > room:
                spare = [at for at in range(len(widths)) if widths[at] > least[at]]
                if not spare:
                    break
                widths[max(spare, key=lambda at: widths[at])] -= 1
        return widths


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, kept: Sequence[int] = ()
) -> RenderableType:
    """A table under its title; the first `left` columns are text, the others numbers on the right, never cut.

    Of text, what is wider than its column's width in `kept` is cut first. Labels may hold what would move the cursor.
    """
    head, *cells = [[printable(cell) for cell in row] for row in (columns, *rows)]
    return Group(Text(printable(title), style="bold"), _Fitted(head, cells, left, kept), Text(""))


def paragraph(text: str, style: str = "") -> RenderableType:
    """A line or more, each folded at the width."""
    return Group(Text("\n".join(map(printable, text.split("\n"))), style=style), Text(""))


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # the entry point decides; rich would end the process


def show(renderable: RenderableType, stream: TextIO) -> None:
    """Prints as wide as the variable COLUMNS says, else the terminal, else 80 columns; colours only on a terminal."""
    on_terminal, columns = stream.isatty(), os.environ.get("COLUMNS", "")
    width = max(_LEAST_WIDTH, int(columns[:4])) if columns.isdecimal() and int(columns) else None
    console = _Console(
        file=stream,
        width=width or (None if on_terminal else WIDTH),
        no_color=None if on_terminal else True,
        force_terminal=None if on_terminal else False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(renderable)


def as_text(renderable: RenderableType) -> str:
    """What `show` prints into a pipe."""
    stream = io.StringIO()
    show(renderable, stream)
    return stream.getvalue()


def json_ready(content: Callable[P, dict[str, Any]]) -> Callable[P, dict[str, Any]]:
    """Makes what a function returns plain: no numpy scalars, and None for nan and infinities, which JSON lacks."""

    @wraps(content)
    def plain(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        return {key: _plain(value) for key, value in content(*args, **kwargs).items()}

    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
