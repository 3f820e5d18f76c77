"""A source of points that Optuna proposes, one as each worker becomes free, and whose results it learns.

Optuna's trials are kept in a journal in the study's folder, so that the same command continues a search.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import Trial, TrialState

from scenarios.seam.errors import ScenarioError
from twinstep.studies.conditions import same, violations
from twinstep.studies.goals import rating
from twinstep.studies.points import BASELINE, Point, combine_axes, resolve, text_of
from twinstep.studies.ranges import number_of
from twinstep.studies.study_file import Study, StudyAxis

JOURNAL = "search.journal"
Row = Mapping[str, Any]
Params = Mapping[str, int]

# Optuna accepts no nan, and computes no distances to an infinite goal.
_UNKNOWN = 1e30
# After this many repeated points in a row one is drawn at random.
_REPEATS = 20
_DRAWS = 1_000
# TPE's time for each point grows with the number of results with several goals, NSGA-II's does not.
_MOST_OF_TPE = 500
# NSGA-II with 80 to 120 trials found more of known fronts in 10 to 15 generations than in 5 or 8.
_LEAST_POPULATION, _MOST_POPULATION, _GENERATIONS = 8, 50, 15


@dataclass(slots=True)
class _Seen:
    """A point that Optuna has proposed, its row when it has one, and the trials that wait for the row."""

    point: Point | None  # None: the study skips the point
    trials: list[Trial] = field(default_factory=list)
    row: Row | None = None


class OptunaSource:
    """A source of points: those of earlier commands, then new ones, up to the limit."""

    def __init__(self, study: Study, folder: Path, version: str, proposals: Iterable[Mapping[str, object]]) -> None:
        self._study, self._space = study, Space(study)
        self._seen: dict[str, _Seen] = {}
        self._by_index: dict[int, _Seen] = {}
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna.create_study(
            study_name=_name(study, version),
            storage=JournalStorage(_StudyJournal(folder / JOURNAL)),
            directions=["minimize"] * len(study.goals),
            load_if_exists=True,
        )
        earlier = self._optuna.get_trials(deepcopy=False)
        # Seeded by the number of trials too: a sampler that starts anew would repeat its first draws.
        self._draw = random.Random(f"{study.search.seed} {len(earlier)}")
        self._optuna.sampler = _sampler(study, self._draw.getrandbits(32))
        for values in proposals:
            self._optuna.enqueue_trial(self._space.params(values), skip_if_exists=True)

    @property
    def total(self) -> int:
        """The number of points of the search, with the baseline."""
        return self._study.search.most_trials + self._study.has_baseline

    def points(self) -> Iterator[Point]:
        """Yield the baseline, earlier commands' points, then the sampler's points, chosen by the results so far."""
        if self._study.has_baseline:
            yield Point(BASELINE, {})
        yield from self._earlier()
        repeats = 0
        while len(self._by_index) < self._study.search.most_trials:
            trial = self._optuna.ask(self._space.distributions)
            seen, is_new = self._look_up(trial.params)
            seen.trials.append(trial)
            if is_new and seen.point is not None:
                repeats = 0
                yield seen.point
                continue
            # Repeated points cost no worker, but their trials must end, or the sampler would propose them for ever.
            repeats += 1
            if seen.point is None or seen.row is not None:
                self._tell(seen)
            # Near the end of a search the sampler proposes little but known points: leave their neighbourhood.
            if repeats >= _REPEATS:
                other = self._draw_unseen()
                if other is None:
                    return
                self._optuna.enqueue_trial(other)

    def take_result(self, row: Row) -> None:
        """Report a point's result to Optuna."""
        if (seen := self._by_index.get(row["index"])) is not None:
            seen.row = row
            self._tell(seen)

    def _earlier(self) -> Iterator[Point]:
        """Yield points of earlier commands in order, so that each point keeps its number."""
        for trial in self._optuna.get_trials(deepcopy=False):
            if len(trial.params) < len(self._space.distributions):  # enqueued, or interrupted while it was drawn
                if trial.state == TrialState.RUNNING:
                    self._optuna.tell(trial.number, state=TrialState.FAIL)
                continue
            seen, is_new = self._look_up(trial.params)
            if trial.state == TrialState.RUNNING:  # its command was interrupted
                self._optuna.tell(trial.number, state=TrialState.FAIL)
                self._optuna.enqueue_trial(trial.params)
            if is_new and seen.point is not None:
                yield seen.point

    def _look_up(self, params: Params) -> tuple[_Seen, bool]:
        """Return the point of these parameters, and whether it is new."""
        values = self._space.values(params)
        text = text_of(values)
        if text in self._seen:
            return self._seen[text], False
        if self._study.skips(values):
            seen = _Seen(None)
        else:
            seen = _Seen(Point(len(self._by_index) + 1, values))
            self._by_index[len(self._by_index) + 1] = seen
        self._seen[text] = seen
        return seen, True

    def _tell(self, seen: _Seen) -> None:
        """Report a point's trials, also repeated ones, which keep a good point among a generation's parents."""
        for trial in seen.trials:
            for name, violation in self._violations(seen.row).items():
                trial.set_constraint(name, violation)
            rated = [rating(seen.row or {}, goal) for goal in self._study.goals]
            self._optuna.tell(trial, [min(max(number, -_UNKNOWN), _UNKNOWN) for number in rated])
        seen.trials.clear()

    def _violations(self, row: Row | None) -> dict[str, float]:
        """Return the violations of a row; a point without result violates every constraint."""
        if row is None or row["status"] != "done":
            return dict.fromkeys(("status", *self._study.constraints), 1.0)
        return {"status": 0.0, **violations(row, self._study.constraints)}

    def _draw_unseen(self) -> dict[str, int] | None:
        """Draw a new point at random; return None if none is found."""
        for _ in range(_DRAWS):
            params = self._space.draw_point(self._draw)
            values = self._space.values(params)
            if text_of(values) not in self._seen and not self._study.skips(values):
                return params
        return None


