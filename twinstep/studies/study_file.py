"""Reads and checks study.toml: what is varied, from which scenario, and how the points are simulated."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from scenarios.config.catalogue import expected_scenario, scenario_file
from scenarios.config.overrides.keys import EXPECTED_KEY, path_of
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.reading import read_section
from scenarios.config.toml.section import Section, about
from scenarios.config.toml.tree import Tree, read_toml
from scenarios.config.toml.values import Count, CountOrZero, Duration, File, Positive, Text
from scenarios.seam.errors import ScenarioError
from twinstep.studies.conditions import EXPECTED_BOUNDS, Bounds, Condition, is_bounds, is_constraint
from twinstep.studies.conditions import mistakes_of as mistakes_of_condition
from twinstep.studies.goals import Goal
from twinstep.studies.ranges import is_range, values_of

Fidelity = Literal["estimate", "links", "flows"]
Sampler = Literal["tpe", "nsga2"]
Keep = Literal["rows", "runs", "spans"]
MOST_POINTS = 200_000
_TRIALS = 200

TOGETHER, ONLY_IF, VALUES, OR_UNSET = "together", "only_if", "values", "or_unset"


class _Stage(Section):
    """A stage: how its points are played, and how many of them go on to the next one."""

    fidelity: Fidelity | None = about("'estimate' (of the planner), 'links' or 'flows'.")
    keep: Positive | None = about(
        "Best points that enter the next stage: a share below 1, or a number. Not in the last stage."
    )


class _Search(Section):
    """The settings of a study's search for its best points."""

    trials: Count | None = about("Maximal number of points besides the baseline. Default 200.")
    seed: CountOrZero | None = about("Seed of the sampler. Default 0.")
    sampler: Sampler | None = about(
        "'tpe' or 'nsga2'. Default 'nsga2' for several goals with over 500 trials, else 'tpe'."
    )
    enumerate_below: CountOrZero | None = about(
        "Without `trials`, all points are simulated if there are fewer than this. Default 5000."
    )


class _StudyFile(Section):
    """A study: points that differ from a scenario in what `vary` says."""

    scenario: File | None = about("Path of a scenario, relative to this file, or name of a ready scenario. Required.")
    description: Text | None = about("Purpose of the study.")
    goals: Annotated[list[Goal], Field(min_length=1)] | None = about(
        "Measures that rank points, the most important first. Default ['samples_per_s']."
    )
    baseline: bool | None = about("Whether the unchanged scenario is simulated too. Default true.")
    timeout: Duration | None = about("Time limit of one point, such as '60 s'. Default: none.")
    draws: CountOrZero | None = about(
        "Randomized runs of each point besides the mean one; the point's step time is the median of all. Default 0."
    )
    keep: Keep | None = about(
        "'rows': no run folders; 'runs': run folders without spans; 'spans': complete run folders. Default 'runs'."
    )
    set: dict[str, Any] | None = about("Values of all points, by key.")
    vary: dict[str, Any] | None = about("Values that differ between points: arrays or ranges, by key. Required.")
    skip: list[dict[str, Any]] | None = about("Conditions; points for which one of them holds are left out.")
    constraints: dict[str, Any] | None = about("Bounds of measures that the best points must keep.")
    search: _Search | None = about("Options of `search`.")
    stages: Annotated[list[_Stage], Field(min_length=1)] | None = about("Fidelities, the cheapest first.")
    slurm: dict[str, Any] | None = about("Options of dask_jobqueue.SLURMCluster, whose Slurm jobs are the workers.")


@dataclass(frozen=True, slots=True)
class StudyAxis:
    """A set of keys that are varied together: one value for each in each of its `rows`; unset unless `only_if` holds.

    None leaves a key as it is in the scenario.
    """

    keys: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    only_if: Condition | None = None


