"""Print for all entry points: a finished run (summary, JSON, or path), progress, and leftovers of killed commands."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from reports.analysis.repeats import Plays
from reports.errors import ReportError
from reports.json_document import document
from reports.run import Run
from reports.sections.model import Report
from reports.sections.run.report import RUN
from reports.sections.run.subject import RunView
from reports.sections.run.summary import PLANS, SUMMARY, next_line
from reports.store import drafts, replace
from reports.store import run_folder as store
from reports.terminal import text
from reports.terminal.render import render_report
from scenarios.progress_line import ProgressLine, print_notes

_QUIET_S = 1.0


class Tell(Protocol):
    """A callback before each piece of work, with its name, its number and the number of pieces."""

    def __call__(self, words: str, number: int, of: int) -> None: ...


def silent(words: str, number: int, of: int) -> None:
    """Show no progress at all."""


@contextmanager
def progress_line() -> Iterator[Tell]:
    """Yield a callback that redraws progress on one line of stderr, after a second and on a terminal only."""
    began_s = time.monotonic()
    with ProgressLine(first_s=_QUIET_S) as line:
        yield lambda words, number, of: line.draw(
            words, number / of, f"{number} of {of}, {time.monotonic() - began_s:.0f} s"
        )


def check_free(folder: Path) -> None:
    """Check as `drafts.check_free` does, and print which leftovers of killed commands were removed.

    Raises:
        ReportError: as `drafts.check_free` does.
    """
    print_notes(f"{left}: left by a command that was killed; removed" for left in drafts.check_free(folder))


def present(folder: Path, options: Namespace, *, run: Run | None = None, spread: Plays | None = None) -> None:
    """Print the run in `folder` (or `run`, if it is still in memory), as the options `quiet`, `json` and `full` say.

    `spread` are the draws of a prediction, whose interval is printed with it.
    """
    if options.quiet:
        print(folder)
        return
    print_run(RunView.of(run or store.load(folder), draws=spread), options, str(folder))
    if not options.json:
        print(f"run folder: {folder}")


def print_run(view: RunView, options: Namespace, folder: str) -> None:
    """Print a run's first screen and what to type next; with `--full` all tables, with `--json` everything."""
    print_report(RUN if options.json or options.full else SUMMARY, view, as_json=options.json)
    if not (options.json or options.full):
        print(next_line(folder, "all changes and tables" if len(view.run.what_if) else "all tables"))
        if len(view.run.plan) and view.run.info.world == "sim":
            print(PLANS)


def print_report(report: Report, of: Any, *, as_json: bool = False) -> None:
    """Print a report as text, or all of it as one JSON document."""
    if as_json:
        print_json(document(report, of))
    else:
        text.show(render_report(report, of), sys.stdout)


def write_kernels(run: Run, path: Path) -> None:
    """Write the kernels of a prediction on GPUs as CSV, whole or not at all; note on stderr where there are none.

    Raises:
        ReportError: as `replace.write_csv` does.
    """
    replace.write_csv(run.kernels, path)
    if not len(run.kernels):
        print_notes([f"{path}: no rows, as only predictions on GPUs list their kernels"])


def print_json(content: object) -> None:
    """Print one JSON document, and nothing else, to stdout."""
    json.dump(content, sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")


@contextmanager
def output() -> Iterator[None]:
    """Wrap all printing: letters that the terminal lacks become "?", and a closed pipe ends the output silently.

    Raises:
        ReportError: the output cannot be written, or a file that it is made of cannot be read.
    """
    if sys.stdout is None:  # stdout was closed before the process started
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
    except OSError as error:
        if error.filename is not None:  # an error of stdout names no file
            raise ReportError(_of_file(error)) from None
        _silence()
        raise ReportError(f"stdout: {error.strerror or error}") from None


def _of_file(error: OSError) -> str:
    """Return the error about a file, in one sentence, which names the package that lacks it."""
    said = f"{error.filename}: {error.strerror}"
    place, root = Path(os.fsdecode(error.filename)).absolute(), Path(__file__).parents[2]
    if not isinstance(error, FileNotFoundError) or not place.is_relative_to(root):
        return said
    return f"{said}: expected a file of package {place.relative_to(root).parts[0]!r}, which is not installed whole"


def _silence() -> None:
    """Redirect stdout to null, so that the interpreter does not report a second error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
