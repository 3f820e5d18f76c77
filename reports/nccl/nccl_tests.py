"""Read the output of nccl-tests as published measurements.

A log may hold several runs, and other lines between theirs. Formats are those from NCCL 2.4 (2019) to nccl-tests
2.19.6: columns came and went, so a row's time is located by the table's head, counted from the row's end, as redop and
root can be blank. Size, time and busbw have one meaning in all formats; algbw does not, and is not read.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import NamedTuple

from reports.errors import ReportError
from reports.published import collectives, csv_rows
from reports.published.collectives import Measurements, PublishedRow
from reports.published.csv_rows import Log
from reports.terminal.text import count_words, printable, ranges, shorten
from scenarios import given_file
from scenarios.seam.traits import TESTED, TRAITS, Traits

# Verbs by the program's name without "_perf"; other programs keep their name and are not predicted.
OPERATIONS = {{"all_to_all": "alltoall", "send_recv": "sendrecv"}.get(verb, verb): verb for verb in TESTED}
_LONGEST = 60  # characters of a line that an error message quotes
_DIGITS = 15  # maximal digits of a size in bytes, more than any buffer needs
_NOT_MPI = "nccl-tests was built without MPI, and each process measured itself"

# written by mpirun --tag-output and srun --label
_LABEL = re.compile(r"^(\[\d+,\d+\](<std(out|err)>)?:?\s?|\s*\d+:\s)")
_STRANGE = re.compile(r"[^\t -~]")
_BEGIN = re.compile(r"# nccl-tests version|Collective test starting: |# nThread |_perf(_mpi)?\s+-")
_PROGRAM = re.compile(r"Collective test starting:\s*\S*?(\w+)_perf")
_COMMAND = re.compile(r"(\w+)_perf(?:_mpi)?\s+-")
_VERSION = re.compile(r"# nccl-tests version (\S+)")
_AGGREGATED = re.compile(r"agg iters: (\d+)")
_RANK = re.compile(r"#\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^]]*\]\s+(.+)")
_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*\s")
_FAILED = re.compile(r"# Out of bounds values\s*: (\d+) FAILED")
_GPU = re.compile(r"\b[A-Z]{1,3}\d{1,4}[A-Z]?\b")

_SURE_GB_PER_S = 1.0  # below it, two decimals are too imprecise
_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """The user's facts about runs whose header lacks them; `op` is one of the values of `OPERATIONS`."""

    op: str | None = None
    gpu: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None


NOTHING = RunHeader()


def read_files(files: Sequence[Path], given: RunHeader = NOTHING) -> Measurements:
    """Read every row of CSV files and of nccl-tests' output, in their order; each file's content decides its format.

    Raises:
        ReportError: with a sentence for every mistake in the files, or if `given` has no such output to apply to.
    """
    found: list[Measurements] = []
    mistakes: list[str] = []
    outputs = 0
    for file in files:
        is_ours = is_output(file)
        outputs += is_ours
        try:
            found.append(read(file, given) if is_ours else collectives.read(file))
        except ReportError as error:
            mistakes.append(str(error))
    if given != NOTHING and not outputs:
        mistakes.append(needless(given))
    if mistakes:
        raise ReportError("\n".join(mistakes))
    return csv_rows.Measurements(
        rows=tuple(row for one in found for row in one.rows), notes=tuple(note for one in found for note in one.notes)
    )


def needless(given: RunHeader) -> str:
    """Return the error message for `given` where no file is nccl-tests' output."""
    return f"{_options(given)}: no file is nccl-tests' output; a CSV file says it in its columns"


def is_output(path: Path) -> bool:
    """Return whether a file has lines that nccl-tests prints above its rows; False if it cannot be read."""
    try:
        return any(line.startswith("# nThread ") or _columns(line) for line in _lines(path))
    except OSError:
        return False


def read(path: Path, given: RunHeader = NOTHING) -> Measurements:
    """Read the rows of all runs in one file, with their out-of-place times and printed sizes.

    `source` is the file's name. The printed size of all_gather and reduce_scatter is the larger buffer.

    Raises:
        ReportError: with a sentence for every mistake in the file.
    """
    log = _RunLog(path, given)
    try:
        for run in _runs(_lines(path)):
            log.add(run)
    except OSError as error:
        log.say(f"could not be read: {error.strerror or error}")
    return log.measurements("rows below the head of nccl-tests' table")


class _Rank(NamedTuple):
    line: int
    rank: int
    group: str
    host: str
    gpu: str


