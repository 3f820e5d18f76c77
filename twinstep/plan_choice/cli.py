"""Command `plan`: compare a user's plan, the planner's own and the best found by simulation, and write that one."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.collector import loading
from scenarios.interruption import NOTHING, code_of
from scenarios.workloads.recording.recorded import SCRIPT
from scenarios.workloads.script.command import OF_SCRIPT, parse

if TYPE_CHECKING:
    from reports.sections.plans import PlansView
    from scenarios.config.scenario import Scenario
    from scenarios.progress_line import ProgressLine

_SECONDS = 60.0
_MOVES = 3
OVERRIDES = ("steps", "batch_size", "fidelity", "ranks", "profile")
_IDS_BYTES = 1 << 28  # all plans look up the same ids


def main(arguments: Sequence[str] | None = None, prog: str = "python -m twinstep plan") -> int:
    """Run the command and return its exit code.

    Exit codes: 0 done, also if Ctrl-C ended the search, 1 a program failed, 2 the user's mistake, 128 + n for signal n.
    """
    try:
        options, of_script = parse(_parser(prog), sys.argv[1:] if arguments is None else arguments)
        with loading():
            from reports.errors import NoStepError, ReportError
            from scenarios.config.load import report_mistakes
            from scenarios.seam.errors import ProgramError, show_notes

        show_notes()
        try:
            with report_mistakes():
                return _plan(options, of_script)
        except (ProgramError, ReportError) as error:
            print(error, file=sys.stderr)
            return 1 if isinstance(error, ProgramError | NoStepError) else 2
    except KeyboardInterrupt as interruption:
        return code_of(interruption, NOTHING)


def _parser(prog: str) -> argparse.ArgumentParser:
    from scenarios.workloads.script.command import add_options
    from twinstep.options import add_outputs, add_overrides

    parser = argparse.ArgumentParser(
        prog=prog,
        description="Simulate the plan of TorchRec's planner for the tables of a scenario or script, your own plan, and"
        " the best plan that a search finds; say which is fastest and why, and write it (twinstep docs planner).",
    )
    about = "scenario file, name of a ready scenario, or script (.py) of TorchRec followed by its own arguments"
    parser.add_argument("scenario", type=Path, nargs="?", help=about)
    parser.add_argument(
        "--against",
        type=Path,
        metavar="PLAN",
        help="your plan: JSON as sharding.plan takes it (twinstep docs planner; default: the scenario's sharding.plan,"
        " or the script's own plan)",
    )
    add_outputs(
        parser,
        "new file for the best plan, with a page beside it (default: runs/NAME-plan-TIME/plan.json)",
        json="print all tables as JSON",
        quiet="print only the plan's path",
        metavar="PLAN",
    )
    about = f"time limit for all simulations; the best plan found by then is taken (default: {_SECONDS:g})"
    parser.add_argument("--seconds", type=float, default=_SECONDS, metavar="S", help=about)
    few = f"also simulate the best single move from your plan, the best two ... up to K (default: {_MOVES})"
    parser.add_argument("--moves", type=int, default=_MOVES, metavar="K", help=few)
    parser.add_argument("--full", action="store_true", help="list all tables that the best plan places differently")
    about = "path of the tables' module in the plan (default: as in TorchRec's DLRM, or in the script)"
    parser.add_argument("--module", dest="tables_module", metavar="PATH", help=about)
    add_overrides(parser.add_argument_group("overrides (default: the scenario's values)"), OVERRIDES)
    add_options(parser)
    return parser


def _plan(options: argparse.Namespace, of_script: Sequence[str] | None) -> int:
    with loading():
        from reports.page.blocks import Page
        from reports.page.render import write
        from reports.page.sections import draw_sections
        from reports.sections.plans import PLANS
        from reports.store import replace as replacing
        from reports.store.run_folder import fresh_folder
        from reports.terminal.present import output, print_report
        from scenarios.progress_line import ProgressLine
        from scenarios.seam.errors import ScenarioError
        from twinstep.options import overrides_of, scenario_given

    if not options.seconds > 0:
        raise ScenarioError(f"--seconds = {options.seconds:g}: expected more than 0")
    if options.moves < 0:
        raise ScenarioError(f"--moves = {options.moves}: expected at least 0")
    overrides = overrides_of(options, OVERRIDES)
    asked = PlanRequest(
        options.scenario,
        overrides,
        scenario_given(options, overrides, of_script),
        options.against,
        options.tables_module,
    )
    file: Path = options.out or fresh_folder("runs", f"{asked.name}-plan") / "plan.json"
    page = file.with_suffix(".html")
    if options.out is not None:
        replacing.check_free(file)
        replacing.check_free(page)
    quiet = options.json or options.quiet
    with ProgressLine(quiet=quiet, first_s=1.0, plain_s=10.0) as line:
        view = replace(asked.compare(options.seconds, line, file, options.moves), full=options.full)
    if options.out is not None:
        replacing.check_free(file)  # the search took its time
    about = ["Simulated plans of the job's tables; the best one is in the file beside this page."]
    with replacing.replace_file(file) as draft:  # not there without its page
        draft.write_text(view.best_json, encoding="utf-8", newline="")
        write(Page(title=f"{asked.name}: plans", about=about, sections=draw_sections(PLANS, view)), page)
    with output():
        if options.quiet:
            print(file)
        else:
            print_report(PLANS, view, as_json=options.json)
            if not options.json:
                # Printed by itself, because a report folds lines, and a folded command cannot be copied.
                print(f"predict with it: {view.command}\npage: {page}")
    return 0


class PlanRequest:
    """A scenario or script whose plans are to be compared.

    Args:
        path: the scenario's or script's.
        overrides: values in place of the scenario's, and what only Python takes for a script.
        scenario: loaded from the path with these values.
        against: the file of the user's plan.
        module: the path of a scenario's tables in the written plan.
    """

    def __init__(
        self,
        path: Path,
        overrides: Mapping[str, object],
        scenario: Scenario,
        against: str | os.PathLike[str] | None = None,
        module: str = "",
    ) -> None:
        """Load a scenario also with the user's plan, so that mistakes are reported before long work.

        Raises:
            ScenarioError: mistakes in it, or its program has no tables to place.
        """
        from scenarios.planner.plan_file import MODULE
        from scenarios.seam.errors import ScenarioError
        from twinstep.plan_choice.scenario_job import ScenarioJob

        self._overrides = {key: value for key, value in overrides.items() if key not in OF_SCRIPT}
        self._scenario, self._job = scenario, None
        self.name = self._scenario.name
        if self._scenario.program != SCRIPT:
            self._job = ScenarioJob(path, self._overrides, None if against is None else Path(against), module or MODULE)
        elif against is not None:
            raise ScenarioError(f"--against = {against}: expected --set script.plan={against} with a script")

    def compare(self, seconds: float, line: ProgressLine, file: Path, moves: int = _MOVES) -> PlansView:
        """Return the compared plans, with few `moves` from the user's; the caller writes the best one to `file`."""
        from reports.sections.plans import PLANNERS, YOURS, PlansView
        from scenarios.workloads.dlrm.ids.id_cache import DRAWN
        from twinstep.plan_choice.comparison import TimeLimit, compare_plans
        from twinstep.plan_choice.script_job import ScriptJob

        with DRAWN.up_to(_IDS_BYTES):
            limit = TimeLimit(seconds, line)
            job = self._job or ScriptJob(self._scenario, self._overrides, limit.draw)
            found = compare_plans(job, limit, moves)
        notes, steps = [*found.misfits.values(), *job.notes], self._scenario.run.steps
        if found.steps < steps:
            of = f"{found.steps} of the scenario's {steps:,} steps were simulated for each plan"
            notes.append(f"{of}, to keep to {seconds:g} s (--seconds).")
        return PlansView(
            plans=found.plans,
            tried=found.tried,
            stopped=found.stopped,
            misfits=[name for name in (YOURS, PLANNERS) if name in found.misfits],
            few=found.few,
            file=str(file),
            command=job.command(file, found.steps, OVERRIDES),
            reserved_share=job.reserved_share,
            notes=notes,
            best_json=found.best_json,
        )
