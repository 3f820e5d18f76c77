"""Write a run as a Chrome/Perfetto JSON trace: hosts as processes, ranks and streams as threads, links as counters.

Events are streamed to a file. The viewer requires that slices of a thread nest, so overlapping spans of one stream go
to separate threads: steps, computation, communication and, for concurrent communication, further lanes of it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TextIO

import numpy as np
import pandas as pd

from reports.analysis.frames import COMPUTE, STEP, ints, is_collective
from reports.analysis.intervals import Ints
from reports.store.parts import Spans
from reports.terminal.text import representative
from scenarios.seam.trace import RunInfo

# Arrows among more members than this obscure the picture, and swell the file.
ARROW_MEMBERS_MAX = 64

_CHUNK = 100_000
_BIND = ',"bp":"e"'  # an arrow ends at the slice around its end, not at the next one

_SLICE = ["kind", "label", "group", "stream", "dtype", "kernel", "role", "host", "start_ns", "end_ns", "issued_ns"]
_SLICE += ["step", "sequence", "call", "rank_count", "bytes_in", "bytes_out", "bytes_sent"]
_COLUMNS = [*_SLICE, "rank"]
EVENTS_MAX = 100_000
# A period has an event at its begin and, unless another period begins there, one at its end.
_PERIODS_MAX = EVENTS_MAX // 2
# The number of periods that a link keeps before neighbours are merged.
_PERIODS_LEAST = 256
_LINK = ["link", "direction"]


class Counter(NamedTuple):
    """A load of a link from this moment on; `host` is -1 for links between leaf switches."""

    host: int
    link: str
    link_count: int
    at_ns: int
    percent: float


@dataclass(frozen=True, slots=True)
class Counters:
    """A sequence of `periods` in the order of links, highest load first, and of time; `left_out` links have none."""

    periods: pd.DataFrame
    left_out: int

    @staticmethod
    def of(link_rows: pd.DataFrame, load_rows: pd.DataFrame) -> Counters:
        """Return counters with no more than `EVENTS_MAX` events."""
        periods = _fewer(load_rows.drop(columns="link_count")).merge(link_rows, on=_LINK, suffixes=("", "_in_all"))
        periods = periods.sort_values(
            ["bytes_carried_in_all", *_LINK, "from_ns"], ascending=[False, True, True, True], ignore_index=True
        )
        number = periods.groupby(_LINK, sort=False).ngroup().to_numpy(np.int64)
        last = np.searchsorted(number, number, side="right")  # end of each row's link
        return Counters(periods[last <= _PERIODS_MAX], int(np.unique(number[last > _PERIODS_MAX]).size))

    def events(self) -> Iterator[Counter]:
        """Yield the mean load of each period at its begin, and 0 at its end unless another period begins there."""
        frame = self.periods
        hosts = np.where((frame["link_class"] == "uplink").to_numpy(bool), -1, ints(frame, "host"))
        took_s = (frame["until_ns"] - frame["from_ns"]) / 1e9
        percent = 100 * frame["bytes_carried"] / took_s / frame["bytes_per_s"]
        columns = [frame["link"], frame["link_count"], frame["from_ns"], frame["until_ns"], percent, self._follows()]
        rows = zip(hosts.tolist(), *(column.tolist() for column in columns), strict=True)
        for host, link, count, from_ns, until_ns, load, follows in rows:
            yield Counter(host, link, count, from_ns, load)
            if not follows:
                yield Counter(host, link, count, until_ns, 0.0)

    def _follows(self) -> pd.Series:
        """Return whether the next period of the link begins where this one ends."""
        following = self.periods.groupby(_LINK, sort=False)["from_ns"].shift(-1)
        return following == self.periods["until_ns"]


def _fewer(load_rows: pd.DataFrame) -> pd.DataFrame:
    """Return periods with neighbours and the pauses between them merged, where a link has more than its share."""
    by_link = load_rows.groupby(_LINK, sort=False)
    most = max(_PERIODS_LEAST, _PERIODS_MAX // max(by_link.ngroups, 1))
    together: Ints = -(-by_link["from_ns"].transform("size").to_numpy(np.int64) // most)
    place = by_link.cumcount().to_numpy(np.int64) // together
    merged = load_rows.assign(place=place).groupby([*_LINK, "place"], sort=False)
    whole = merged.agg(
        from_ns=("from_ns", "first"), until_ns=("until_ns", "last"), bytes_carried=("bytes_carried", "sum")
    )
    return whole.reset_index()


def write(
    spans: Spans,
    info: RunInfo,
    stream: TextIO,
    counters: Counters,
    *,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> None:
    """Write the whole trace; `ts` and `dur` are microseconds from the run's first span, exact to the ns.

    `tell` is called now and then with the number of spans written, and the number of all spans.
    """
    about: dict[str, object] = {name: getattr(info, name) for name in ("name", "world", "digest", "complete")}
    about["links_without_counter"] = counters.left_out
    stream.write(f'{{"displayTimeUnit": "ns", "otherData": {json.dumps(about)}, "traceEvents": [\n')
    separator = ""
    for event in _events(spans, info, counters, tell):
        stream.write(separator + event)
        separator = ",\n"
    stream.write("\n]}\n")


def _events(spans: Spans, info: RunInfo, counters: Counters, tell: Callable[[int, int], None]) -> Iterator[str]:
    """Yield the events of one part of the run after the other; names come last, when all are known."""
    starts = [int(part.spans["start_ns"].min()) for part in spans.parts(["start_ns"], beside=False) if len(part.spans)]
    origin, threads, hosts, arrows = min(starts, default=0), _TraceThreads(), dict[int, int](), itertools.count(1)
    done, of = 0, len(spans)
    for part in spans.parts(_COLUMNS, beside=False):
        tell(done, of)
        own = part.spans[part.own].sort_values(["start_ns", "rank", "sequence"], ignore_index=True, kind="stable")
        firsts = own.drop_duplicates("host")
        hosts.update(zip(firsts["host"].tolist(), firsts["rank_count"].tolist(), strict=True))
        thread_of = np.fromiter(_assign_threads(own, threads), np.int64, len(own))
        yield from _slices(own, thread_of, origin)
        yield from _arrows(own, thread_of, origin, arrows)
        done += len(own)
    yield from _counters(counters, max([len(info.hosts) - 1, *hosts]) + 1, origin)
    yield from _process_names(hosts, info)
    yield from threads.names()


@dataclass(slots=True)
class _TraceThreads:
    """A numbering of threads; each lane of (rank, stream, part) is a thread, free again when its last slice has ended.

    `rank_counts` has how many ranks a rank represents, itself included.
    """

    free_at_ns: dict[tuple[int, str, str], list[int]] = field(default_factory=dict)
    numbers: dict[tuple[int, str, str, int], tuple[int, int]] = field(default_factory=dict)
    rank_counts: dict[int, int] = field(default_factory=dict)

    def place(self, host: int, key: tuple[int, str, str], start_ns: int, end_ns: int) -> int:
        """Return the thread of a slice; slices come in order of their starts."""
        lanes = self.free_at_ns.setdefault(key, [])
        lane = next((at for at, free in enumerate(lanes) if free <= start_ns), len(lanes))
        if lane == len(lanes):
            lanes.append(end_ns)
        lanes[lane] = end_ns
        return self.numbers.setdefault((*key, lane), (len(self.numbers) + 1, host))[0]

    def names(self) -> Iterator[str]:
        """Yield the threads' names, in the order in which a reader wants them: by rank, steps first."""
        parts = ["steps", "", "communication"]
        order = sorted(self.numbers, key=lambda key: (key[0], key[2] != "steps", key[1], parts.index(key[2]), key[3]))
        for position, key in enumerate(order):
            number, host = self.numbers[key]
            rank, stream, part, lane = key
            name = representative(f"rank {rank}", self.rank_counts.get(rank, 1))
            words = [name, stream if part != "steps" else "", part, str(lane + 1) if lane else ""]
            yield _metadata("thread_name", host, number, {"name": " ".join(word for word in words if word)})
            yield _metadata("thread_sort_index", host, number, {"sort_index": position})


