"""A hallway: a scenario file in, a predicted run out: loaded, simulated, stored, shown."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. 0: done; 1: the program went wrong; 2: the user's mistake; 130: interrupted."""
    try:
        options = _parser().parse_args(arguments)
        from reports.errors import ReportError
        from scenarios.errors import ProgramError

        try:
            return _predict(options)
        except (ProgramError, ReportError) as error:
            print(error, file=sys.stderr)
            return 1 if isinstance(error, ProgramError) else 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sim", description="Predict how long a scenario's steps take.")
    parser.add_argument("scenario", type=Path, help="a scenario file (docs/scenario.md)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run folder; default: a new one in runs/")
    parser.add_argument("--json", action="store_true", help="print all tables as JSON")
    parser.add_argument(
        "--draws", type=int, default=0, metavar="N", help="also say how steps spread over N runs that vary as real ones"
    )
    parser.add_argument("--quiet", action="store_true", help="print the run folder's path only")
    overrides = parser.add_argument_group("in place of what the scenario says")
    overrides.add_argument("--steps", type=int)
    overrides.add_argument("--seed", type=int)
    overrides.add_argument("--batch-size", type=int, help="samples a rank")
    overrides.add_argument("--library", help="gloo or nccl")
    overrides.add_argument("--payload", help="values or sizes")
    overrides.add_argument("--fidelity", help="flows or links")
    return parser


_OVERRIDES = ("steps", "seed", "batch_size", "library", "payload", "fidelity")


def _predict(options: argparse.Namespace) -> int:
    from scenarios.errors import ScenarioError
    from scenarios.load import load, report_mistakes
    from scenarios.notes import print_notes

    given = {name: getattr(options, name) for name in _OVERRIDES if getattr(options, name) is not None}
    with report_mistakes():
        if options.draws < 0:
            raise ScenarioError(f"--draws = {options.draws}: expected at least 0")
        scenario = load(options.scenario, given)
        # Only now, so that a bad file is reported at once: these load torch.
        from scenarios.programs import build
        from sim.draws import draws

        program = build(scenario)
    from reports import store
    from reports.plays import Play, Plays
    from reports.present import output, present
    from reports.run import Run

    folder = options.out or store.fresh_folder("runs", f"{scenario.name}-sim")
    store.check_free(folder)  # now, not when all is done
    print_notes(scenario)
    recordings = draws(scenario, program, options.draws)
    recording = next(recordings)
    store.write(recording, folder)
    run = Run.of(recording)
    spread = Plays([Play.of(one) for one in (run, *map(Run.of, recordings))]) if options.draws else None
    with output():
        present(folder, as_json=options.json, quiet=options.quiet, run=run, spread=spread)
    return 0


if __name__ == "__main__":
    sys.exit(main())
