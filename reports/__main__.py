"""Entry point of reports: reports of runs, comparisons, exports, predictions against published measurements,
profiles of one's own, runs of a profiler's traces, what computations took.

What they say is left to the other modules. They are imported inside the commands, so that help is quick and Ctrl-C is
quiet while pandas loads, too. Only `published` and `calibrate` cross into the simulator, which predicts a row.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reports.errors import ReportError

if TYPE_CHECKING:
    from reports.nccl.fit import Figures
    from reports.nccl.published import Measurements, Prediction, PublishedRow

_COMMANDS = ("report", "show", "compare", "export", "published", "calibrate", "kineto", "times")
_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")
_MOST = 10**6  # nodes, and GPUs of one


def main(arguments: Sequence[str] | None = None, prog: str = "python -m reports") -> int:
    """Runs one command. 0: done; 2: mistakes, each said in one sentence on stderr; 130: interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] not in (*_COMMANDS, "-h", "--help"):
        words.insert(0, "report")
    options = _parser(prog).parse_args(words, argparse.Namespace(typed=f"{prog} {shlex.join(words)}"))
    try:
        from reports.terminal.present import output

        with output():
            commands = {
                "report": _report, "show": _show, "compare": _compare, "export": _export, "published": _published,
                "kineto": _kineto, "calibrate": _calibrate, "times": _times,
            }  # fmt: skip
            commands[options.command](options)
    except ReportError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description="Read the runs of sim and real.")
    commands = parser.add_subparsers(dest="command", required=True)
    report = commands.add_parser("report", help="tables and a page of runs (also without the word report)")
    report.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run folder; the first is the base")
    _add_asked(report)
    _add_out(report)
    show = commands.add_parser("show", help="the summary of one run, and nothing is written")
    show.add_argument("run", type=Path, help="a run folder")
    _add_asked(show)
    both = commands.add_parser("compare", help="a predicted against a measured run, or all of a validation")
    both.add_argument("sim", type=Path, help="the folder of a simulated run; alone, that of a validation")
    both.add_argument("real", type=Path, nargs="?", help="the folder of a real run of the same scenario")
    both.add_argument("--any", action="store_true", help="also two runs of the same world")
    both.add_argument("--json", action="store_true", help="all tables as JSON, and nothing is written")
    _add_out(both)
    export = commands.add_parser("export", help="every frame of a run as CSV")
    export.add_argument("run", type=Path, help="a run folder")
    export.add_argument("--csv", type=Path, required=True, metavar="DIR", help="a new folder for the files")
    _add_published(commands.add_parser("published", help="predictions against published times of collectives"))
    calibrate = commands.add_parser("calibrate", help="a hardware profile with what nccl-tests says of one's own NCCL")
    _add_rows(calibrate)
    calibrate.add_argument("--out", type=Path, required=True, metavar="OUT.toml", help="a new file for the profile")
    calibrate.add_argument("--json", action="store_true", help="what was fitted and all errors as JSON")
    kineto = commands.add_parser("kineto", help="a run folder of what torch.profiler exported")
    kineto.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help="Chrome trace JSON, also .gz; one a rank")
    kineto.add_argument("--out", type=Path, required=True, metavar="RUN", help="a new run folder")
    kineto.add_argument("--json", action="store_true", help="all tables of kernels as JSON")
    times = commands.add_parser("times", help="what computations took, for a scenario's run.compute_times")
    times.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run folder; several are one sample")
    times.add_argument("--csv", type=Path, required=True, metavar="FILE.csv", help="a new file for the times")
    times.add_argument(
        "--skip", type=_count_or_zero, metavar="N", help="first steps of each run to leave out (default: 1 of several)"
    )
    times.add_argument("--any", action="store_true", help="also predictions, and runs of several scenarios")
    return parser


def _add_asked(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--step", type=int, help="the step whose critical path is shown (default: a typical one)")
    parser.add_argument("--json", action="store_true", help="all tables as JSON, and nothing is written")


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="DIR", help="for all that is written (default: inside the runs)")


def _add_published(parser: argparse.ArgumentParser) -> None:
    _add_rows(parser)
    parser.add_argument("--json", action="store_true", help="all tables and rows as JSON")
    parser.add_argument("--csv", type=Path, metavar="OUT.csv", help="a new file for the rows and their predictions")


def _add_rows(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="CSV, or nccl-tests' output (docs/reports.md)"
    )
    parser.add_argument("--profile", metavar="NAME", help="this hardware profile for all rows, not their GPU's")
    header = parser.add_argument_group("nccl-tests' output", "what a header does not say")
    header.add_argument("--op", choices=_OPERATIONS, metavar="OP", help=f"one of {', '.join(_OPERATIONS)}")
    header.add_argument("--gpu", metavar="NAME", help="such as H100")
    header.add_argument("--nodes", type=_count, metavar="N")
    header.add_argument("--gpus-per-node", type=_count, metavar="N")


