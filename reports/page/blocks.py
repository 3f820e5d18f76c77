"""The parts of a page: sections of facts, tables, charts and paragraphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from bokeh.models import LayoutDOM


class Link(NamedTuple):
    """Words that lead to another page, or to a place on this one."""

    words: str
    href: str


Cell = str | Link


class Fact(NamedTuple):
    """One number that matters, with its name and what it is of.

    `raw` is the same number as it stands in its frame, for whoever reads the page with a program.
    """

    name: str
    value: str
    note: str = ""
    raw: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """A row of tiles."""

    items: Sequence[Fact]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under their columns, of which the first `left` are text and the others numbers on the right.

    `folded`: shown only when asked for, as the numbers behind a chart are. `raw` has, by name, numbers of the frame
    that the table is of, for whoever reads the page with a program.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    left: int = 1
    note: str = ""
    folded: bool = False
    raw: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing; `name` tells it from all others of the page. `note` says how to read it."""

    name: str
    title: str
    model: LayoutDOM
    note: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The spans of some ranks and steps, to zoom into and to filter; `timeline` makes one."""

    name: str
    title: str
    model: LayoutDOM
    operations: Sequence[Operation]
    places: Sequence[Place]
    note: str = ""


class Operation(NamedTuple):
    """One of those that a timeline can show or hide: how many of its spans are there, and what they take together."""

    name: str
    part: str
    color: str
    spans: int
    total: str


class Place(NamedTuple):
    """A stretch of a timeline that has a name, such as a step; in ms of its axis."""

    name: str
    from_ms: float
    until_ms: float
    step: int


@dataclass(frozen=True, slots=True)
class Words:
    """A paragraph; `items` are listed below it."""

    text: str
    items: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """Preformatted text, such as a scenario; folded unless `open`."""

    title: str
    text: str
    open: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A place that one of the page's own scripts fills; `note` says how to read it."""

    name: str
    note: str = ""


Block = Facts | Table | Chart | Timeline | Words | Listing | View


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a title; `name` is its address on the page. Without blocks, `absent` says why there is nothing."""

    name: str
    title: str
    blocks: Sequence[Block] = ()
    absent: str = ""

    def __post_init__(self) -> None:
        assert bool(self.blocks) != bool(self.absent), f"{self.name}: shows something, or says why not"


@dataclass(frozen=True, slots=True)
class Own:
    """What one kind of page has beyond others: files of this package, and the data that its scripts read."""

    styles: Sequence[str] = ()
    scripts: Sequence[str] = ()
    data: Any = None


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page: `about` are lines under its title, `foot` where its numbers come from."""

    title: str
    about: Sequence[str]
    sections: Sequence[Section]
    foot: Sequence[str] = ()
    own: Own = Own()