@dataclass(frozen=True, slots=True)
class StudyStage:
    """A stage of fidelity `fidelity` ("": the scenario's own), after which `keep` points go on: a share below 1 or a
    count.
    """

    fidelity: str = ""
    keep: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """A search's limits: most points, seed, sampler, and the size of a space below which all points are simulated.

    `trials` bounds every search; None: `enumerate_below` decides, and `most_trials` bounds larger spaces.
    """

    trials: int | None = None
    seed: int = 0
    sampler: Sampler | None = None
    enumerate_below: int = 5_000

    @property
    def most_trials(self) -> int:
        """Largest number of points that a search simulates."""
        return _TRIALS if self.trials is None else self.trials

    def plays_all(self, size: int) -> bool:
        """Return whether all points of a space of this size are simulated."""
        return size <= self.most_trials or (self.trials is None and size < self.enumerate_below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study, from a file or from a command; a command's `file` is Path(), and its values are the command's."""

    file: Path
    scenario: str
    axes: tuple[StudyAxis, ...]
    skip: tuple[Condition, ...] = ()
    shared: Mapping[str, object] = field(default_factory=dict)
    goals: tuple[Goal, ...] = ("samples_per_s",)
    has_baseline: bool = True
    timeout_s: float = math.inf
    draws: int = 0
    keep: Keep = "runs"
    constraints: Mapping[str, Bounds] = field(default_factory=dict)
    search: SearchSettings = SearchSettings()
    stages: tuple[StudyStage, ...] = (StudyStage(),)
    slurm: Mapping[str, Any] | None = None

    @property
    def overrides_file(self) -> str:
        """The file of its values; "" if they are a command's."""
        return str(self.file) if self.file.name else ""

    @property
    def goal(self) -> Goal:
        """The goal that decides the best point."""
        return self.goals[0]

    @property
    def keys(self) -> tuple[str, ...]:
        """The varied keys, in the order of the file."""
        return tuple(key for axis in self.axes for key in axis.keys)

    @property
    def size(self) -> int:
        """The number of combinations of values, skipped ones included."""
        return math.prod(len(axis.rows) for axis in self.axes)

    def skips(self, values: Mapping[str, object]) -> bool:
        """Return whether a point with these values is left out."""
        return any(condition.holds(values) for condition in self.skip)

    def values_of(self, key: str) -> list[object]:
        """Return all values that the study gives a key."""
        return _values_of(self.axes, key)


def read_study(path: str | os.PathLike[str], *, most_points: float = MOST_POINTS) -> Study:
    """Read and check a study file of at most `most_points` combinations.

    Raises:
        ScenarioError: with a sentence for each mistake in the file; the scenario's mistakes show when it is loaded.
    """
    file = os.fspath(path)
    try:
        values = read_toml(file)
    except ValueError as error:
        raise ScenarioError(str(error).replace("expected a scenario in TOML", "expected a study in TOML")) from None
    mistakes = Mistakes(Tree(root=file))
    mistakes.tree.lay_under(values, file)
    read = read_section(mistakes, _StudyFile)
    axes = _axes(mistakes, read.vary)
    conditions = _conditions(mistakes, read.skip or [], axes)
    shared = {key: value for _, key, value in _flat(read.set or {}, ("set",))}
    for path_, key, _ in _flat(read.set or {}, ("set",)):
        if path_of(key) is None:
            mistakes.add(path_, f"values by {EXPECTED_KEY}")
    constraints, stages = _constraints(mistakes, read.constraints or {}), _stages(mistakes, read)
    mistakes.missing(("scenario",), "a scenario's path or a ready one's name")
    scenario = _scenario(mistakes, read, file)
    if (count := math.prod(len(axis.rows) for axis in axes)) > most_points:
        mistakes.say(f"{file}: vary makes {count:,} points: expected at most {most_points:,}")
    mistakes.raise_any()
    return Study(
        file=Path(file),
        scenario=scenario,
        axes=tuple(axes),
        skip=conditions,
        shared=shared,
        goals=tuple(dict.fromkeys(read.goals or ["samples_per_s"])),
        has_baseline=read.baseline is not False,
        timeout_s=math.inf if read.timeout is None else read.timeout / 1e9,
        draws=read.draws or 0,
        keep=read.keep or "runs",
        constraints=constraints,
        search=SearchSettings(**{} if read.search is None else read.search.model_dump(exclude_none=True)),
        stages=stages,
        slurm=read.slurm,
    )


def _scenario(mistakes: Mistakes, read: _StudyFile, file: str) -> str:
    if read.scenario is None:
        return ""
    beside = os.path.normpath(os.path.join(os.path.dirname(file), read.scenario))
    skips = beside if os.path.exists(beside) else scenario_file(read.scenario)
    if not os.path.exists(skips):
        mistakes.add(("scenario",), f"{beside} to be there, {expected_scenario(read.scenario)}")
    return skips


_Path = tuple[str | int, ...]


def _flat(table: Mapping[str, Any], above: _Path) -> Iterator[tuple[_Path, str, Any]]:
    """Yield each key that has a value, with its place in the file: `cluster.hosts` may stand in a table `cluster`."""
    for name, value in table.items():
        if isinstance(value, dict) and value and not is_range(value) and VALUES not in value:
            for path, key, inner in _flat(value, (*above, name)):
                yield path, f"{name}.{key}", inner
        else:
            yield (*above, name), name, value


def _axes(mistakes: Mistakes, vary: dict[str, Any] | None) -> list[StudyAxis]:
    if vary is None:
        mistakes.missing(("vary",), "a table of keys with their values")
        return []
    plain = {name: value for name, value in vary.items() if name != TOGETHER}
    axes = [axis for path, key, value in _flat(plain, ("vary",)) for axis in _axis(mistakes, path, key, value)]
    together = vary.get(TOGETHER, [])
    if not isinstance(together, list) or not all(isinstance(one, dict) and one for one in together):
        mistakes.add(("vary", TOGETHER), "tables [[vary.together]] of keys with arrays of the same length")
        return axes
    for at, table in enumerate(together):
        axes += _zip_axes(mistakes, ("vary", TOGETHER, at), table)
    _check_keys(mistakes, axes)
    return axes


def _axis(mistakes: Mistakes, path: _Path, key: str, value: Any) -> Iterator[StudyAxis]:
    """Yield the axis of a single key: its values, or `{values = ..., or_unset = true, only_if = {...}}`."""
    only_if, or_unset = None, False
    if path_of(key) is None:
        mistakes.add(path, f"values of {EXPECTED_KEY}")
        return
    if isinstance(value, dict) and VALUES in value:
        condition = value.get(ONLY_IF, {})
        or_unset = value.get(OR_UNSET, False)
        if not value.keys() <= {VALUES, ONLY_IF, OR_UNSET} or not isinstance(condition, dict) or or_unset not in (0, 1):
            mistakes.add(path, "a table of values, or_unset (true or false), and only_if, a condition on other keys")
            return
        only_if = Condition({name: one for _, name, one in _keys_of_condition(condition)}) if condition else None
        value, path = value[VALUES], (*path, VALUES)
    try:
        yield StudyAxis((key,), tuple((one,) for one in (*values_of(value), *[None] * or_unset)), only_if)
    except ValueError as error:
        mistakes.add(path, str(error))


def _zip_axes(mistakes: Mistakes, path: _Path, table: dict[str, Any]) -> Iterator[StudyAxis]:
    columns = []
    for place, key, value in _flat(table, path):
        columns += list(_axis(mistakes, place, key, value))
    if any(len(axis.rows) != len(columns[0].rows) for axis in columns):
        mistakes.add(path, "keys with the same number of values, as they are varied together")
    elif columns:
        rows = zip(*(axis.rows for axis in columns), strict=True)
        yield StudyAxis(tuple(axis.keys[0] for axis in columns), tuple(tuple(one for (one,) in row) for row in rows))


def _check_keys(mistakes: Mistakes, axes: list[StudyAxis]) -> None:
    keys = [key for axis in axes for key in axis.keys]
    for key in {key for key in keys if keys.count(key) > 1}:
        mistakes.say(f"{mistakes.tree.root}: vary: {key}: expected once")
    for axis in axes:
        if axis.only_if is None:
            continue
        place = f"{mistakes.tree.root}: vary.{axis.keys[0]}.only_if"
        for key in axis.only_if.keys:
            if key not in keys or key in axis.keys:
                mistakes.say(f"{place}: {key}: expected another varied key")
        for key, expected in mistakes_of_condition(axis.only_if.keys, partial(_values_of, axes)):
            mistakes.say(f"{place}: {key}: expected {expected}")
    if not keys:
        mistakes.say(f"{mistakes.tree.root}: vary: expected keys with their values")


def _keys_of_condition(condition: Mapping[str, Any], above: _Path = ()) -> Iterator[tuple[_Path, str, Any]]:
    """Yield the keys of a condition, also in nested tables; bounds are tables, too."""
    for name, value in condition.items():
        if isinstance(value, dict) and value and not is_bounds(value):
            inner = list(_keys_of_condition(value, (*above, name)))
            yield from ((path, f"{name}.{key}", one) for path, key, one in inner)
        else:
            yield (*above, name), name, value


def _values_of(axes: Sequence[StudyAxis], key: str) -> list[object]:
    return [row[axis.keys.index(key)] for axis in axes if key in axis.keys for row in axis.rows]


def _conditions(mistakes: Mistakes, skip: list[dict[str, Any]], axes: Sequence[StudyAxis]) -> tuple[Condition, ...]:
    keys = {key for axis in axes for key in axis.keys}
    skips = []
    for at, table in enumerate(skip):
        condition = {key: value for _, key, value in _keys_of_condition(table)}
        for key in condition:
            if key not in keys:
                known = ", ".join(sorted(keys))
                mistakes.say(f"{mistakes.tree.root}: skip[{at}]: {key}: expected a varied key: one of {known}")
        for key, expected in mistakes_of_condition(condition, partial(_values_of, axes)):
            mistakes.say(f"{mistakes.tree.root}: skip[{at}]: {key}: expected {expected}")
        if not condition:
            mistakes.say(f"{mistakes.tree.root}: skip[{at}]: expected varied keys with values")
        skips.append(Condition(condition))
    return tuple(skips)


def _constraints(mistakes: Mistakes, constraints: dict[str, Any]) -> dict[str, Bounds]:
    for column, bounds in constraints.items():
        if not is_constraint(bounds):
            mistakes.add(("constraints", column), EXPECTED_BOUNDS)
    return constraints


def _stages(mistakes: Mistakes, read: _StudyFile) -> tuple[StudyStage, ...]:
    if read.stages is None:
        return (StudyStage(),)
    last = len(read.stages) - 1
    for at, stage in enumerate(read.stages):
        if stage.fidelity is None:
            mistakes.missing(("stages", at, "fidelity"), "'estimate', 'links' or 'flows'")
        if at == last and stage.keep is not None:
            mistakes.add(("stages", at, "keep"), "no keep in the last stage")
        if at < last and stage.keep is None:
            mistakes.missing(("stages", at, "keep"), "a share below 1, or a number of points")
        if stage.keep is not None and stage.keep > 1 and stage.keep != int(stage.keep):
            mistakes.add(("stages", at, "keep"), "a share below 1, or a whole number of points")
    if len({stage.fidelity for stage in read.stages}) < len(read.stages):
        mistakes.add(("stages",), "each fidelity once")
    return tuple(StudyStage(stage.fidelity or "", stage.keep or math.inf) for stage in read.stages)