@dataclass(slots=True)
class _Run:
    """The parsed lines of one run; `line` is where it begins, `head` where its table does."""

    line: int
    program: str = ""
    version: str = ""
    aggregated: int = 1
    failed: int = 0
    ranks: list[_Rank] = field(default_factory=list)
    head: int = 0
    columns: list[str] = field(default_factory=list)
    body: list[tuple[int, str]] = field(default_factory=list)

    def take(self, number: int, line: str) -> None:
        if found := _PROGRAM.search(line) or _COMMAND.search(line):
            self.program = found[1]
        elif found := _VERSION.search(line):
            self.version = found[1]
        elif found := _AGGREGATED.search(line):
            self.aggregated = int(found[1])
        elif found := _RANK.search(line):
            rank, group, host, gpu = found.groups()
            self.ranks.append(_Rank(line=number, rank=int(rank), group=group or "0", host=host, gpu=gpu.strip()))
        elif columns := _columns(line):
            self.head, self.columns = number, columns
        elif found := _FAILED.search(line):
            self.failed = int(found[1])
        elif self.columns and _ROW.match(line):
            self.body.append((number, line))


def _lines(path: Path) -> Iterator[str]:
    """Yield lines without launchers' labels and with other than ASCII replaced, because a log may hold any bytes."""
    with TextIOWrapper(BytesIO(given_file.content(path)), encoding="utf-8", errors="replace") as stream:
        for line in stream:
            yield _LABEL.sub("", _STRANGE.sub("?", line.rstrip()))


def _columns(line: str) -> list[str]:
    """Return the columns' names if the line is a table's head, else an empty list."""
    words = line.lstrip("# \t").split()
    return words if words[:3] == ["size", "count", "type"] else []


def _runs(lines: Iterable[str]) -> Iterator[_Run]:
    run = _Run(1)
    for number, line in enumerate(lines, 1):
        if (run.columns or run.ranks) and _BEGIN.search(line):
            yield run
            run = _Run(number)
        run.take(number, line)
    if run.columns or run.ranks:
        yield run


class _Row(NamedTuple):
    line: int
    size_bytes: int
    us: float
    bus_gb_per_s: float


