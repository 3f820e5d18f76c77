"""The report of several runs: what differs first, then step times, operations, memory, links, balance and the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.step_breakdown import ADDING_UP, PARTS
from reports.printed import Printed
from reports.run import Run
from reports.sections import model
from reports.sections.run.headline import WORLDS, remarks
from reports.sections.run.tables import MEASURE_WORDS
from reports.side_by_side import words
from reports.side_by_side.frames import CHANGES, SideBySide, numbered_names, side_by_side
from reports.side_by_side.words import DIFFERENT_BATCHES, NUMBERS, exposed_shown, medians_shown, more, placement
from reports.terminal import text
from reports.terminal.rows import cells, records, write_cell

# So many runs have columns of their own on a terminal; of more, each is a row.
_COLUMNS = 4
_MOST = model.Most(16, 200)
# So much of a setting's name is to be seen, and on a page of its value.
_KEY, _VALUE = 32, 48
_TILES = ["step_ns", "samples_per_s", "compute_ns", "transfer_ns", "wait_ns", "memory_bytes"]
_NO_STEP = "No rank of any run completed a step."
_CHANGES_NOTE = "A dash: not in this run. Transfer and waiting: changes of the mean exposed times."


@dataclass(frozen=True, slots=True)
class BesideView:
    """Runs side by side, and the paths of their own pages as seen from theirs; "" or none without one."""

    found: SideBySide
    hrefs: Sequence[str] = ()

    @property
    def marks(self) -> list[str]:
        """Short names of the runs, for narrow columns."""
        return words.marks(self.found.names)

    @property
    def labels(self) -> dict[str, str]:
        """Long labels of the runs, by name."""
        return words.labels(self.found)

    @property
    def are_many(self) -> bool:
        """Whether a terminal has no room for a column of each run."""
        return len(self.found.runs) > _COLUMNS

    def marks_of(self, frame: pd.DataFrame) -> list[str]:
        """Return the marks of the runs that a frame has."""
        held = {*frame["run"].tolist()}
        return [mark for mark, name in zip(self.marks, self.found.names, strict=True) if name in held]


def lines(view: BesideView) -> list[str]:
    """Say which runs these are."""
    runs = zip(view.labels.values(), view.found.runs, strict=True)
    each = ("; ".join([f"{label}: {words.about_run(run.info)}", *remarks(run)]) for label, (_, run) in runs)
    return [f"{text.count_words(len(view.marks), 'run')} side by side, relative to the first:", *each]


def _differences(view: BesideView) -> Iterator[model.Words]:
    batches = [f"{DIFFERENT_BATCHES}."] if view.found.batches_differ else []
    yield model.Words("\n".join([*words.sentences(view.found), *batches]))


def _tiles(view: BesideView) -> Iterator[model.Facts]:
    """Yield the second of two runs' main numbers, with their changes against the first run."""
    if len(view.marks) != 2:
        return
    differ, facts = view.found.batches_differ, []
    base, own = records(view.found.results)
    for column in sorted(_TILES, key=lambda name: differ and name != "samples_per_s"):
        if not np.isnan(own[column]):
            change = own[CHANGES[column]]
            before = f"{text.signed_percent(change)} against {write_cell(column, base[column])}"
            is_time = column.endswith("_ns") and differ
            note = "" if np.isnan(change) else f"of {own['step_samples']:,.0f} samples" if is_time else before
            name = PARTS.get(column, NUMBERS[column])
            facts.append(model.Fact(name, write_cell(column, own[column]), note, float(own[column])))
    yield model.Facts(facts)


def _runs(view: BesideView) -> Iterator[model.ReportTable]:
    frame, pairs = view.found.results, zip(view.labels.values(), view.hrefs, strict=True)
    links: list[model.Cell] = [model.PageLink(label, href) if href else label for label, href in pairs]
    shown = frame.assign(world=frame["world"].map(lambda world: WORLDS.get(world, world)))
    columns = {"name": "scenario", "world": "", "world_size": "ranks", "steps": "steady steps"}
    columns |= {"step_ns": "step time", "step_change": "change"}
    columns |= {"samples_per_s": "samples/s", "samples_change": "change"}
    rows = [[link, *own] for link, own in zip(links, cells(shown, list(columns)), strict=True)]
    raw = {f"step_ns-{at}": float(value) for at, value in enumerate(frame["step_ns"])}
    yield model.ReportTable("Runs", ["run", *columns.values()], rows, left=3, raw=raw)


