"""The reading room's hallway: show one run, compare two, export one, hold predictions against published measurements,
make a run of a profiler's traces.

What they say is left to the other modules. They are imported inside the commands, so that help is quick and Ctrl-C is
quiet while pandas loads, too. Only `published` crosses into the simulator, which predicts a row.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reports.errors import ReportError

if TYPE_CHECKING:
    from reports.published import Prediction, PublishedRow

_COMMANDS = ("show", "compare", "export", "published", "kineto")
_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")
_MOST = 10**6  # nodes, and GPUs of one


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. 0: done; 2: mistakes, each said in one sentence on stderr; 130: interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] not in (*_COMMANDS, "-h", "--help"):
        words.insert(0, "show")
    options = _parser().parse_args(words)
    try:
        from reports.present import output

        with output():
            commands = {
                "show": _show, "compare": _compare, "export": _export, "published": _published, "kineto": _kineto,
            }  # fmt: skip
            commands[options.command](options)
    except ReportError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports", description="Read the runs of sim and real.")
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="the summary of one run (also without the word show)")
    show.add_argument("run", type=Path, help="a run folder")
    show.add_argument("--step", type=int, help="the step whose critical path is shown (default: a typical one)")
    show.add_argument("--json", action="store_true", help="all tables as JSON")
    both = commands.add_parser("compare", help="a predicted against a measured run of the same scenario")
    both.add_argument("sim", type=Path, help="the folder of a simulated run")
    both.add_argument("real", type=Path, help="the folder of a real run")
    both.add_argument("--any", action="store_true", help="also two runs of the same world")
    both.add_argument("--json", action="store_true", help="all tables as JSON")
    export = commands.add_parser("export", help="every frame of a run as CSV")
    export.add_argument("run", type=Path, help="a run folder")
    export.add_argument("--csv", type=Path, required=True, metavar="DIR", help="a new folder for the files")
    _add_published(commands.add_parser("published", help="predictions against published times of collectives"))
    kineto = commands.add_parser("kineto", help="a run folder of what torch.profiler exported")
    kineto.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help="Chrome trace JSON, also .gz; one a rank")
    kineto.add_argument("--out", type=Path, required=True, metavar="RUN", help="a new run folder")
    kineto.add_argument("--json", action="store_true", help="all tables of kernels as JSON")
    return parser


def _add_published(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="CSV, or nccl-tests' output (docs/reports.md)"
    )
    parser.add_argument("--profile", metavar="NAME", help="this hardware profile for all rows, not their GPU's")
    parser.add_argument("--json", action="store_true", help="all tables and rows as JSON")
    parser.add_argument("--csv", type=Path, metavar="OUT.csv", help="a new file for the rows and their predictions")
    header = parser.add_argument_group("nccl-tests' output", "what a header does not say")
    header.add_argument("--op", choices=_OPERATIONS, metavar="OP", help=f"one of {', '.join(_OPERATIONS)}")
    header.add_argument("--gpu", metavar="NAME", help="such as H100")
    header.add_argument("--nodes", type=_count, metavar="N")
    header.add_argument("--gpus-per-node", type=_count, metavar="N")


def _count(word: str) -> int:
    if not (word.isascii() and word.isdigit() and 0 < int(word) <= _MOST):
        raise argparse.ArgumentTypeError(f"{word!r}: expected a whole number from 1 to {_MOST:,}")
    return int(word)


def _show(options: argparse.Namespace) -> None:
    from reports import present, store, tables, text

    run = store.load(options.run)
    if options.json:
        present.print_json(tables.as_json(run))
    else:
        text.show(tables.summarize(run, options.step), sys.stdout)


def _compare(options: argparse.Namespace) -> None:
    from reports import compare, compare_tables, present, store, text

    comparison = compare.compare(store.load(options.sim), store.load(options.real), any_worlds=options.any)
    if options.json:
        present.print_json(compare_tables.as_json(comparison))
    else:
        text.show(compare_tables.summarize(comparison), sys.stdout)


def _export(options: argparse.Namespace) -> None:
    from reports import store

    derived = store.load(options.run).derived()
    with store.whole_folder(options.csv) as partial:
        for name, frame in derived.items():
            frame.to_csv(partial / f"{name}.csv", index=False)


def _published(options: argparse.Namespace) -> None:
    from reports import nccl_tests, present, published, published_tables, text

    given = nccl_tests.Given(
        op=options.op, gpu=options.gpu, nodes=options.nodes, gpus_per_node=options.gpus_per_node
    )  # fmt: skip
    found = nccl_tests.read_files(options.files, given)
    if options.csv is not None:
        published.check_free(options.csv)
    if options.profile is not None:
        _efficiency(options.profile)  # once, not as every row's reason
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    joined = published.join(found.rows, _predict, options.profile)
    if options.csv is not None:
        published.write(joined, options.csv)
    own = {name: _efficiency(name) for name in published_tables.nccl_profiles(joined)}
    if options.json:
        present.print_json(published_tables.as_json(joined, options.files, options.profile, own))
    else:
        text.show(published_tables.summarize(joined, own), sys.stdout)


def _kineto(options: argparse.Namespace) -> None:
    from reports import kineto, kineto_tables, present, store, text

    store.check_free(options.out)
    profile = kineto.read(options.traces, options.out.resolve().name)
    store.write(profile.recording, options.out)
    for note in profile.notes:
        print(f"note: {note}", file=sys.stderr)
    if options.json:
        present.print_json({"run": str(options.out), **kineto_tables.as_json(profile)})
    else:
        text.show(kineto_tables.summarize(profile), sys.stdout)
        print(f"run folder: {options.out}")


def _efficiency(profile: str) -> float:
    """The `nccl_efficiency` of a profile, which must be there."""
    from scenarios.errors import ScenarioError
    from scenarios.load import load_profile

    try:
        return load_profile(profile).nccl_efficiency
    except ScenarioError as error:
        raise ReportError(str(error)) from None


def _predict(row: PublishedRow, profile: str | None) -> Prediction:
    from reports.published import Prediction
    from scenarios.errors import ScenarioError
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