def _count(word: str, least: int = 1) -> int:
    if not (word.isascii() and word.isdigit() and least <= int(word) <= _MOST):
        raise argparse.ArgumentTypeError(f"{word!r}: expected a whole number from {least} to {_MOST:,}")
    return int(word)


def _count_or_zero(word: str) -> int:
    return _count(word, 0)


def _report(options: argparse.Namespace) -> None:
    from reports import report
    from reports.analysis import typical_step as typical
    from reports.store import run_folder as store
    from reports.terminal import present, progress, text
    from reports.terminal import run_tables as tables

    if len(options.runs) > 1:
        _beside(options)
        return
    run = store.load(options.runs[0])
    typical.step_shown(run, options.step)
    if options.json:
        present.print_json(tables.as_json(run))
        return
    with progress.line() as tell:
        page = report.write(run, report.folder_of(options.runs[0], options.out), step=options.step, tell=tell)
    text.show(tables.summarize(run, options.step), sys.stdout)
    print(f"report: {page}")


def _beside(options: argparse.Namespace) -> None:
    from reports import report
    from reports.side_by_side import frames as beside
    from reports.side_by_side import tables as beside_tables
    from reports.store import run_folder as store
    from reports.terminal import present, progress, text

    if options.step is not None:
        raise ReportError(f"--step {options.step}: expected with one run; several may not have that step")
    found = beside.beside(list(zip(beside.names_of(options.runs), map(store.load, options.runs), strict=True)))
    if options.json:
        present.print_json(beside_tables.as_json(found))
        return
    with progress.line() as tell:
        page = report.write_beside(found, options.runs, options.out, tell)
    text.show(beside_tables.summarize(found), sys.stdout)
    print(f"report: {page}")


def _show(options: argparse.Namespace) -> None:
    from reports.analysis import typical_step as typical
    from reports.store import run_folder as store
    from reports.terminal import present, text
    from reports.terminal import run_tables as tables

    run = store.load(options.run)
    typical.step_shown(run, options.step)
    if options.json:
        present.print_json(tables.as_json(run))
    else:
        text.show(tables.summarize(run, options.step), sys.stdout)


def _compare(options: argparse.Namespace) -> None:
    from reports import report
    from reports.compare import comparison as compare
    from reports.compare import tables as compare_tables
    from reports.store import run_folder as store
    from reports.terminal import present, progress, text

    if options.real is None:
        _validation(options)
        return
    first, second = store.load(options.sim), store.load(options.real)
    comparison = compare.compare(first, second, any_worlds=options.any)
    if options.json:
        present.print_json(compare_tables.as_json(comparison))
        return
    folders = [options.sim, options.real] if comparison.predicted is first else [options.real, options.sim]
    with progress.line() as tell:
        page = report.write_comparison(comparison, folders, options.out, tell)
    text.show(compare_tables.summarize(comparison), sys.stdout)
    print(f"report: {page}")


def _validation(options: argparse.Namespace) -> None:
    from reports import report
    from reports.terminal import present, progress, text
    from reports.terminal import run_tables as tables
    from reports.validation import folder as validation_folder
    from reports.validation import tables as validation_tables

    if options.out is not None:
        raise ReportError(f"--out {options.out}: expected with runs; a validation's page lies beside its runs")
    found = validation_folder.load(options.sim)
    if options.json:
        frames = {"scenarios": found.scenarios, "operations": found.operations}
        present.print_json(text.plain({name: tables.records(frame) for name, frame in frames.items()}))
        return
    with progress.line() as tell:
        page = report.write_validation(found, tell)
    text.show(validation_tables.of_scenarios(found.scenarios), sys.stdout)
    print(f"report: {page}")


def _export(options: argparse.Namespace) -> None:
    from reports.store import run_folder as store

    derived = store.load(options.run).derived()
    with store.whole_folder(options.csv) as partial:
        for name, frame in derived.items():
            frame.to_csv(partial / f"{name}.csv", index=False)


def _published(options: argparse.Namespace) -> None:
    from reports.nccl import published, published_tables
    from reports.terminal import present, text

    found = _measurements(options, options.csv)
    _say_notes(found.notes)
    joined = published.join(found.rows, _predict, options.profile)
    if options.csv is not None:
        published.write(joined, options.csv)
    own = {name: _figures(name).nccl_efficiency for name in published_tables.nccl_profiles(joined)}
    if options.json:
        present.print_json(published_tables.as_json(joined, options.files, options.profile, own))
    else:
        text.show(published_tables.summarize(joined, own), sys.stdout)


