"""Lines of a recording of all kinds: checked, and as events."""

from __future__ import annotations

from typing import Any

from scenarios.seam.host_work import HostWork
from scenarios.workloads.recording.events import calls, notes, tasks, waits, work  # noqa: F401 - they declare kinds
from scenarios.workloads.recording.events.event import EVENTS, RankEvent
from scenarios.workloads.recording.events.forms import is_host_work, is_text

# The kind of lines with the work of a GPU's host, which is no event: such a line holds the fields of `HostWork`.
HOST = "host"


def is_line(line: Any) -> bool:
    """Return whether a value read from a file is a valid line."""
    if not (isinstance(line, list) and line and is_text(line[0])):
        return False
    kind, *values = line
    if kind == HOST:
        return len(values) == 1 and is_host_work(values[0])
    return kind in EVENTS and EVENTS[kind].fits(values)


def of_line(line: list[Any]) -> RankEvent | HostWork:
    """Return the event, or the host's work, that a line describes."""
    kind, *values = line
    return HostWork(*values[0]) if kind == HOST else EVENTS[kind].of_line(*values)