def _narrow(tables: Iterator[model.ReportTable], value: str) -> Iterator[model.ReportTable]:
    """Yield tables with a column for each run; those with too many have a row for each value, beside its runs."""
    for table in tables:
        grid = table.grid("page")
        first, *runs = (column.title for column in grid.columns)
        is_wide = len(runs) > _COLUMNS
        columns, rows = [first, value, "runs"], partial(_by_value, grid.rows, runs)
        yield replace(table, columns=columns, rows=rows, left=3) if is_wide else table


def _by_value(rows: Sequence[Sequence[model.Cell]], runs: list[str], most: int) -> list[list[model.Cell]]:
    found: dict[tuple[model.Cell, model.Cell], list[str]] = {}
    for key, *values in rows[:most]:
        for value, run in zip(values, runs, strict=True):
            found.setdefault((key, value), []).append(run)
    return [[*pair, ", ".join(those)] for pair, those in found.items()]


def _settings(view: BesideView, width: int = 0) -> Iterator[model.ReportTable]:
    """Yield settings that differ, a column for each run; `width` cuts values, but not to the same words."""
    rows = words.settings_shown(view.found)
    if width:
        rows = [[key, *map(text.shorten_distinctly(dict.fromkeys(own), width).__getitem__, own)] for key, *own in rows]
    columns = [model.Column("setting", kept=_KEY), *(model.Column(mark, kept=9) for mark in view.marks)]
    title, name = f"Settings that differ; {view.found.same_settings:,} identical", "Settings that differ"
    count, left = len(rows), len(columns)
    yield model.ReportTable(title, columns, rows, left=left, name=name, most=_MOST, count=count, file="settings.csv")


def _numbers(view: BesideView) -> Iterator[model.ReportTable]:
    """Yield every number with its change, a column for each run."""
    frame, rows = view.found.results, []
    for name, title in words.numbers(view.found).items():
        if frame[name].notna().any():
            first, *others = [write_cell(name, value) for value in frame[name].tolist()]
            changes = map(text.signed_percent, frame[CHANGES[name]].tolist()[1:])
            rows.append([title, first, *chain.from_iterable(zip(others, changes, strict=True))])
    base, *short = view.marks
    change = model.Column("change", model.BOTH if len(short) == 1 else model.PAGE)
    columns: model.Columns = ["", base, *chain.from_iterable((model.Column(mark), change) for mark in short)]
    raw = {f"compute_ns-{at}": float(value) for at, value in enumerate(frame["compute_ns"]) if not np.isnan(value)}
    title = "Step time, median of steady steps, and breakdown, means over ranks"
    yield model.ReportTable(title, columns, rows, raw=raw, name="Numbers of the runs")


def _in_short(view: BesideView) -> Iterator[model.ReportTable]:
    """Yield the numbers for a terminal: changes in a table of their own, or each of many runs in a row."""
    (table,), (base, *short) = _numbers(view), view.marks
    if view.are_many:
        first = next(iter(words.numbers(view.found)))
        columns = {"run": "run", first: NUMBERS[first], CHANGES[first]: "change"}
        columns |= dict(zip(ADDING_UP, ["compute", "transfer", "waiting", "idle", "skew"], strict=True))
        yield model.table_of(table.title, view.found.results.assign(run=view.marks), columns)
        return
    yield table
    if len(short) > 1:
        rows = [[row[0], *row[3::2]] for row in table.grid("page").rows]
        yield model.ReportTable(f"The same, changes against {base}", ["", *short], rows)


def steps_of(view: BesideView) -> dict[str, pd.DataFrame]:
    """Return the steps of the runs that have any, by label."""
    frame = view.found.steps
    each = {label: frame[(frame["run"] == name).to_numpy(bool)] for name, label in view.labels.items()}
    return {label: own for label, own in each.items() if len(own)}


def _steps(view: BesideView) -> Iterator[model.ReportTable]:
    rows, early = [], False
    for label, own in steps_of(view).items():
        for is_warm_up, group in own.groupby("warm_up", sort=True):
            times = group["step_ns"].median(), group["step_ns"].min(), group["step_ns"].max()
            name, early = f"{label}, warm-up" if is_warm_up else label, early or bool(is_warm_up)
            rows.append([name, f"{len(group):,}", *(text.duration(float(one)) for one in times)])
    note = "Warm-up steps of a measured run have their own row." if early else ""
    yield model.ReportTable("All steps", ["run", "steps", "median", "min", "max"], rows, note=note)


