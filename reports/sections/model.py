"""The data model of sections, for every output: blocks of words, tables and figures, which each renderer shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pandas as pd

from reports.terminal.rows import cells

Output = Literal["terminal", "page"]
TERMINAL: tuple[Output, ...] = ("terminal",)
# Pieces of a bar with a smaller share of the whole are not named.
LEAST_SHARE = 0.005
PAGE: tuple[Output, ...] = ("page",)
BOTH: tuple[Output, ...] = ("terminal", "page")


class PageLink(NamedTuple):
    """A link to another page, or to a place on this one."""

    words: str
    href: str


Cell = str | PageLink


class Fact(NamedTuple):
    """A number with its name and a note; `raw` is the number as in its frame, for programs that read the page."""

    name: str
    value: str
    note: str = ""
    raw: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """A row of tiles; a terminal has a line or more for each fact, as a page has if `lines`."""

    items: Sequence[Fact]
    lines: bool = False


class Column(NamedTuple):
    """A column with the outputs that have it; at least `kept` letters of it stay visible where text is cut."""

    title: str
    outputs: Sequence[Output] = BOTH
    kept: int = 0


Columns = Sequence[str | Column]
FrameColumns = Mapping[str, str | Column]


class Most(NamedTuple):
    """The maximal numbers of rows, by output."""

    terminal: int
    page: int


class Grid(NamedTuple):
    """A table as one output shows it."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    left: int
    left_out: int


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of cells under their columns, of which the first `left` are text and the others right-aligned numbers.

    `rows` are all rows, or a function that returns the first ones of `count`. Outputs show at most `most`, and state
    how many `others` there are; a page also names the `file` that has them. `note` states on a page how to read the
    table. `folded`: a page shows it only on request. `name` and `raw`, numbers of the frame, are for programs that read
    the page.
    """

    title: str
    columns: Columns
    rows: Sequence[Sequence[Cell]] | Callable[[int], Sequence[Sequence[Cell]]]
    left: int = 1
    note: str = ""
    folded: bool = False
    raw: Mapping[str, float] = field(default_factory=dict)
    name: str = ""
    most: Most | None = None
    count: int = 0
    others: str = "more"
    file: str = ""

    def grid(self, output: Output) -> Grid:
        """Return the columns and rows that an output shows, and how many rows it leaves out."""
        most = len(self.rows) if not callable(self.rows) and self.most is None else getattr(self.most, output)
        rows = self.rows(most) if callable(self.rows) else self.rows[:most]
        columns = [Column(one) if isinstance(one, str) else one for one in self.columns]
        places = [at for at, column in enumerate(columns) if output in column.outputs]
        left = sum(at < self.left for at in places)
        count = self.count if callable(self.rows) else len(self.rows)
        kept = [[row[at] for at in places] for row in rows]
        return Grid([columns[at] for at in places], kept, left, max(0, count - most))


def table_of(title: str, frame: pd.DataFrame, columns: FrameColumns, **others: Any) -> ReportTable:
    """Return the table of a frame; the columns' names imply the units in which cells are written."""

    def rows(most: int) -> list[list[str]]:
        return cells(frame.head(most), list(columns))

    most = others.pop("most", None) or Most(len(frame), len(frame))
    return ReportTable(title, list(columns.values()), rows, count=len(frame), most=most, **others)


@dataclass(frozen=True, slots=True)
class Words:
    """A line or more; `items` are numbered below it. A terminal has them in bold if `strong`."""

    text: str
    items: Sequence[str] = ()
    strong: bool = False


