"""Command `plan`: compare a user's plan, the planner's own and the best found by simulation, and write that one."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.collector import loading
from scenarios.interruption import code_of

if TYPE_CHECKING:
    from reports.sections.plans import PlansView
    from scenarios.config.scenario import Scenario
    from twinstep.plan_choice.comparison import Compared

_SECONDS = 60.0
_OVERRIDES = ("steps", "batch_size", "fidelity", "ranks", "profile")
_IDS_BYTES = 1 << 28  # all plans look up the same ids


def main(arguments: Sequence[str] | None = None, prog: str = "python -m twinstep plan") -> int:
    """Run the command and return its exit code.

    Exit codes: 0 done, also if Ctrl-C ended the search, 1 a program failed, 2 the user's mistake, 128 + n for signal n.
    """
    options = _parser(prog).parse_args(arguments)
    try:
        with loading():
            from reports.errors import NoStepError, ReportError
            from scenarios.config.load import report_mistakes
            from scenarios.seam.errors import ProgramError, show_notes

        show_notes()
        try:
            with report_mistakes():
                return _plan(options)
        except (ProgramError, ReportError) as error:
            print(error, file=sys.stderr)
            return 1 if isinstance(error, ProgramError | NoStepError) else 2
    except KeyboardInterrupt as interruption:
        return code_of(interruption)


def _parser(prog: str) -> argparse.ArgumentParser:
    from twinstep.options import add_outputs, add_overrides

    parser = argparse.ArgumentParser(
        prog=prog,
        description="Simulate the plan of TorchRec's planner for a scenario's tables, your own plan, and the best plan"
        " that a search finds; say which is fastest and why, and write it (docs/planner.md).",
    )
    parser.add_argument("scenario", type=Path, help="scenario file, or name of a ready scenario")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="PLAN",
        help="your plan: JSON as sharding.plan takes it (docs/planner.md; default: the scenario's sharding.plan)",
    )
    add_outputs(
        parser,
        "new file for the best plan, with a page beside it (default: runs/NAME-plan-TIME/plan.json)",
        json="print all tables as JSON",
        quiet="print only the plan's path",
        metavar="PLAN",
    )
    about = f"time for all simulations; then the best plan found by then is taken (default: {_SECONDS:g})"
    parser.add_argument("--seconds", type=float, default=_SECONDS, metavar="S", help=about)
    parser.add_argument("--module", metavar="PATH", help="path of the tables' module in the plan (TorchRec's DLRM's)")
    add_overrides(parser.add_argument_group("overrides (default: the scenario's values)"), _OVERRIDES)
    return parser


def _plan(options: argparse.Namespace) -> int:
    with loading():
        from reports.page.blocks import Page
        from reports.page.render import write
        from reports.page.sections import draw_sections
        from reports.sections.plans import PLANS
        from reports.store import replace
        from reports.store.run_folder import fresh_folder
        from reports.terminal.present import output, print_report
        from scenarios.config.load import load
        from scenarios.planner.plan_file import MODULE
        from scenarios.progress_line import ProgressLine
        from scenarios.seam.errors import ScenarioError
        from scenarios.workloads.dlrm.ids.id_cache import DRAWN
        from twinstep.options import overrides_of
        from twinstep.plan_choice.comparison import TimeLimit, compare_plans, kept_ranks
        from twinstep.studies.kept_plan import values_of

    if not options.seconds > 0:
        raise ScenarioError(f"--seconds = {options.seconds:g}: expected more than 0")
    overrides = overrides_of(options, _OVERRIDES)
    free, given = _scenario(options, overrides)

    def planned(file: Path) -> Scenario:
        return load(options.scenario, {**overrides, **kept_ranks(free), **values_of(file.absolute(), free)})

    if given is not None:
        planned(given)  # reports its mistakes before long work
    file: Path = options.out or fresh_folder("runs", f"{free.name}-plan") / "plan.json"
    page = file.with_suffix(".html")
    if options.out is not None:
        replace.check_free(file)
        replace.check_free(page)
    quiet = options.json or options.quiet
    with ProgressLine(quiet=quiet, first_s=1.0) as line, DRAWN.up_to(_IDS_BYTES):
        compared = compare_plans(free, planned, given, TimeLimit(options.seconds, line), options.module or MODULE)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace.write_text(compared.best_json, file)
    view = _view(compared, free, file, options)
    about = ["Simulated plans of the scenario's tables; the best one is in the file beside this page."]
    write(Page(title=f"{free.name}: plans", about=about, sections=draw_sections(PLANS, view)), page)
    with output():
        if options.quiet:
            print(file)
        else:
            print_report(PLANS, view, as_json=options.json)
            if not options.json:
                # Printed by itself, because a report folds lines, and a folded command cannot be copied.
                print(f"predict with it: {view.command}\npage: {page}")
    return 0


def _scenario(options: argparse.Namespace, overrides: Mapping[str, object]) -> tuple[Scenario, Path | None]:
    """Return the scenario without a plan of its own, and the file of the user's plan, if there is one.

    Raises:
        ScenarioError: mistakes in it, or its program has no tables to place.
    """
    from scenarios.config.load import load
    from scenarios.seam.errors import ScenarioError
    from scenarios.workloads.script.command import is_script, tree_given

    if is_script(options.scenario):
        raise ScenarioError(
            f"{options.scenario}: expected a scenario, with the tables of the script; 'twinstep predict' of a script"
            " says what its own plan and the planner's are expected to take"
        )
    scenario = load(options.scenario, overrides)
    if not scenario.workload.tables:
        raise ScenarioError(
            f"{scenario.path}: program = '{scenario.program}': expected one with tables to place, such as 'dlrm'"
        )
    own = scenario.workload.plan_file
    if own is None:
        return scenario, options.against
    # Without the plan, sharding types are again those that the scenario allows.
    section = tree_given(options.scenario, overrides, scenario).values["sharding"]
    section = {key: value for key, value in section.items() if key != "plan"}
    others = {key: value for key, value in overrides.items() if not key.startswith("sharding.")}
    return load(options.scenario, {**others, "sharding": section}), options.against or own.path


def _view(compared: Compared, scenario: Scenario, file: Path, options: argparse.Namespace) -> PlansView:
    """Return the view of the compared plans, the best one in a file."""
    from reports.sections.plans import PlansView
    from scenarios.config.scenario import Recommender
    from twinstep.plan_choice.comparison import kept_ranks
    from twinstep.studies.kept_plan import values_of

    given = {name: getattr(options, name) for name in _OVERRIDES if getattr(options, name) is not None}
    given |= kept_ranks(scenario)
    notes = []
    if compared.steps < scenario.run.steps:
        of = f"{compared.steps} of the scenario's {scenario.run.steps:,} steps were simulated for each plan"
        notes.append(f"{of}, to keep to --seconds {options.seconds:g}.")
        given["steps"] = compared.steps
    words = ["twinstep", "predict", str(options.scenario)]
    words += [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    sets = [*options.sets, *(f"{key}={value}" for key, value in values_of(file, scenario).items())]
    return PlansView(
        plans=compared.plans,
        tried=compared.tried,
        stopped=compared.stopped,
        file=str(file),
        command=shlex.join([*words, *(word for one in sets for word in ("--set", one))]),
        reserved_share=Recommender.of(scenario.workload).planner.reserved_share,
        notes=notes,
    )