class _RunLog(Log[PublishedRow]):
    """A log of the rows and mistakes of one file's runs; sentences begin with a line's number."""

    def __init__(self, path: Path, given: RunHeader) -> None:
        super().__init__(path)
        self._source = printable(path.name)
        self._given = given

    def say_at(self, line: int, sentence: str) -> None:
        self.say(f"line {line}: {sentence}")

    def note_at(self, line: int, sentence: str) -> None:
        self.note(f"line {line}: {sentence}")

    def add(self, run: _Run) -> None:
        if not run.body:
            self.note_at(run.head or run.line, "a run without rows")
            return
        before = len(self.mistakes)
        op, gpu, (nodes, gpus) = self._op(run), self._gpu(run), self._shape(run)
        times = [self._row(run, number, text) for number, text in run.body] if self._has_times(run) else []
        if len(self.mistakes) > before:
            return
        row = PublishedRow(
            file=self.name, line=0, source=self._source, op=op, library="nccl", gpu=gpu, nodes=nodes,
            gpus_per_node=gpus, size_bytes=0, link_gbit_per_s=None, one_way_delay_ms=None, time_us=math.nan,
            quality=f"nccl-tests {run.version}".strip(),
        )  # fmt: skip
        found = [dataclasses.replace(row, line=one.line, size_bytes=one.size_bytes, time_us=one.us) for one in times]
        self._check_bus(row, times)
        self.rows += found
        if run.aggregated > 1:
            self.note_at(run.line, f"agg iters: {run.aggregated}: a time is that of one of so many, launched together")
        if run.failed:
            self.note_at(run.line, f"{count_words(run.failed, 'value')} out of bounds: results were wrong in this run")

    def _op(self, run: _Run) -> str:
        """Return the operation that the header, the command above it, or the user names."""
        if not run.program:
            if self._given.op is None:
                self.say_at(run.head, f"no line above names the operation; expected --op, one of {', '.join(TESTED)}")
            return self._given.op or ""
        op = OPERATIONS.get(run.program, run.program)
        if self._given.op not in (None, op):
            self.note_at(run.head, f"the header says {op}, not --op {self._given.op}, which is not used for it")
        return op

    def _gpu(self, run: _Run) -> str:
        """Return a profile's word for the GPU; "" if unknown."""
        names = {rank.gpu: rank.line for rank in reversed(run.ranks)}
        if not names:
            if self._given.gpu is None:
                self.note_at(run.head, "no line above names the GPU; --gpu or --profile says it")
            return self._given.gpu or ""
        words = {_gpu_word(name): line for name, line in names.items()}
        if len(words) > 1:
            self.say_at(min(words.values()), f"GPUs {', '.join(sorted(words))}; expected one kind")
        for name, line in names.items():
            if "pcie" in name.lower():
                self.note_at(line, f"{name}: taken as {_gpu_word(name)}, but a profile with NVLink does not fit")
        word = next(iter(words))
        if self._given.gpu not in (None, word):
            self.note_at(run.head, f"the header says {word}, not --gpu {self._given.gpu}, which is not used for it")
        return word

    def _shape(self, run: _Run) -> tuple[int, int]:
        """Return the number of nodes, and of GPUs per node."""
        numbers = sorted(rank.rank for rank in run.ranks)
        if len(set(numbers)) < len(numbers):
            again = next(rank for rank, count in Counter(numbers).items() if count > 1)
            self.say_at(run.ranks[0].line, f"rank {again} stands here more than once: {_NOT_MPI}")
            return 1, 1
        if len({rank.group for rank in run.ranks}) > 1:
            self.say_at(run.ranks[0].line, "several groups at once; expected one of all ranks (no NCCL_TESTS_SPLIT)")
            return 1, 1
        given = (self._given.nodes, self._given.gpus_per_node)
        trouble = _trouble(run.ranks)
        if trouble:
            if given[0] is None or given[1] is None:
                self.say_at(run.head, f"{trouble}; expected all ranks above, or --nodes and --gpus-per-node")
            return given[0] or 1, given[1] or 1
        nodes = len({rank.host for rank in run.ranks})
        shape = nodes, len(run.ranks) // nodes
        if any(one not in (None, ours) for one, ours in zip(given, shape, strict=True)):
            said = f"{shape[0]} x {shape[1]} GPUs"
            self.note_at(run.head, f"the header says {said}, so --nodes and --gpus-per-node are not used for it")
        return shape

    def _has_times(self, run: _Run) -> bool:
        if "time" in run.columns and "busbw" in run.columns:
            return True
        others = shorten(", ".join(run.columns), _LONGEST)
        self.say_at(run.head, f"columns {others}: expected time and busbw among them (no option -C)")
        return False

    def _row(self, run: _Run, number: int, text: str) -> _Row:
        words = text.split()
        place = run.columns.index("time")
        # A timestamp is two words, and some columns before the time can be blank, so columns are counted from the end.
        counting = len(run.columns) - place + (run.columns[-1] == "timestamp")
        before = len(words) - counting
        if not 3 <= before <= place:
            expected = f"expected {len(run.columns)}, as in the head, line {run.head}"
            self.say_at(number, f"{count_words(len(words), 'value')}; {expected}")
            return _Row(line=number, size_bytes=0, us=math.nan, bus_gb_per_s=0.0)
        if len(words[0]) > _DIGITS:
            self.say_at(number, f"size = {shorten(words[0], _LONGEST)}: expected at most {_DIGITS} digits")
        us, bus = (_number(words[before + run.columns.index(name) - place]) for name in ("time", "busbw"))
        if not us > 0:
            self.say_at(number, f"time = {shorten(repr(words[before]), _LONGEST)}: expected a number above 0")
        return _Row(line=number, size_bytes=int(words[0]), us=us, bus_gb_per_s=bus)

    def _check_bus(self, like: PublishedRow, rows: Sequence[_Row]) -> None:
        """Check by nccl-tests' own bus bandwidth that the operation and its number of ranks are known correctly."""
        ranks = like.nodes * like.gpus_per_node
        sure = [row for row in rows if row.bus_gb_per_s >= _SURE_GB_PER_S and row.size_bytes]
        if ranks < 2 or not sure or like.op not in TESTED:
            return
        row = max(sure, key=lambda one: one.bus_gb_per_s)
        known = TRAITS.get(like.op, Traits())
        factor, expected = row.bus_gb_per_s * 1e3 * row.us / row.size_bytes, known.bus_factor(ranks)
        if abs(factor / expected - 1) > _TOLERANCE:
            on = f"{like.op} on {like.nodes} x {like.gpus_per_node} GPUs"
            self.say_at(row.line, f"busbw is {factor:.3g} times size / time; expected {expected:.3g}, as of {on}")


def _trouble(ranks: Sequence[_Rank]) -> str:
    """Return why the listed ranks do not determine the GPUs per node; "" if they do."""
    if not ranks:
        return "no line above lists the ranks"
    numbers = {rank.rank for rank in ranks}
    missing = sorted(set(range(max(numbers) + 1)) - numbers)
    if missing:
        return f"{'rank' if len(missing) == 1 else 'ranks'} {ranges(missing)} not listed"
    counts = Counter(rank.host for rank in ranks)
    if len(set(counts.values())) > 1:
        return f"hosts of {', '.join(map(str, sorted(set(counts.values()))))} GPUs"
    return ""


def _gpu_word(name: str) -> str:
    """Return H100 for "NVIDIA H100 80GB HBM3"; the name without its maker where it has no such word."""
    found = _GPU.search(name)
    return found[0] if found else name.removeprefix("NVIDIA ")


def _number(word: str) -> float:
    """Return the number, nan if it is none."""
    try:
        value = float(word)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _options(given: RunHeader) -> str:
    said = [name for name, value in dataclasses.asdict(given).items() if value is not None]
    return ", ".join(f"--{name.replace('_', '-')}" for name in said)