class SectionPiece(NamedTuple):
    """A part of a whole; `name` also selects its colour, `letter` represents it in a line of letters."""

    name: str
    letter: str
    duration_ns: float
    share: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A whole and its pieces, in order; `note` states how to read it, `short_note` in a line.

    A terminal sums pieces with a share below `least` as the rest.
    """

    name: str
    title: str
    of: str
    pieces: Sequence[SectionPiece]
    note: str = ""
    short_note: str = ""
    least: float = LEAST_SHARE


class RankedBar(NamedTuple):
    """A bar of a ranking: its name, its length as a share of the whole, and its value in words."""

    name: str
    share: float
    value: str


class BarGroup(NamedTuple):
    """Bars of a ranking that belong together; `kind` selects their colour."""

    title: str
    kind: str
    bars: Sequence[RankedBar]


@dataclass(frozen=True, slots=True)
class RankedBars:
    """A ranking in groups, for pages; each bar is a part of a track that represents the whole."""

    name: str
    title: str
    groups: Sequence[BarGroup]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """A preformatted text, such as a scenario; folded on a page unless `open`."""

    title: str
    text: str
    open: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that a page shows only on request."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class View:
    """A place on the page that a JavaScript of its own fills; `note` tells readers how to read the drawing."""

    name: str
    note: str = ""


class Figure(NamedTuple):
    """A page's drawing of the report's subject: module and function below `reports.page`, such as "run.links.hosts".

    The name stands for the function, because drawing modules take long to load.
    """

    draw: str
    of: Any


Block = Facts | ReportTable | Words | Bar | RankedBars | Listing | Fold | View | Figure


@dataclass(frozen=True, slots=True)
class Shown:
    """A titled list of blocks; `name` is its address on the page. `absent` has the reason if there are no blocks.

    A page shows the blocks only on request if `folded`.
    """

    name: str
    title: str
    blocks: Sequence[Any] = ()
    absent: str = ""
    folded: bool = False

    def __post_init__(self) -> None:
        assert bool(self.blocks) != bool(self.absent), f"{self.name}: shows something, or says why not"


Blocks = Callable[[Any], Iterable[Block]]


class SectionPart(NamedTuple):
    """Blocks of a section, made for these outputs only."""

    blocks: Blocks
    outputs: Sequence[Output] = BOTH


def on_page(blocks: Blocks) -> SectionPart:
    """Return the part that pages alone have."""
    return SectionPart(blocks, PAGE)


def on_terminal(blocks: Blocks) -> SectionPart:
    """Return the part that terminals alone have."""
    return SectionPart(blocks, TERMINAL)


def figure(draw: str) -> SectionPart:
    """Return the part that a page draws."""
    return on_page(lambda of: [Figure(draw, of)])


def lacking(rows: Callable[[Any], Sized], why: str | Callable[[Any], str]) -> Callable[[Any], str]:
    """Return an `absent` that says why there is nothing where there are no rows."""
    return lambda of: "" if len(rows(of)) else why if isinstance(why, str) else why(of)


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A section of reports. `absent` says why there is nothing of it, which `absent_in` outputs show; "": it is
    there. `data` are its frames and values in JSON, by key. A page shows its blocks only on request if `folded`.
    """

    name: str
    title: str
    parts: Sequence[SectionPart | Blocks] = ()
    absent: Callable[[Any], str] = lambda of: ""
    absent_in: Sequence[Output] = BOTH
    data: Callable[[Any], Mapping[str, Any]] = lambda of: {}
    folded: bool = False

    def parts_for(self, output: Output) -> list[Blocks]:
        """Return the functions that make the section's blocks for an output."""
        parts = (part if isinstance(part, SectionPart) else SectionPart(part) for part in self.parts)
        return [part.blocks for part in parts if output in part.outputs]

    def show(self, of: Any, output: Output) -> Shown | None:
        """Return the section as it is for an output; None where it has nothing of it."""
        parts = self.parts_for(output)
        if parts and (why := self.absent(of)):
            return Shown(self.name, self.title, absent=why) if output in self.absent_in else None
        blocks = [block for part in parts for block in part(of)]
        return Shown(self.name, self.title, blocks, folded=self.folded) if blocks else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report on a subject: lines that introduce the subject, then sections in order; JSON begins with `data`."""

    lines: Callable[[Any], Sequence[str]]
    sections: Sequence[ReportSection]
    data: Callable[[Any], Mapping[str, Any]] = lambda of: {}
