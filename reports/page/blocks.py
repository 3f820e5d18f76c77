"""What pages have beyond the blocks of sections: drawings, and data for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from reports.sections.model import Shown

if TYPE_CHECKING:
    from bokeh.models import LayoutDOM


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
    operations: Sequence[ShownOperation]
    places: Sequence[TimelinePlace]
    note: str = ""


class ShownOperation(NamedTuple):
    """One of those that a timeline can show or hide: how many of its spans are there, and what they take together."""

    name: str
    part: str
    color: str
    spans: int
    total: str


class TimelinePlace(NamedTuple):
    """A stretch of a timeline that has a name, such as a step; in ms of its axis."""

    name: str
    from_ms: float
    until_ms: float
    step: int


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
    sections: Sequence[Shown]
    foot: Sequence[str] = ()
    own: Own = Own()
