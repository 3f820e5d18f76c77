"""`python -m real`: load a scenario, run it on this machine's processes or as one rank, store and show the run.

Slow imports are inside functions, so that Ctrl-C is quiet while they load, too.
"""

from __future__ import annotations

import argparse
import shlex
import socket
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, get_args

from scenarios.interruption import code_of

if TYPE_CHECKING:
    from real.launch.job import Job
    from real.launch.placement import Place
    from reports.run import Run
    from scenarios.config.scenario import Scenario


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run one command; `prog` are the words that called it, "python -m real" and the command by default.

    Exit codes: 0 done, 1 the run ended early, 2 a mistake in the scenario, 128 + n for signal n.
    """
    try:
        return _main(sys.argv[1:] if arguments is None else arguments, prog)
    except KeyboardInterrupt as interruption:
        return code_of(interruption)


def _main(given: Sequence[str], prog: str | None) -> int:
    from real.launch.launcher import RunEnded
    from real.launch.placement import place
    from real.launch.rank_process import is_rank_of_launcher
    from real.launch.rank_process import main as be_rank
    from reports.errors import ReportError
    from scenarios.seam.errors import ProgramError, ScenarioError, show_notes
    from scenarios.workloads.script.command import parse

    if is_rank_of_launcher():
        return be_rank()
    show_notes()
    try:
        if given and given[0] in _COMMANDS:
            return _run_command(given[0], given[1:], prog or f"python -m real {given[0]}")
        options, of_script = parse(_parser(prog or "python -m real"), given)
        here = place()
        job = _job(options, of_script, is_first=here is None or here.rank == 0)
        return _run(job, options) if here is None else _serve(job, here, options)
    except (ScenarioError, ProgramError, ReportError) as error:
        if here_is_first():
            print(error, file=sys.stderr)
        elif is_first_of_host():  # a file may be missing on this host only
            print(f"host {socket.gethostname()}: {error}", file=sys.stderr)
        return 2
    except RunEnded as ended:
        print(ended, file=sys.stderr)
        return ended.code


# The module of each command's function, and whether it simulates, too.
_COMMANDS = {
    "calibrate": ("twinstep.calibration.cli", True),
    "check": ("real.check.cli", True),
    "emulate": ("real.emulate.cli", False),
    "job": ("twinstep.real_jobs.cli", False),
    "regret": ("twinstep.regret.cli", False),
    "validate": ("twinstep.validation.cli", False),
}


def _run_command(name: str, given: Sequence[str], prog: str) -> int:
    """Run the function of the command's name in its module, which is imported only now."""
    module, simulates = _COMMANDS[name]
    function = getattr(import_module(module), name)
    if not simulates:
        return int(function(given, prog))
    from sim.run import simulate

    return int(function(given, simulate, prog))


def here_is_first() -> bool:
    """Return whether this process reports for all: it is the launcher, or rank 0."""
    from real.launch.rank_process import place_if_known

    here = place_if_known()
    return here is None or here.rank == 0


def is_first_of_host() -> bool:
    """Return whether this process is the first rank of its host."""
    from real.launch.rank_process import place_if_known

    here = place_if_known()
    return here is not None and here.local_rank == 0


_OVERRIDES = ("steps", "seed", "library", "profile", "timeout")


def _parser(prog: str) -> argparse.ArgumentParser:
    from real.launch.job import Check
    from scenarios.workloads.script.command import add_options
    from twinstep.options import add_emulate, add_full, add_outputs, add_overrides

    parser = argparse.ArgumentParser(
        prog=prog,
        description="Run a scenario or script on real processes: on this machine, or as one rank under torchrun or "
        "srun. Further commands: 'twinstep emulate' creates emulated hosts, 'twinstep calibrate' measures this machine "
        "and writes its profile, 'twinstep validate' compares predictions with measurements, 'twinstep regret' "
        "measures how good the choices of a study are, 'twinstep check-ranks' compares the results of real ranks with "
        "those of the simulator.",
    )
    parser.add_argument(
        "scenario",
        type=Path,
        nargs="?",
        help="scenario file, name of a ready scenario, or training script (.py) followed by its own arguments",
    )
    add_outputs(
        parser,
        "new run folder (default: runs/NAME-real-TIME)",
        json="print all tables as JSON",
        quiet="print only the run folder's path",
    )
    add_full(parser)
    add_overrides(parser.add_argument_group("overrides (default: the scenario's values)"), _OVERRIDES)
    parser.add_argument(
        "--check",
        choices=get_args(Check),
        default="first",
        help="when ranks compare their collective calls before data moves: always, in the first step (default), or"
        " never",
    )
    add_emulate(parser, "hosts as the scenario describes, for this run only")
    add_options(parser)
    parser.add_argument("--program", help=argparse.SUPPRESS)  # "module:function" of a scenario
    return parser


