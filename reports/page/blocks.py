"""Blocks that only pages have, besides those of sections: drawings, and data for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from reports.sections.model import Shown

if TYPE_CHECKING:
    from bokeh.models import LayoutDOM
    from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing; `name` is unique on the page, `note` states how to read it."""

    name: str
    title: str
    model: LayoutDOM
    note: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing in SVG, which no script draws; `legend` has colours, or classes of the page's style, with their names.

    `caption` is a sentence below the drawing.
    """

    name: str
    title: str
    svg: Markup
    note: str = ""
    legend: Sequence[tuple[str, str]] = ()
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A chart of the spans of some ranks and steps, to zoom into and to filter; `timeline` makes one."""

    name: str
    title: str
    model: LayoutDOM
    operations: Sequence[ShownOperation]
    places: Sequence[TimelinePlace]
    note: str = ""


class ShownOperation(NamedTuple):
    """An operation that a timeline can show or hide: the number of its spans there, and their total time."""

    name: str
    part: str
    color: str
    spans: int
    total: str


class TimelinePlace(NamedTuple):
    """A named stretch of a timeline, such as a step; in ms of its axis."""

    name: str
    from_ms: float
    until_ms: float
    step: int


@dataclass(frozen=True, slots=True)
class Own:
    """A page kind's own files of this package, and the data that its scripts read."""

    styles: Sequence[str] = ()
    scripts: Sequence[str] = ()
    data: Any = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page: `about` are lines under its title, `foot` the origin of its numbers.

    One that is not `whole` has only its sections' contents, to stand in a notebook.
    """

    title: str
    about: Sequence[str]
    sections: Sequence[Shown]
    foot: Sequence[str] = ()
    own: Own = Own()
    whole: bool = True
