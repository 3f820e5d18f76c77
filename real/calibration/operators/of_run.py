"""Finds the run whose operators are measured (`--of`), and the order of its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ScenarioError
from scenarios.seam.operations.as_json import operations_of
from scenarios.seam.operations.operation import Operation
from scenarios.seam.trace import OperatorRow
from scenarios.workloads.recording.file import NAME as RECORDING
from scenarios.workloads.script.command import load_given

_FILE = "operators.parquet"


def scenario_of(given: Path, args: Sequence[str] | None, profile: str, hosts: int | None, gpus: int | None) -> Scenario:
    """Return the scenario that `--of` names, on the profile.

    Args:
        given: a scenario's file or name, a script, or its recording.
        args: arguments of a script.
        profile: whose GPUs it runs on.
        hosts: number of hosts, for a script only; one unless given.
        gpus: ranks of a host, for a script only; one unless given.

    Raises:
        ScenarioError: `given` is none of these, or contains a mistake.
    """
    overrides = {"profile": profile}
    if given.suffix == ".py":
        return load_given(given, overrides, args=args or (), hosts=hosts or 1, gpus_per_host=gpus or 1)
    refuse_world(given, hosts, gpus)
    return load_given(given.parent if given.name == RECORDING else given, overrides)


def refuse_world(given: Path, hosts: int | None, gpus: int | None) -> None:
    """Refuse hosts and GPUs unless a script is given.

    Raises:
        ScenarioError: hosts or GPUs are given.
    """
    for name, value in (("hosts", hosts), ("ranks-per-host", gpus)):
        if value is not None:
            raise ScenarioError(f"--{name} = {value}: expected with --of a script; {given} says it itself")


def by_share(
    given: Path, rows: Iterable[OperatorRow], predicted_s: Callable[[Operation], float]
) -> list[tuple[Operation, int]]:
    """Return a run's operators by their share of time, greatest first, each with its number of calls.

    Raises:
        ScenarioError: the run has no operators, or a row is damaged.
    """
    try:
        counted = [(each, row.calls) for row in rows for each in operations_of(row.operations)]
    except (KeyError, TypeError, ValueError) as error:
        raise ScenarioError(f"--of = '{given}': expected descriptions of operators: {error}") from None
    if not counted:
        is_older = given.is_dir() and not (given / _FILE).is_file()
        what = f"has no {_FILE}, as an earlier release wrote it" if is_older else "describes no operators with a law"
        raise ScenarioError(
            f"--of = '{given}': {what}; expected a run on GPUs that this release predicted, a recording, a scenario or"
            " a script"
        )
    return sorted(counted, key=lambda one: -one[1] * predicted_s(one[0]))
