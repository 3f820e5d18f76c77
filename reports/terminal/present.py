"""Prints for all entry points: a finished run (its summary, JSON, or the folder's path only), progress, and what
killed commands have left."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from reports.analysis.repeats import Plays
from reports.errors import ReportError
from reports.run import Run
from reports.sections.run import report as tables
from reports.sections.validation import spread_json, spread_line
from reports.store import drafts, replace
from reports.store import run_folder as store
from reports.terminal import text
from scenarios.progress_line import ProgressLine

_QUIET_S = 1.0


class Tell(Protocol):
    """Called before each piece of work: what it is, and which of how many."""

    def __call__(self, words: str, number: int, of: int) -> None: ...


def silent(words: str, number: int, of: int) -> None:
    """Shows no progress."""


@contextmanager
def progress_line() -> Iterator[Tell]:
    """Progress on one line of stderr that is drawn anew, after a second and on a terminal only; gone at the end."""
    began_s = time.monotonic()
    with ProgressLine(first_s=_QUIET_S) as line:
        yield lambda words, number, of: line.draw(
            words, number / of, f"{number} of {of}, {time.monotonic() - began_s:.0f} s"
        )


def check_free(folder: Path) -> None:
    """Check as `drafts.check_free` does, and name what killed commands have left beside the folder.

    Raises:
        ReportError: as `drafts.check_free` does.
    """
    for left in drafts.check_free(folder):
        print(f"note: {left}: left by a command that was killed; removed", file=sys.stderr)


def present(
    folder: Path, *, as_json: bool = False, quiet: bool = False, run: Run | None = None, spread: Plays | None = None
) -> None:
    """Print the run in `folder` (or `run`, if it is still in memory); `quiet`: only the folder's path.

    `spread` are the draws of a prediction, whose interval is printed with it.
    """
    if quiet:
        print(folder)
    elif as_json:
        print_json({**tables.as_json(run or store.load(folder)), **(spread_json(spread) if spread else {})})
    else:
        text.show(tables.summarize(run or store.load(folder), spread=spread_line(spread) if spread else ""), sys.stdout)
        print(f"run folder: {folder}")


def write_kernels(run: Run, path: Path) -> None:
    """Write the kernels of a prediction on GPUs as CSV, whole or not at all; note on stderr where there are none.

    Raises:
        ReportError: as `replace.write_csv` does.
    """
    replace.write_csv(run.kernels, path)
    if not len(run.kernels):
        print(f"note: {path}: no rows, as only predictions on GPUs list their kernels", file=sys.stderr)


def print_json(content: object) -> None:
    """One JSON document, and nothing else, on stdout."""
    json.dump(content, sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")


@contextmanager
def output() -> Iterator[None]:
    """Stand around all that prints: a terminal that lacks a letter shows "?", and a reader may have seen enough.

    Raises:
        ReportError: the output cannot be written, or a file that it is made of cannot be read.
    """
    if sys.stdout is None:  # closed before we began
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
        if error.filename is not None:  # stdout has none
            raise ReportError(_of_file(error)) from None
        _silence()
        raise ReportError(f"stdout: {error.strerror or error}") from None


def _of_file(error: OSError) -> str:
    """Return what is wrong with a file, in one sentence, which names the package that it is missing in."""
    said = f"{error.filename}: {error.strerror}"
    place, root = Path(os.fsdecode(error.filename)).absolute(), Path(__file__).parents[2]
    if not isinstance(error, FileNotFoundError) or not place.is_relative_to(root):
        return said
    return f"{said}: expected a file of package {place.relative_to(root).parts[0]!r}, which is not installed whole"


def _silence() -> None:
    """A second complaint at exit must not come either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