def _kineto(options: argparse.Namespace) -> None:
    from reports.kineto import recording as kineto
    from reports.kineto import tables as kineto_tables
    from reports.store import run_folder as store
    from reports.terminal import present, text
    from reports.writer import write

    store.check_free(options.out)
    profile = kineto.read(options.traces, options.out.resolve().name)
    write(profile.recording, options.out)
    _say_notes(profile.notes)
    if options.json:
        present.print_json({"run": str(options.out), **kineto_tables.as_json(profile)})
    else:
        text.show(kineto_tables.summarize(profile), sys.stdout)
        print(f"run folder: {options.out}")


def _times(options: argparse.Namespace) -> None:
    from reports.kineto import compute_times as times
    from reports.nccl import published
    from reports.store import run_folder as store
    from reports.terminal import text

    published.check_free(options.csv)
    runs = [(text.printable(folder), store.load(folder)) for folder in options.runs]
    found = times.measure(runs, options.skip, any_runs=options.any)
    published.write(found.rows, options.csv)
    _say_notes(found.notes)
    text.show(times.summarize(found), sys.stdout)
    print(f"times: {options.csv}")


def _calibrate(options: argparse.Namespace) -> None:
    from datetime import date

    from reports.nccl import fit as nccl_fit
    from reports.nccl import fit_tables as nccl_fit_tables
    from reports.nccl import profile as nccl_profile
    from reports.nccl import published
    from reports.terminal import present, text
    from scenarios.config.catalogue import profile_file

    found = _measurements(options, options.out)
    if options.out.suffix != ".toml":
        raise ReportError(f"--out {options.out}: expected a file whose name ends in .toml, as a scenario names it")
    rows, name, notes = nccl_fit.choose(published.join(found.rows, _predict, options.profile), found.rows)
    fit = nccl_fit.fit(rows, _figures(name), lambda row, figures: _predict(row, name, figures).predicted_us)
    base = Path(profile_file(name) or name).read_text(encoding="utf-8")
    today = date.today().isoformat()
    published.write_text(nccl_profile.calibrated(base, name, fit, command=options.typed, date=today), options.out)
    _say_notes([*found.notes, *notes, *fit.notes])
    if worse := nccl_fit_tables.worse(fit):
        print(f"warning: {worse}", file=sys.stderr)
    if options.json:
        present.print_json(nccl_fit_tables.as_json(fit, name, options.out))
    else:
        text.show(nccl_fit_tables.summarize(fit, name), sys.stdout)
        print(f"profile: {options.out}")


def _measurements(options: argparse.Namespace, out: Path | None) -> Measurements:
    """The files' measurements; other options are checked first, as it would be too late after long work."""
    from reports.nccl import nccl_tests, published

    given = nccl_tests.Given(
        op=options.op, gpu=options.gpu, nodes=options.nodes, gpus_per_node=options.gpus_per_node
    )  # fmt: skip
    found = nccl_tests.read_files(options.files, given)
    if out is not None:
        published.check_free(out)
    if options.profile is not None:
        _figures(options.profile)  # once, not as every row's reason
    return found


def _say_notes(notes: Iterable[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def _figures(profile: str) -> Figures:
    """What a profile, which must be there, says of NCCL."""
    from reports.nccl.fit import Figures
    from scenarios.config.load import load_profile
    from scenarios.seam.errors import ScenarioError

    try:
        found = load_profile(profile)
    except ScenarioError as error:
        raise ReportError(str(error)) from None
    return Figures(
        nccl_efficiency=found.nccl_efficiency,
        nccl_start_ns=found.nccl_start_ns,
        nccl_p2p_share=found.nccl_p2p_share,
    )


def _predict(row: PublishedRow, profile: str | None, figures: Figures | None = None) -> Prediction:
    from reports.nccl.published import Prediction
    from scenarios.seam.errors import ScenarioError
    from sim.published import predict

    try:
        found = predict(
            op=row.op,
            library=row.library,
            gpu=row.gpu,
            nodes=row.nodes,
            gpus_per_node=row.gpus_per_node,
            size_bytes=row.size_bytes,
            link_gbit_per_s=row.link_gbit_per_s,
            one_way_delay_ms=row.one_way_delay_ms,
            profile=profile,
            **({} if figures is None else {"figures": dataclasses.asdict(figures)}),
        )
    except ScenarioError as error:
        raise ReportError("; ".join(error.sentences)) from None
    return Prediction(
        predicted_us=found.predicted_us,
        formula_us=found.formula_us,
        algorithm=found.algorithm,
        protocol=found.protocol,
        profile=found.profile,
    )


if __name__ == "__main__":
    sys.exit(main())