def _assign_threads(spans: pd.DataFrame, threads: _TraceThreads) -> Iterator[int]:
    parts = {COMPUTE: "", STEP: "steps"}
    ranks = spans.drop_duplicates("rank")
    threads.rank_counts.update(zip(ranks["rank"].tolist(), ranks["rank_count"].tolist(), strict=True))
    columns = (spans[name].tolist() for name in ("rank", "host", "stream", "kind", "start_ns", "end_ns"))
    for rank, host, stream, kind, start_ns, end_ns in zip(*columns, strict=True):
        part = parts.get(kind, "communication")
        yield threads.place(host, (rank, "" if part == "steps" else stream, part), start_ns, end_ns)


def _process_names(hosts: Mapping[int, int], info: RunInfo) -> Iterator[str]:
    """Yield the names of processes; `hosts` has how many hosts each host represents, itself included."""
    for host in sorted(hosts):
        known = info.hosts[host] if host < len(info.hosts) else ""
        yield _metadata("process_name", host, 0, {"name": representative(f"host {host} {known}".strip(), hosts[host])})
        yield _metadata("process_sort_index", host, 0, {"sort_index": host})


def _slices(spans: pd.DataFrame, thread_of: np.ndarray, origin_ns: int) -> Iterator[str]:
    quoted: dict[str, str] = {}
    for first in range(0, len(spans), _CHUNK):  # Python objects of all columns at once would outweigh the frame
        part = spans.iloc[first : first + _CHUNK]
        columns = [part[name].tolist() for name in _SLICE]
        for number, row in zip(thread_of[first : first + _CHUNK].tolist(), zip(*columns, strict=True), strict=True):
            yield _slice(number, row, origin_ns, quoted)