def _operations(view: BesideView) -> Iterator[model.ReportTable]:
    """Yield operations by change: all of it of two runs, on a terminal of more the change alone, or the largest."""
    frame, (base, *short) = view.found.operations, view.marks_of(view.found.operations)

    def rows(most: int) -> list[list[str]]:
        found = []
        for name, own in islice(words.operations_by_change(view.found), most):
            (first, *medians), (_, *exposed) = medians_shown(own), exposed_shown(own)
            changes = own["change_ns"].tolist()
            at = max(range(len(changes)), key=lambda place: abs(changes[place]))
            shown = list(map(more, changes[1:]))
            each = ([mark, change, *parts, change] for mark, change, parts in zip(medians, shown, exposed, strict=True))
            row = [name, own["kind"].iloc[0], first, *chain.from_iterable(each)]
            found.append([*row, more(changes[at]), [base, *short][at]])
        return found

    whole, alone = (
        model.BOTH if len(short) == 1 else model.PAGE,
        model.TERMINAL if 0 < len(short) < _COLUMNS and len(short) != 1 else (),
    )
    largest = model.TERMINAL if len(short) >= _COLUMNS else ()
    columns: list[str | model.Column] = ["operation", model.Column("kind", model.PAGE), base]
    for mark in short:
        columns += [*(model.Column(one, whole) for one in (mark, "change", "transfer", "waiting"))]
        columns.append(model.Column(f"{mark} - {base}", alone))
    columns += [model.Column("largest change", largest), model.Column("in", largest)]
    batches = "; batches differ" if view.found.batches_differ else ""
    yield model.ReportTable(
        f"Operations per rank and step, by change{batches}", columns, rows, left=2, note=_CHANGES_NOTE, folded=True,
        name="All operations", most=_MOST, count=len(frame) // (1 + len(short)), file="operations.csv",
    )  # fmt: skip


def memory_by_part(view: BesideView) -> pd.DataFrame:
    """Return bytes of each run's fullest rank, a column for each run by its name, the largest part first."""
    table = view.found.memory.pivot_table(index="part", columns="run", values="size_bytes", aggfunc="sum", fill_value=0)
    table = table.loc[table.max(axis=1) > 0, [name for name in view.found.names if name in table.columns]]
    return table.loc[table.sum(axis=1).sort_values(ascending=False, kind="stable").index]


def _memory(view: BesideView) -> Iterator[model.ReportTable]:
    table = memory_by_part(view)
    each = [*table.iterrows(), ("total", table.sum())]
    rows = [[str(part), *(text.size(float(one)) for one in row.tolist())] for part, row in each]
    yield model.ReportTable("Memory by part", ["part", *view.marks_of(view.found.memory)], rows)


def _links(view: BesideView) -> Iterator[model.ReportTable]:
    frame, label = view.found.link_classes, view.labels
    by_class = frame.assign(run=frame["run"].map(label)).sort_values("link_class", kind="stable")
    columns = {"link_class": "class", "run": "run", "hottest_link": "hottest", "links": "links"}
    columns |= {"bytes_carried": "carried", "mean_utilisation": "mean load", "peak_utilisation": "hottest, mean"}
    absent = ", ".join(own for name, own in label.items() if name not in {*frame["run"]})
    note = f"Not available: {absent}." if absent else ""
    yield model.table_of("Links by class", by_class, {**columns, "busy_utilisation": "while busy"}, left=3, note=note)


def loads(view: BesideView) -> pd.DataFrame:
    """Return a table of ranks' loads: for each load and run the largest, its rank, and the mean, with units."""
    parts, imbalance = view.found.parts, view.found.imbalance
    rows = [
        ("compute of a step", row["run"], text.duration(row["max_ns"]), row["rank"], text.duration(row["mean_ns"]),
         row["max_over_mean"])
        for row in records(parts[(parts["part"] == PARTS["compute_ns"]).to_numpy(bool)])
    ]  # fmt: skip
    for measure, (title, _, form) in MEASURE_WORDS.items():
        for row in records(imbalance[(imbalance["measure"] == measure).to_numpy(bool)]):
            values = form(row["worst"]), row["worst_rank"], form(row["mean"]), row["max_over_mean"]
            rows.append((title, row["run"], *values))
    return pd.DataFrame(rows, columns=["load", "run", "most", "rank", "mean", "max_over_mean"])


def _balance(view: BesideView) -> Iterator[model.ReportTable]:
    columns = {"load": "load", "run": "run", "most": "max", "rank": "on rank", "mean": "mean"}
    frame = loads(view)
    shown = frame.assign(run=frame["run"].map(view.labels))
    yield model.table_of("Balance", shown, {**columns, "max_over_mean": "max/mean"}, left=2)


