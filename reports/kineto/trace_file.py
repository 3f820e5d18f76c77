"""A file that `torch.profiler` exported: its events, with times in ns on its own axis, and its mistakes.

Fields are those that Kineto writes in PyTorch 2.0 to 2.13.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports.errors import ReportError
from reports.terminal.text import count_words, printable, shorten
from scenarios import given_file

ANNOTATION, CPU_OP, KERNEL = "user_annotation", "cpu_op", "kernel"
COPIES = ("gpu_memcpy", "gpu_memset")
# Calls of Python functions, recorded under `with_stack`; only modules are read.
MODULE, MODULES_NAME = "python_function", "nn.Module: "
LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime")
_READ = frozenset({ANNOTATION, CPU_OP, KERNEL, MODULE, *COPIES, *LAUNCHES})
# A larger `ts` without a base is a time since 1970 (here 2001), as PyTorch wrote it up to 2.2.
_SINCE_1970_US = 10**15
# Bounds within which every sum of times fits 64 bits of ns: up to the year 2096, and three years long.
_BASE_NS, _TS_US, _DUR_US = 4 * 10**18, 4 * 10**15, 10**14
_LONGEST = 60
_MOST_BYTES = 8 << 30  # a trace of minutes takes several GB
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the trace; times in ns on the trace's own axis."""

    start_ns: int
    end_ns: int
    name: str
    thread: tuple[str, str]
    args: Mapping[str, Any]

    @property
    def order(self) -> tuple[int, int, str, tuple[str, str]]:
        """The sort key: by start, enclosing events first; independent of the file's order."""
        return self.start_ns, -self.end_ns, self.name, self.thread


@dataclass(slots=True)
class TraceFile:
    """A trace file: its events by category, and its metadata."""

    path: Path
    about: Mapping[str, Any]
    base_ns: int = 0
    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    mistakes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rank: int = -1

    @property
    def info(self) -> Mapping[str, Any]:
        found = self.about.get("distributedInfo")
        return found if isinstance(found, dict) else {}

    @property
    def host(self) -> str:
        return as_text(self.about.get("host_name", ""))

    @property
    def on_gpu(self) -> bool:
        return any(self.events.get(category) for category in (KERNEL, *COPIES))

    @property
    def since_1970(self) -> bool:
        first = min((one.start_ns for events in self.events.values() for one in events), default=0)
        return first >= _SINCE_1970_US * 1000


def read_trace(path: Path) -> TraceFile:
    """Return the trace in a file.

    Raises:
        ReportError: a sentence for each of the first eight mistakes.
    """
    shown = printable(path)
    content = _content(path, shown)
    events = content.get("traceEvents") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(events, list):
        raise ReportError(f"{shown}: no traceEvents; expected a trace of torch.profiler (export_chrome_trace)")
    base = whole_number(content.get("baseTimeNanoseconds"), _BASE_NS)
    trace = TraceFile(path, {key: value for key, value in content.items() if key != "traceEvents"}, base or 0)
    negative, words = 0, _Words()
    for number, event in enumerate(events):
        events[number] = None  # frees the parsed event: the trace would otherwise be in memory twice
        if not isinstance(event, dict) or event.get("ph") != "X" or str(event.get("cat")) not in _READ:
            continue
        if event["cat"] == MODULE and not as_text(event.get("name", "")).startswith(MODULES_NAME):
            continue
        times = [_us(event.get("ts"), _TS_US), _us(event.get("dur"), _DUR_US)]
        wrong = [key for key, time in zip(("ts", "dur"), times, strict=True) if time is None]
        if wrong:
            value = shorten(repr(event.get(wrong[0])), _LONGEST)
            trace.mistakes.append(f"{shown}: traceEvents[{number}].{wrong[0]} = {value}: expected a time in us")
            continue
        start_us, took_us = (time or 0 for time in times)
        negative += took_us < 0
        if took_us >= 0:
            trace.events[event["cat"]].append(_event(event, trace.base_ns + _ns(start_us), _ns(took_us), words))
    if not trace.mistakes and not trace.on_gpu and not trace.events.get(CPU_OP):
        trace.mistakes.append(
            f"{shown}: neither kernels nor CPU operators; expected events of category kernel or cpu_op"
        )
    if trace.mistakes:
        more = len(trace.mistakes) - 8
        raise ReportError(
            "\n".join([*trace.mistakes[:8], *([f"{shown}: {more} more of this kind"] if more > 0 else [])])
        )
    if negative:
        trace.notes.append(f"{shown}: {count_words(negative, 'event')} of negative duration left out")
    for listed in trace.events.values():
        listed.sort(key=lambda event: event.order)
    return trace


def _content(path: Path, shown: str) -> Any:
    try:
        packed = given_file.content(path, _MOST_BYTES)
    except OSError as error:
        raise ReportError(f"{shown}: could not be read: {error.strerror or error}") from None
    try:
        data = given_file.unpack(packed, _MOST_BYTES)
    except ValueError as error:
        raise ReportError(f"{shown}: {error}; expected a whole file") from None
    try:
        content = given_file.parse_json(data)
        if _SURROGATE.search(data):  # a lone surrogate is not UTF-8, and neither Parquet nor a terminal takes it
            content = json.loads(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
        return content
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{shown}: not JSON: {error}; expected a trace of torch.profiler") from None


class _Words:
    """A cache that keeps each name and thread of the events once."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._threads: dict[tuple[str, str], tuple[str, str]] = {}

    def name(self, event: Mapping[str, Any]) -> str:
        """Return an event's name."""
        name = as_text(event.get("name", ""))
        return self._names.setdefault(name, name)

    def thread(self, event: Mapping[str, Any]) -> tuple[str, str]:
        """Return an event's process and thread."""
        thread = str(event.get("pid")), str(event.get("tid"))
        return self._threads.setdefault(thread, thread)


def _event(event: Mapping[str, Any], start_ns: int, took_ns: int, words: _Words) -> Event:
    args = event.get("args")
    return Event(
        start_ns, start_ns + took_ns, words.name(event), words.thread(event), args if isinstance(args, dict) else {}
    )


def as_text(value: object) -> str:
    """Return a value of the trace as text."""
    return str(value)


def whole_number(value: object, below: int) -> int | None:
    """Return a whole number from 0 up to `below`, also if written as text; None for other values."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below else None


def _us(value: object, most: int) -> float | None:
    """Return a time in us, whole numbers as int so that they stay exact; None if it is no time, or far below 0."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return value if -_DUR_US <= value <= most else None


def _ns(us: float) -> int:
    return round(us * 1000)