def _slice(thread: int, row: tuple[object, ...], origin_ns: int, quoted: dict[str, str]) -> str:
    texts = [quoted.get(text) or quoted.setdefault(text, json.dumps(text)) for text in map(str, row[:7])]
    kind, label, group, stream, dtype, kernel, role = texts
    host, start_ns, end_ns, issued_ns, *numbers = map(_int, row[7:])
    step, sequence, call, rank_count, bytes_in, bytes_out, bytes_sent = numbers
    name = f'"step {step}"' if kind == '"step"' and step >= 0 else label if label != '""' else kind
    return (
        f'{{"ph":"X","name":{name},"cat":{kind},"pid":{host},"tid":{thread},"ts":{_us(start_ns - origin_ns)},'
        f'"dur":{_us(end_ns - start_ns)},"args":{{"step":{step},"label":{label},"role":{role},"stream":{stream},'
        f'"group":{group},"call":{call},"sequence":{sequence},"issued_us":{_us(issued_ns - origin_ns)},'
        f'"bytes_in":{bytes_in},"bytes_out":{bytes_out},"bytes_sent":{bytes_sent},"dtype":{dtype},"kernel":{kernel},'
        f'"rank_count":{rank_count}}}}}'
    )


def _arrows(spans: pd.DataFrame, thread_of: np.ndarray, origin_ns: int, numbers: Iterator[int]) -> Iterator[str]:
    """Yield arrows from the member that entered last to each member that waited for it, at that moment."""
    members = np.flatnonzero(is_collective(spans))
    calls = spans[["group", "call"]].iloc[members].groupby(["group", "call"]).ngroup().to_numpy(np.int64)
    members, calls = members[np.argsort(calls, kind="stable")], np.sort(calls)
    starts, ends, hosts = ints(spans, "start_ns"), ints(spans, "end_ns"), ints(spans, "host")
    for of_call in np.split(members, np.flatnonzero(np.diff(calls)) + 1):
        if not 1 < len(of_call) <= ARROW_MEMBERS_MAX:
            continue
        source = int(of_call[-1])  # spans are sorted by their starts
        for target in of_call[:-1].tolist():
            number = next(numbers)
            moment = min(int(starts[source]), int(ends[target]))
            for phase, end, at_ns, binding in (("s", source, int(starts[source]), ""), ("f", target, moment, _BIND)):
                yield (
                    f'{{"ph":"{phase}","name":"exchange","cat":"exchange","id":{number},"pid":{hosts[end]},'
                    f'"tid":{thread_of[end]},"ts":{_us(at_ns - origin_ns)}{binding}}}'
                )


def _counters(counters: Counters, network: int, origin_ns: int) -> Iterator[str]:
    """Yield counters: of hosts' links in the hosts' processes, of links between leaf switches in process `network`."""
    has_network = False
    for counter in counters.events():
        has_network = has_network or counter.host < 0
        yield _counter(counter, network if counter.host < 0 else counter.host, origin_ns)
    if has_network:
        yield _metadata("process_name", network, 0, {"name": "network"})
        yield _metadata("process_sort_index", network, 0, {"sort_index": network})


def _counter(counter: Counter, process: int, origin_ns: int) -> str:
    name = json.dumps(representative(counter.link, counter.link_count))
    at_us = _us(counter.at_ns - origin_ns)
    return f'{{"ph":"C","name":{name},"pid":{process},"ts":{at_us},"args":{{"%":{counter.percent:.3f}}}}}'


def _metadata(name: str, host: int, thread: int, args: dict[str, object]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": host, "tid": thread, "args": args})


def _us(ns: int) -> str:
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