class _StudyJournal(JournalFileBackend):
    """A journal of Optuna in a file with a single writer, as the study's folder is locked."""

    def __init__(self, path: Path) -> None:
        if path.exists():  # a killed command may have left half a line
            content = path.read_bytes()
            with path.open("r+b") as stream:
                stream.truncate(content.rfind(b"\n") + 1)
        super().__init__(str(path), _NoLock(str(path)))
        self._path = path

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        try:
            super().append_logs(logs)
        except OSError as error:
            raise ScenarioError(f"{self._path}: could not be written: {error.strerror or error}") from None


class _NoLock(JournalFileOpenLock):
    def acquire(self) -> bool:
        # The study's folder is locked already; Optuna's lock file would stay behind after a kill.
        return True

    def release(self) -> None:
        pass


def _sampler(study: Study, seed: int) -> BaseSampler:
    search = study.search
    name = search.sampler or ("tpe" if len(study.goals) == 1 or search.most_trials <= _MOST_OF_TPE else "nsga2")
    if name == "tpe":
        return TPESampler(seed=seed)
    population = min(max(search.most_trials // _GENERATIONS, _LEAST_POPULATION), _MOST_POPULATION)
    return NSGAIISampler(seed=seed, population_size=population)


def _name(study: Study, version: str) -> str:
    """Return a digest of everything that decides what a trial is and how it ends, so that no journal is misread."""
    axes = [[axis.keys, axis.rows, axis.only_if and axis.only_if.keys] for axis in study.axes]
    skip = [condition.keys for condition in study.skip]
    settings = [study.goals, study.constraints, study.stages[0].fidelity, study.search.seed, version]
    content = [resolve(study, Point(BASELINE, {})).digest, axes, skip, settings]
    return hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()


class Space:
    """A space with a parameter for each axis, named by its keys: ordered where its values are, else categorical."""

    def __init__(self, study: Study) -> None:
        self._axes = {", ".join(axis.keys): axis for axis in study.axes}
        # Parameters are row numbers, because values may be tables, or quantities with units.
        self.distributions: dict[str, BaseDistribution] = {
            name: IntDistribution(0, len(axis.rows) - 1)
            if _is_ordered(axis.rows)
            else CategoricalDistribution(range(len(axis.rows)))
            for name, axis in self._axes.items()
        }

    def values(self, params: Params) -> dict[str, object]:
        """Return a point's values by key, without axes whose condition does not hold."""
        rows = [axis.rows[params[name]] for name, axis in self._axes.items()]
        return combine_axes(tuple(self._axes.values()), rows)

    def params(self, values: Mapping[str, object]) -> dict[str, int]:
        """Return Optuna's parameters (row numbers) of the axes that have these values, or may leave their keys unset.

        The sampler chooses the other parameters.
        """
        matching = {name: _row_of(axis, values) for name, axis in self._axes.items()}
        return {name: row for name, row in matching.items() if row is not None}

    def draw_point(self, draw: random.Random) -> dict[str, int]:
        """Draw a point at random."""
        return {name: draw.randrange(len(axis.rows)) for name, axis in self._axes.items()}


def _row_of(axis: StudyAxis, values: Mapping[str, object]) -> int | None:
    unset = (None,) * len(axis.keys)
    wanted = tuple(values.get(key) for key in axis.keys)
    matching = (at for at, row in enumerate(axis.rows) if all(map(same, row, wanted)))
    return next(matching, axis.rows.index(unset) if unset in axis.rows else None)


def _is_ordered(rows: Sequence[Sequence[object]]) -> bool:
    """Return whether the first key's values are rising numbers, or quantities of one unit."""
    matching = [_number(row[0]) for row in rows]
    numbers = [number for number, _ in matching]
    is_rising = all(one < other for one, other in pairwise(numbers))
    return is_rising and len({unit for _, unit in matching}) == 1 and matching[0][1] is not None


def _number(value: object) -> tuple[float, str | None]:
    """Return a number and its unit, "" without unit; the unit None means that the value is no number."""
    try:
        return number_of(value)
    except ValueError:
        return 0.0, None
