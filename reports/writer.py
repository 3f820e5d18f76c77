"""Write a recording as a run folder that includes a trace for Perfetto."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from reports.perfetto import trace as perfetto
from reports.perfetto.trace import Counters
from reports.store import run_folder
from reports.store.columns import TABLES, to_arrow, to_frame
from scenarios.seam.trace import Recording

TRACE_FILE = "trace.json"
# The trace needs all columns as Python objects, so that memory limits how many spans are read at a time.
_SPANS = 2 * run_folder.GROUP_ROWS
_LINKS = ("links", "loads")


def write(recording: Recording, folder: Path | str, drafts: Path | None = None) -> Path:
    """Write a run folder and return its path; equal spans give equal bytes of spans.parquet, whatever their order.

    The unfinished folder lies in `drafts`, or next to the path.

    Raises:
        ReportError: the folder exists already, or the disk refuses.
    """
    return run_folder.write(recording, folder, add_trace, drafts)


def writing(
    folder: Path, say: Callable[[str], None] = lambda words: None
) -> AbstractContextManager[run_folder.Writing]:
    """Return a context that writes a run folder, as `run_folder.writing`, with the trace added.

    `say` is called with progress messages for the trace, which takes longest.
    """

    def tell(done: int, of: int) -> None:
        say(f"writing the run folder: {TRACE_FILE}, {done:,} of {of:,} spans")

    return run_folder.writing(folder, partial(add_trace, tell=tell))


def add_trace(folder: Path, recording: Recording, *, tell: Callable[[int, int], None] = lambda done, of: None) -> None:
    """Write trace.json from the folder's spans and the recording's links."""
    links, loads = (to_frame(to_arrow(getattr(recording, name), TABLES[name]), TABLES[name]) for name in _LINKS)
    spans = run_folder.load_spans(folder, _SPANS)
    with (folder / TRACE_FILE).open("w", encoding="utf-8") as stream:
        perfetto.write(spans, recording.info, stream, Counters.of(links, loads), tell=tell)
