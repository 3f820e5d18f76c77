"""Command `python -m real check`: compares real ranks with the simulator and the oracles, on drawn cases."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from real.check.cases.case import Case
from real.check.falsify import DEFAULT_LIBRARY
from real.check.program import Options, PropertyOutcome, Simulate, outcomes, scenario_of
from real.check.strategies import CASES, PROPERTIES
from real.launch.job import Job
from real.launch.launcher import RunEnded, job_of, launch
from real.launch.placement import Place, check_world_size, local_world_size, place
from real.launch.worker import RankWorker
from scenarios.config.interconnect import LIBRARIES
from scenarios.config.scenario import Scenario
from scenarios.config.units import parse_time
from scenarios.progress_line import ProgressLine
from scenarios.seam.errors import ScenarioError
from scenarios.versions import versions

_SUCH_AS = "expected such as 'AllGatherCase(hosts=1, gpus=2, numel=3)'"


def check(words: Sequence[str], simulate: Simulate, prog: str) -> int:
    """Run drawn cases on real ranks and with `simulate`; return 0 if all results are identical, else 1.

    Raises:
        ScenarioError: an option is wrong, or the number of ranks is not the cases'.
        RunEnded: the ranks started here did not finish.
    """
    arguments, here = _parser(prog).parse_args(words), place()
    cases = tuple(map(_case, arguments.case))
    scenario = _scenario(arguments, here, cases)
    if here is not None:
        check_world_size(scenario, here)
    is_first = here is None or here.rank == 0
    # Only the first rank writes outcomes; the other ranks' jobs need some path.
    out = Path(tempfile.mkdtemp(prefix="twinstep-check-") if is_first else tempfile.gettempdir())
    options = Options(
        properties=tuple(arguments.property or PROPERTIES),
        plays=arguments.plays,
        seed=arguments.seed,
        cases=cases,
        start=_start(scenario, here),
    )
    job = job_of(
        scenario,
        out,
        program="real.check.program:CheckProgram",
        arguments=(options, simulate, out),
        writer="real.check.program:tell_playing",
        check="always",
        records=False,
    )
    _run(job, here, 0 if cases else len(options.properties) * options.plays)
    if not is_first:
        return 0
    results = outcomes(out)
    shutil.rmtree(out)
    text_of = _as_json if arguments.json else _as_text
    print(text_of(results, scenario, "" if cases else f", seed {arguments.seed}", here))
    return 1 if any(one.failure for one in results) else 0


def _run(job: Job, here: Place | None, plays: int) -> None:
    if here is not None:
        RankWorker(job, here).serve()
        return
    try:
        with ProgressLine(quiet=False, ticks=True) as bar:
            launch(job, heard=lambda play: bar.show("plays", play, plays or None))
    except RunEnded as ended:
        raise RunEnded(f"{ended}; the ranks' logs lie in {job.out}", ended.code) from ended


def _scenario(arguments: argparse.Namespace, here: Place | None, cases: Sequence[Case]) -> Scenario:
    """Return a scenario with the requested number of ranks, or the first case's, or the number that was started."""
    gpus = arguments.gpus_per_host or (cases[0].gpus if cases else None)
    hosts = arguments.hosts or (cases[0].hosts if cases else None)
    if here is not None:
        gpus = gpus or local_world_size(here)
        hosts = hosts or -(-here.world_size // gpus)
    elif LIBRARIES[arguments.library].device == "cuda":
        gpus, hosts = gpus or _devices(), hosts or 1
    other = next((case for case in cases if (case.hosts, case.gpus) != (hosts, gpus)), None)
    if other is not None:
        raise ScenarioError(f"--case {other!r}: expected {hosts} hosts of {gpus} GPUs, as of the others")
    try:
        timeout_s = parse_time(arguments.timeout) / 1e9
    except ValueError as error:
        raise ScenarioError(f"--timeout = '{arguments.timeout}': expected a time such as '30 s'") from error
    scenario = scenario_of(hosts or 2, gpus or 2, timeout_s=timeout_s)
    return dataclasses.replace(
        scenario.with_run(library=arguments.library, seed=arguments.seed), path=Path("python -m real check")
    )


def _devices() -> int:
    if not torch.cuda.device_count():
        raise ScenarioError("--library nccl: expected CUDA devices, this machine has none; gloo needs none")
    return torch.cuda.device_count()


def _case(text: str) -> Case:
    """Build a case from its repr, as a failing check prints it."""
    try:
        # Without builtins: a case is a call of known classes, and nothing else.
        case = eval(text, {"__builtins__": {}, **CASES})
    except Exception as error:
        raise ScenarioError(f"--case {text!r}: {error}; {_SUCH_AS}") from error
    if not isinstance(case, Case):
        raise ScenarioError(f"--case {text!r}: {_SUCH_AS}")
    return case


def _start(scenario: Scenario, here: Place | None) -> str:
    """Return the command line that starts as many ranks again, up to the word "check".

    It lacks torchrun's rendezvous options (such as `--rdzv-endpoint`).
    """
    hosts, gpus = scenario.cluster.hosts, scenario.cluster.host.gpus
    if here is None:
        return "python -m real"
    if here.by == "srun":
        return f"srun --nodes {hosts} --ntasks-per-node {gpus} python -m real"
    return f"torchrun --nnodes {hosts} --nproc-per-node {gpus} -m real"


def _as_text(results: Sequence[PropertyOutcome], scenario: Scenario, seed: str, here: Place | None) -> str:
    lines = [line for one in results for line in one.tensors]
    lines += [
        f"{one.name:<15} {one.plays:>6,} plays {one.cases:>8,} cases  {'DIFFERENT' if one.failure else 'identical'}"
        for one in results
    ]
    lines += [f"\n{one.name}:\n{one.failure}\n" for one in results if one.failure and not one.tensors]
    hosts, gpus = scenario.cluster.hosts, scenario.cluster.host.gpus
    where = f"{hosts * gpus} ranks ({hosts} hosts of {gpus}), started by {here.by if here else 'this command'}"
    with_what = f"{scenario.run.library}, torch {versions()['torch']}{seed}"
    failing = sum(one.failure is not None for one in results)
    verdict = (
        f"{failing} of {len(results)} checks DIFFER" if failing else "all identical to the simulator and the oracles"
    )
    return "\n".join([*lines, f"{where}, {with_what}: {verdict}"])


def _as_json(results: Sequence[PropertyOutcome], scenario: Scenario, seed: str, here: Place | None) -> str:
    return json.dumps(
        {
            "hosts": scenario.cluster.hosts,
            "gpus_per_host": scenario.cluster.host.gpus,
            "started_by": here.by if here else "this command",
            "library": scenario.run.library,
            "versions": dict(versions()),
            "seed": scenario.run.seed,
            "checks": [dataclasses.asdict(one) for one in results],
        }
    )


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Run random cases in the simulator and on real ranks, and compare every tensor, bit by bit, with"
        " the result of one process. Starts ranks on this machine, or is one rank under torchrun or srun.",
    )
    parser.add_argument(
        "--hosts",
        type=_positive,
        metavar="N",
        help="number of hosts (default: as torchrun or srun started; else 2, with nccl 1)",
    )
    parser.add_argument(
        "--gpus-per-host",
        type=_positive,
        metavar="N",
        help="ranks per host (default: as torchrun or srun started; else 2, with nccl one per GPU)",
    )
    parser.add_argument(
        "--library",
        choices=LIBRARIES,
        default=DEFAULT_LIBRARY,
        help=f"gloo: on CPUs; nccl: on this machine's GPUs (default: {DEFAULT_LIBRARY})",
    )
    parser.add_argument(
        "--plays", type=_positive, default=24, metavar="N", help="random runs of each property (default: 24)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random cases (default: 0)")
    parser.add_argument(
        "--property",
        action="append",
        choices=sorted(PROPERTIES),
        metavar="NAME",
        help=f"check only this property (default: all): {', '.join(sorted(PROPERTIES))}. Can be repeated.",
    )
    parser.add_argument(
        "--case",
        nargs="+",
        default=[],
        metavar="CASE",
        help="check only these cases, as a failing check prints them",
    )
    parser.add_argument(
        "--timeout", default="60 s", metavar="TIME", help="give up after this time without progress (default: 60 s)"
    )
    parser.add_argument("--json", action="store_true", help="print all results as JSON")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value