def _plan(view: BesideView, form: Callable[[dict[str, Any]], str]) -> Iterator[model.ReportTable]:
    """Yield tables that are placed differently, a column for each run with a plan."""
    frame = view.found.plans
    rows = [[str(table), *map(form, records(own))] for table, own in frame.groupby("table", sort=False)]
    columns, count = ["table", *view.marks_of(frame)], len(rows)
    title, name = (
        f"Tables placed differently; {view.found.same_tables:,} placed identically",
        "Tables placed differently",
    )
    note = "How a table is sharded, on which ranks, and its storage there in total."
    yield model.ReportTable(
        title, columns, rows, left=len(columns), note=note, name=name, most=_MOST, count=count, file="plans.csv"
    )


def _place(row: dict[str, Any]) -> str:
    return placement(row["sharding_type"], row["ranks"])


def _place_and_storage(row: dict[str, Any]) -> str:
    where = placement(row["sharding_type"], text.shorten(row["ranks"], 24))
    return where if where == "-" else f"{where}, {text.size(float(row['storage_bytes']))}"


def _no_differences(view: BesideView) -> str:
    return f"No differences; {view.found.same_settings:,} identical."


def _no_plan(view: BesideView) -> str:
    if sum(len(run.plan) > 0 for _, run in view.found.runs) > 1:
        return f"No differences; {view.found.same_tables:,} placed identically."
    return "Fewer than two runs have one."


def _data(view: BesideView) -> dict[str, Any]:
    found = view.found
    head = {"same_settings": found.same_settings, "same_tables": found.same_tables}
    return {"base": found.names[0], "runs": found.names, **head, **found.frames()}


BESIDE = model.Report(
    lines=lines,
    data=_data,
    sections=[
        model.ReportSection("glance", "What differs", [_differences, model.on_page(_tiles), model.on_page(_runs)]),
        model.ReportSection(
            "settings",
            "Settings",
            [
                model.on_terminal(lambda view: _narrow(_settings(view), "value")),
                model.on_page(lambda view: _settings(view, _VALUE)),
            ],
            absent=model.lacking(lambda view: view.found.settings, _no_differences),
        ),
        model.ReportSection(
            "parts",
            "Step time and its parts",
            [
                model.figure("side_by_side.parts"),
                model.on_terminal(_in_short),
                model.on_page(lambda view: _numbers(view) if view.found.results["step_ns"].notna().any() else ()),
            ],
        ),
        model.ReportSection(
            "steps",
            "Step times",
            [model.figure("side_by_side.steps"), model.on_page(_steps)],
            absent=model.lacking(lambda view: view.found.steps, _NO_STEP),
        ),
        model.ReportSection(
            "operations",
            "Operations",
            [model.figure("side_by_side.operations"), _operations],
            absent=model.lacking(lambda view: view.found.operations, lambda view: words.no_operations(view.found)),
        ),
        model.ReportSection(
            "memory",
            "Memory of the fullest rank",
            [model.figure("side_by_side.memory"), model.on_page(_memory)],
            absent=model.lacking(lambda view: view.found.memory, "No run has recorded its memory."),
        ),
        model.ReportSection(
            "links",
            "Links",
            [model.figure("side_by_side.links"), model.on_page(_links)],
            absent=model.lacking(
                lambda view: view.found.link_classes, "Not available: no run has links, as real runs record none."
            ),
        ),
        model.ReportSection(
            "balance",
            "Balance of ranks",
            [model.figure("side_by_side.balance"), model.on_page(_balance)],
            absent=model.lacking(loads, "No run has a plan, or spans of its steady steps."),
        ),
        model.ReportSection(
            "plan",
            "Plan",
            [
                model.on_terminal(lambda view: _narrow(_plan(view, _place), "placed")),
                model.on_page(lambda view: _plan(view, _place_and_storage)),
            ],
            absent=model.lacking(lambda view: view.found.plans, _no_plan),
        ),
    ],
)


class PrintedRuns(Printed, SideBySide):
    """A comparison of runs that, printed, shows the tables of `twinstep report RUN RUN`."""

    __slots__ = ()

    def _report(self) -> tuple[model.Report, BesideView]:
        return BESIDE, BesideView(self, [""] * len(self.runs))


def printed_runs(found: SideBySide) -> PrintedRuns:
    """Return the same comparison, to be printed."""
    return PrintedRuns(**{field.name: getattr(found, field.name) for field in fields(found)})


def printed_pair(first: Run, second: Run) -> SideBySide:
    """Return two runs compared, the first as the base, which print as their report; equal names get numbers."""
    names = numbered_names([first.info.name, second.info.name])
    return printed_runs(side_by_side(list(zip(names, (first, second), strict=True))))
