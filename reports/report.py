"""Write reports of runs: frames as CSV and Parquet, and pages.

A run's report is its folder `reports/`. Existing files of the same names are replaced, because reports can be rebuilt
from the run; other files stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from reports.analysis.step_breakdown import parts_of_step, steady_kept
from reports.job.folder import JobRun
from reports.job.real_job import RealJob
from reports.page import FOLDER, PAGE_FILE
from reports.run import FRAMES, Run
from reports.sections.comparison import Comparison
from reports.side_by_side.frames import SideBySide
from reports.store.replace import replace_file
from reports.store.run_folder import folder_name, load
from reports.study.frame import study_frame
from reports.study.rows import about_of
from reports.terminal.present import Tell, silent
from reports.validation.folder import Validated

TABLES = "tables"
BESIDE = "side_by_side"

Frames = Mapping[str, pd.DataFrame | Callable[[], pd.DataFrame]]


def folder_of(run: Path, out: Path | None = None) -> Path:
    """Return the report folder of a run folder: inside the run folder, or a folder of the run's name in `out`."""
    return run / FOLDER if out is None else out / run.resolve().name


def folders_of(runs: Sequence[Path], out: Path | None = None) -> list[Path]:
    """Return `folder_of` each run; in `out`, further runs of an equal name get a number appended."""
    found: list[Path] = []
    for run in runs:
        folder = first = folder_of(run, out)
        number = 2
        while out is not None and folder in found:
            folder, number = first.with_name(f"{first.name}_{number}"), number + 1
        found.append(folder)
    return found


def write(
    run: Run, folder: Path, *, step: int | None = None, also: Sequence[tuple[int, int]] = (), tell: Tell = silent
) -> Path:
    """Write all tables and the page of a run, and return the page's path; `step` and `also` as for `run_page.page`.

    Spans are not among the tables, because the run folder has them already.

    Raises:
        ReportError: the disk refuses; the run has no such step.
    """
    from reports.page import render  # noqa: PLC0415 - Bokeh takes half a second
    from reports.page.run import page as run_page  # noqa: PLC0415 - Bokeh takes half a second

    frames = _frames_of(run)
    tell(f"page of {run.info.name}", 1, len(frames) + 1)
    render.write(run_page.page(run, step, also, f"{TABLES}/"), folder / PAGE_FILE)
    write_tables(frames, folder / TABLES, lambda words, at, of: tell(f"{words} of {run.info.name}", at + 1, of + 1))
    return folder / PAGE_FILE


def _frames_of(run: Run) -> Frames:
    """Return all frames but the spans, and the frames of the steady steps that the page shows."""
    steady = steady_kept(run)
    named = {name: partial(getattr, run, name) for name in FRAMES if name != "spans"}
    shown = {
        "steady_operations": lambda: run.operations_of(steady),
        "steady_ranks": lambda: run.ranks_of(steady),
        "steady_stragglers": lambda: run.stragglers_of(steady),
        "late_ranks": lambda: run.late_ranks_of(steady),
        "parts_of_step": lambda: parts_of_step(run, steady),
    }
    return {**named, **shown}


def write_comparison(comparison: Comparison, folders: Sequence[Path], out: Path | None, tell: Tell = silent) -> Path:
    """Write the page of a comparison, its tables, and the two runs' own pages, which also show the worst cases.

    The page is written to the measured run's `reports/`, or to `out`.

    Args:
        comparison: the comparison of the two runs.
        folders: the folder of the predicted and that of the measured run.
        out: the folder to write to, if not the runs' own.
        tell: called with the progress.

    Raises:
        ReportError: the disk refuses.
    """
    from reports.page import render  # noqa: PLC0415
    from reports.page.compare import page  # noqa: PLC0415

    also = page.places(comparison)
    runs = (comparison.predicted, comparison.measured)
    own = folders_of(folders, out)
    pages = [write(run, folder, also=also, tell=tell) for run, folder in zip(runs, own, strict=True)]
    name = f"compared_with_{folder_name(folders[0].resolve().name)}"
    path = (folder_of(folders[1]) if out is None else out) / f"{name}.html"
    render.write(page.page(comparison, *_from(path, pages)), path)
    write_tables(comparison.frames(), path.parent / name, tell)
    return path


