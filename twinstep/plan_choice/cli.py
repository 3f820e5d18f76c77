"""Command `plan`: compare a user's plan, the planner's own and the best found by simulation, and write that one."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.collector import loading
from scenarios.interruption import NOTHING, code_of

if TYPE_CHECKING:
    from reports.sections.plans import PlansView
    from scenarios.config.scenario import Scenario
    from scenarios.progress_line import ProgressLine

_SECONDS = 60.0
_MOVES = 3
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
        return code_of(interruption, NOTHING)


def _parser(prog: str) -> argparse.ArgumentParser:
    from twinstep.options import add_outputs, add_overrides

    parser = argparse.ArgumentParser(
        prog=prog,
        description="Simulate the plan of TorchRec's planner for a scenario's tables, your own plan, and the best plan"
        " that a search finds; say which is fastest and why, and write it (twinstep docs planner).",
    )
    parser.add_argument("scenario", type=Path, help="scenario file, or name of a ready scenario")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="PLAN",
        help="your plan: JSON as sharding.plan takes it (twinstep docs planner; default: the scenario's sharding.plan)",
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
    few = f"also simulate the best single move from your plan, the best two ... up to K (default: {_MOVES})"
    parser.add_argument("--moves", type=int, default=_MOVES, metavar="K", help=few)
    parser.add_argument("--full", action="store_true", help="list all tables that the best plan places otherwise")
    parser.add_argument("--module", metavar="PATH", help="path of the tables' module in the plan (TorchRec's DLRM's)")
    add_overrides(parser.add_argument_group("overrides (default: the scenario's values)"), _OVERRIDES)
    return parser


def _plan(options: argparse.Namespace) -> int:
    with loading():
        from reports.page.blocks import Page
        from reports.page.render import write
        from reports.page.sections import draw_sections
        from reports.sections.plans import PLANS
        from reports.store import replace as replacing
        from reports.store.run_folder import fresh_folder
        from reports.terminal.present import output, print_report
        from scenarios.planner.plan_file import MODULE
        from scenarios.progress_line import ProgressLine
        from scenarios.seam.errors import ScenarioError
        from twinstep.options import overrides_of

    if not options.seconds > 0:
        raise ScenarioError(f"--seconds = {options.seconds:g}: expected more than 0")
    if options.moves < 0:
        raise ScenarioError(f"--moves = {options.moves}: expected at least 0")
    overrides = overrides_of(options, _OVERRIDES)
    asked = PlanRequest(options.scenario, overrides, options.against, options.module or MODULE)
    file: Path = options.out or fresh_folder("runs", f"{asked.free.name}-plan") / "plan.json"
    page = file.with_suffix(".html")
    if options.out is not None:
        replacing.check_free(file)
        replacing.check_free(page)
    quiet = options.json or options.quiet
    with ProgressLine(quiet=quiet, first_s=1.0, plain_s=10.0) as line:
        view = replace(asked.compare(options.seconds, line, file, options.moves), full=options.full)
    file.parent.mkdir(parents=True, exist_ok=True)
    replacing.write_text(view.best_json, file)
    about = ["Simulated plans of the scenario's tables; the best one is in the file beside this page."]
    write(Page(title=f"{asked.free.name}: plans", about=about, sections=draw_sections(PLANS, view)), page)
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
    """A scenario whose plans are to be compared, and the file of the user's plan, if there is one.

    `free` is the scenario without a plan of its own.
    """

    def __init__(self, path: Path, overrides: Mapping[str, object], against: Path | None, module: str) -> None:
        """Load the scenario, also with the user's plan, so that mistakes are reported before long work.

        Raises:
            ScenarioError: mistakes in it, or its program has no tables to place.
        """
        self._path, self._overrides, self._module = path, overrides, module
        self.free, self.given = self._without_plan(against)
        if self.given is not None:
            self._apply_plan(self.given)

    def compare(self, seconds: float, line: ProgressLine, file: Path, moves: int = _MOVES) -> PlansView:
        """Return the compared plans, with few `moves` from the user's; the caller writes the best one to `file`."""
        from reports.sections.plans import PlansView
        from scenarios.config.scenario import Recommender
        from scenarios.workloads.dlrm.ids.id_cache import DRAWN
        from twinstep.plan_choice.comparison import TimeLimit, compare_plans

        with DRAWN.up_to(_IDS_BYTES):
            limit = TimeLimit(seconds, line)
            found = compare_plans(self.free, self._apply_plan, self.given, limit, self._module, moves)
        notes = [found.misfit] if found.misfit else []
        if found.steps < self.free.run.steps:
            of = f"{found.steps} of the scenario's {self.free.run.steps:,} steps were simulated for each plan"
            notes.append(f"{of}, to keep to {seconds:g} s (--seconds).")
        return PlansView(
            plans=found.plans,
            tried=found.tried,
            stopped=found.stopped,
            fits=not found.misfit,
            few=found.few,
            file=str(file),
            command=self._command(file, found.steps),
            reserved_share=Recommender.of(self.free.workload).planner.reserved_share,
            notes=notes,
            best_json=found.best_json,
        )

    def _apply_plan(self, file: Path) -> Scenario:
        """Return the scenario with the plan of a file."""
        from scenarios.config.load import load
        from twinstep.plan_choice.comparison import kept_ranks
        from twinstep.studies.kept_plan import values_of

        return load(self._path, {**self._overrides, **kept_ranks(self.free), **values_of(file.absolute(), self.free)})

    def _without_plan(self, against: Path | None) -> tuple[Scenario, Path | None]:
        from scenarios.config.load import load
        from scenarios.seam.errors import ScenarioError
        from scenarios.workloads.script.command import is_script, tree_given

        if is_script(self._path):
            raise ScenarioError(
                f"{self._path}: expected a scenario; 'twinstep import torchrec MODULE:FUNCTION --out tables.csv' and"
                " 'twinstep init --tables tables.csv' make one of a script's tables (twinstep docs planner), and"
                " 'twinstep predict' of a script compares its own plan with the planner's"
            )
        scenario = load(self._path, self._overrides)
        if not scenario.workload.tables:
            raise ScenarioError(
                f"{scenario.path}: program = '{scenario.program}': expected one with tables to place, such as 'dlrm'"
            )
        own = scenario.workload.plan_file
        if own is None:
            return scenario, against
        # Without the plan, sharding types are again those that the scenario allows.
        section = tree_given(self._path, self._overrides, scenario).values["sharding"]
        section = {key: value for key, value in section.items() if key != "plan"}
        others = {key: value for key, value in self._overrides.items() if not key.startswith("sharding.")}
        return load(self._path, {**others, "sharding": section}), against or own.path

    def _command(self, file: Path, steps: int) -> str:
        """Return the command that predicts the scenario with the plan of a file, for as many steps."""
        from twinstep.plan_choice.comparison import kept_ranks
        from twinstep.studies.kept_plan import values_of
        from twinstep.what_ifs.what_if import options_of

        given = {**self._overrides, **kept_ranks(self.free)}
        if steps < self.free.run.steps:
            given["steps"] = steps
        words = ["twinstep", "predict", str(self._path)]
        for name in [name for name in given if name in _OVERRIDES]:
            words += [f"--{name.replace('_', '-')}", str(given.pop(name))]
        return f"{shlex.join(words)} {options_of({**given, **values_of(file, self.free)})}"
