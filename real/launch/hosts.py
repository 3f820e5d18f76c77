"""Chooses the hosts of a run from --emulate: this machine, or emulated hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from real.emulate.cli import say, those_of, warnings
from real.emulate.cluster import emulated, sweep
from real.emulate.fabric import fabric_of
from real.launch.launcher import Hosts, ThisMachine
from scenarios.config.scenario import Scenario


@contextmanager
def hosts_for(scenario: Scenario, name: str | None, tell: Callable[[Iterable[str]], None] = say) -> Iterator[Hosts]:
    """Hosts for a run. `name` is --emulate's: None if not given, "" if given without one; `tell` gets warnings.

    Raises:
        ScenarioError: the scenario's hosts cannot be emulated, or there are none of that name.
    """
    if name is None:
        yield ThisMachine()
        return
    fabric = fabric_of(scenario)
    tell(sweep())
    if name:
        yield those_of(name, fabric)
        return
    tell(warnings(fabric))
    with emulated(fabric) as hosts:
        yield hosts
