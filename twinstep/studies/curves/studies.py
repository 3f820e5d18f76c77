"""Builds the studies of a scenario's curves: over hosts, over figures of its hardware, over the batch of a rank."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scenarios.config.catalogue import expected_scenario, scenario_file
from scenarios.config.overrides.keys import path_of
from scenarios.config.scenario import Scenario
from scenarios.config.toml.mistakes import toml_text
from scenarios.config.toml.tree import Tree
from scenarios.seam.errors import ScenarioError
from scenarios.workloads.script.command import is_script, load_given, tree_given
from twinstep.studies.curves.parameters import Parameter
from twinstep.studies.kept_plan import kept_plan
from twinstep.studies.study_file import Study, StudyAxis

HOSTS, BATCH = "cluster.hosts", "run.batch_size"
MOST_HOSTS = 16
# Batches run from the scenario's over the first to the scenario's times the second.
_LESS, _MORE = 16, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvesStart:
    """A scenario from which curves start; `batch` is a rank's, under the key `batch_key`, or None without one."""

    scenario: Scenario
    tree: Tree
    file: str
    given: Mapping[str, object]
    batch_key: str
    batch: int | None

    @property
    def without_batch(self) -> str:
        """The reason why curves over batches are left out; "" where there is a batch."""
        if self.batch is not None:
            return ""
        program = self.scenario.program
        return f"{self.file}: program = '{program}' has no run.batch_size; expected --batch-key with the key of its own"

    @property
    def plans(self) -> bool:
        """True if a planner places the tables anew for each point."""
        return bool(self.scenario.workload.plans) and self.scenario.workload.plan_file is None

    def study(self, keys: Sequence[str], rows: Iterable[Sequence[object]], *, has_baseline: bool = False) -> Study:
        """Return a study of this scenario with a point for each row; None leaves a key as it is."""
        axis = StudyAxis(tuple(keys), tuple(map(tuple, rows)))
        return Study(
            file=Path(),
            scenario=os.path.abspath(self.file),
            axes=(axis,),
            shared=self.given,
            has_baseline=has_baseline,
            keep="rows",
        )


def start(path: str | os.PathLike[str], given: Mapping[str, object], batch_key: str = BATCH) -> CurvesStart:
    """Load the scenario from which curves start.

    Raises:
        ScenarioError: the scenario has mistakes, or `batch_key` has no whole number.
    """
    file = scenario_file(path)
    if not os.path.isfile(file) and not is_script(Path(file)):
        raise ScenarioError(f"{file}: no such file; expected {expected_scenario(file)}")
    scenario = load_given(Path(file), given)
    tree = tree_given(Path(file), given, scenario)
    try:
        batch = tree.at(path_of(batch_key) or ())
    except (LookupError, TypeError):
        batch = None
    if batch_key != BATCH and (not isinstance(batch, int) or batch < 1):
        raise ScenarioError(f"--batch-key {batch_key} = {toml_text(batch)}: expected a key with a whole number above 0")
    return CurvesStart(
        scenario=scenario,
        tree=tree,
        file=file,
        given=given,
        batch_key=batch_key,
        batch=batch if isinstance(batch, int) else None,
    )


def scaling(of: CurvesStart, most_hosts: int) -> tuple[Study, list[int]]:
    """Return weak scaling followed by strong scaling, and the hosts by which the whole batch is not divisible.

    Rows without a batch are those of weak scaling. Hosts are 1, 2, 4 ... and the scenario's own number.
    """
    own = of.scenario.cluster.hosts
    hosts = sorted({own} | {2**power for power in range(most_hosts.bit_length()) if 2**power <= most_hosts})
    rows: list[tuple[object, object]] = [(count, None) for count in hosts]
    if of.batch is None:
        return of.study([HOSTS, of.batch_key], rows), []
    whole = of.batch * own
    divided = [count for count in hosts if whole % count == 0]
    rows += [(count, whole // count) for count in divided]
    return of.study([HOSTS, of.batch_key], rows), [count for count in hosts if count not in divided]


def sensitivity(of: CurvesStart, parameters: Sequence[Parameter], folder: Path) -> Study:
    """Return a study of each parameter increased, then decreased, with the current plan of tables, written into the
    folder.
    """
    keys = [one.key for one in parameters]
    rows = [
        [value if place == at else None for place in range(len(keys))]
        for at, one in enumerate(parameters)
        for value in (one.more, one.less)
    ]
    # Without a fixed plan the planner would react to each changed figure.
    pinned = replace(of, given={**of.given, **kept_plan(of.scenario, folder.resolve())})
    return pinned.study(keys, rows, has_baseline=True)


def overlap(of: CurvesStart, batches: Iterable[int]) -> Study:
    """Return a study of batches of a rank."""
    return of.study([of.batch_key], [[batch] for batch in batches])


def batches_around(batch: int) -> list[int]:
    """Return the batch times powers of two, whole numbers only."""
    larger = {batch * 2**power for power in range(_MORE.bit_length())}
    return sorted(larger | {batch >> power for power in range(_LESS.bit_length()) if batch % 2**power == 0})