def write_side_by_side(found: SideBySide, folders: Sequence[Path], out: Path | None, tell: Tell = silent) -> Path:
    """Write the page of several runs, its tables, and each run's own page, to the first run's `reports/` or to `out`.

    Raises:
        ReportError: the disk refuses.
    """
    from reports.page import render  # noqa: PLC0415
    from reports.page import side_by_side as page  # noqa: PLC0415

    own = folders_of(folders, out)
    pages = [write(run, folder, tell=tell) for (_, run), folder in zip(found.runs, own, strict=True)]
    path = (folder_of(folders[0]) if out is None else out) / f"{BESIDE}.html"
    hrefs = [quote(other) for other in _from(path, pages)]
    render.write(page.page(found, hrefs, f"{BESIDE}/"), path)
    write_tables(found.frames(), path.parent / BESIDE, tell)
    return path


def write_validation(found: Validated, tell: Tell = silent) -> Path:
    """Write the page of a validation to its folder, and pages of its runs where they do not exist yet.

    Raises:
        ReportError: the disk refuses.
    """
    from reports.page import render  # noqa: PLC0415
    from reports.page.compare import validation  # noqa: PLC0415

    for folder in found.runs():
        if not (folder_of(folder) / PAGE_FILE).exists():
            write(load(folder), folder_of(folder), tell=tell)
    path = found.folder / PAGE_FILE
    render.write(validation.page(found), path)
    return path


def write_study(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a study to its folder, or to `out` as NAME.html; it links to existing pages of runs.

    Raises:
        ReportError: the folder is not a study's, or damaged; the disk refuses.
    """
    from reports.page import render  # noqa: PLC0415
    from reports.page.study import page  # noqa: PLC0415

    path = folder / PAGE_FILE if out is None else out / f"{folder.resolve().name}.html"
    (within,) = _from(path, [folder])
    away = "" if within == "." else f"{quote(within)}/"
    render.write(page.page(study_frame(folder), about_of(folder), folder, away), path)
    return path


def write_job(job: JobRun | RealJob, folder: Path, out: Path | None = None) -> Path:
    """Write the page of a predicted or a real job to its folder, or to `out` as NAME.html.

    Raises:
        ReportError: the disk refuses.
    """
    from reports.page import job as job_page  # noqa: PLC0415
    from reports.page import render  # noqa: PLC0415

    path = folder / PAGE_FILE if out is None else out / f"{folder.resolve().name}.html"
    render.write(job_page.page(job), path)
    return path


def _from(page: Path, others: Sequence[Path]) -> list[str]:
    """Return the paths of other pages relative to one page."""
    return [Path(os.path.relpath(other, page.parent)).as_posix() for other in others]


def write_tables(frames: Frames, folder: Path, tell: Tell = silent) -> None:
    """Write each frame as NAME.csv and NAME.parquet; a callable computes its frame when it is written.

    Raises:
        ReportError: the disk refuses.
    """
    for at, (name, frame) in enumerate(frames.items(), 1):
        tell(name, at, len(frames))
        found = frame if isinstance(frame, pd.DataFrame) else frame()
        table = pa.Table.from_pandas(found, preserve_index=False).replace_schema_metadata()
        with replace_file(folder / f"{name}.csv") as draft:
            pyarrow.csv.write_csv(table, draft, pyarrow.csv.WriteOptions(quoting_style="needed"))
        with replace_file(folder / f"{name}.parquet") as draft:
            pq.write_table(table, draft, compression="zstd", write_page_checksum=True)