def _job(options: argparse.Namespace, of_script: Sequence[str] | None, *, is_first: bool) -> Job:
    """Return the job after all checks, before any process starts."""
    from real.launch.launcher import job_of
    from real.launch.placement import place
    from real.machine import cores, cpu_name
    from scenarios.config.warnings import notes_of_measuring
    from scenarios.progress_line import print_notes
    from scenarios.seam.errors import ScenarioError
    from twinstep.options import overrides_of, scenario_given

    scenario = scenario_given(options, overrides_of(options, _OVERRIDES), of_script)
    if options.emulate is not None and place() is not None:
        raise ScenarioError("--emulate: expected without torchrun or srun, as it starts the ranks itself")
    from real.supervise.recovery import find_left_behind
    from reports.store.run_folder import fresh_folder
    from reports.terminal.present import check_free

    out = options.out or fresh_folder(Path("runs"), f"{scenario.name}-real")
    if is_first:
        check_free(out)
        for spool in find_left_behind(out.parent):
            command = f"twinstep report recover {shlex.quote(str(spool))}"
            print_notes([f"{spool}: left by a run that was killed; '{command}' makes it a run"])
        if options.emulate is None:  # under --emulate they would not apply
            is_asked = place() is None and not (options.quiet or options.json)
            print_notes(notes_of_measuring(scenario, *((cores(), cpu_name()) if is_asked else ())))
    return job_of(scenario, out, program=options.program, check=options.check)


def _run(job: Job, options: argparse.Namespace) -> int:
    from real.emulate.cli import hosts_for
    from real.launch.launcher import launch

    _check_devices(job.scenario)
    if options.program is None:
        job.build()  # reports a plan that fits nowhere, once

    with hosts_for(job.scenario, options.emulate) as hosts:
        launch(job, hosts=hosts)
    _show(job.out, options)
    return 0


def _check_devices(scenario: Scenario) -> None:
    """Raise ScenarioError if this machine lacks devices for the ranks, before the program is built in seconds."""
    from real.libraries import library_of

    library_of(scenario.run.library).check_devices(scenario.cluster.world_size)


def _serve(job: Job, here: Place, options: argparse.Namespace) -> int:
    from real.launch.rank_process import serve

    out = serve(job, here)
    if out is not None:
        _show(out, options)
    return 0


def _show(folder: Path, options: argparse.Namespace) -> None:
    from reports.terminal.present import output, present

    with output():
        present(folder, options)


def leave(code: int) -> NoReturn:
    """Exit with a code; if this process was a rank, do not wait for its threads."""
    ranks = sys.modules.get("real.launch.rank_process")  # loaded only if there was a rank, or a mistake to report
    leaving: Callable[[int], NoReturn] = getattr(ranks, "leave", sys.exit)
    leaving(code)


def measured_run(scenario: Scenario) -> Run:
    """Run a scenario on processes of this machine; the run is in memory only.

    Raises:
        ScenarioError: this machine lacks devices for the ranks.
        ProgramError: the run ended early, such as by a lost rank; or this process is a rank of torchrun or srun.
    """
    from real.launch.launcher import RunEnded, job_of, launch
    from real.launch.placement import place
    from reports.store import run_folder
    from scenarios.owned_folder import scratch_folder
    from scenarios.seam.errors import ProgramError
    from scenarios.workloads.build import build

    if place() is not None:
        raise ProgramError("twinstep.measure: expected without torchrun or srun, as it starts the ranks itself")
    _check_devices(scenario)
    build(scenario)  # reports what does not fit the cluster before anything starts
    with scratch_folder() as folder:
        job = job_of(scenario, folder / "run")
        try:
            launch(job)
        except RunEnded as ended:
            error = KeyboardInterrupt if ended.code > 128 else ProgramError  # 128 + n is signal n
            raise error(str(ended)) from None
        return run_folder.load(job.out).in_memory()
