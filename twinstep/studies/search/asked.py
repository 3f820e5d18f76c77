"""The points for which Optuna asks, one as each worker becomes free, and which is told how they came out.

What Optuna knows is kept in a journal in the study's folder, so that the same command goes on.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import Trial, TrialState

from scenarios.seam.errors import ScenarioError
from twinstep.studies.conditions import violations
from twinstep.studies.goals import rating
from twinstep.studies.points import BASELINE, Point, resolve, text_of
from twinstep.studies.search.space import Params, Space
from twinstep.studies.study_file import Study

JOURNAL = "search.journal"
Row = Mapping[str, Any]

# Optuna takes no nan, and in an infinite goal no distance.
_UNKNOWN = 1e30
# So often in a row only points that are known: then one at random.
_REPEATS = 20
_DRAWS = 1_000
# TPE takes longer for each point the more it has been told of several goals, NSGA-II does not.
_MOST_OF_TPE = 500
# NSGA-II with 80 to 120 trials found more of known fronts in 10 to 15 generations than in 5 or 8.
_LEAST_POPULATION, _MOST_POPULATION, _GENERATIONS = 8, 50, 15


@dataclass(slots=True)
class _Seen:
    """A point that Optuna has asked for, its row when it has one, and the trials that wait for it."""

    point: Point | None  # None: the study skips it
    trials: list[Trial] = field(default_factory=list)
    row: Row | None = None


class Asked:
    """A source of points: those of earlier commands, then further ones, until there are as many as wanted."""

    def __init__(self, study: Study, folder: Path, version: str, proposals: Iterable[Mapping[str, object]]) -> None:
        self._study, self._space = study, Space(study)
        self._seen: dict[str, _Seen] = {}
        self._by_index: dict[int, _Seen] = {}
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna.create_study(
            study_name=_name(study, version),
            storage=JournalStorage(_Journal(folder / JOURNAL)),
            directions=["minimize"] * len(study.goals),
            load_if_exists=True,
        )
        earlier = self._optuna.get_trials(deepcopy=False)
        # From the number of trials, as a sampler that begins anew would draw the same again.
        self._draw = random.Random(f"{study.search.seed} {len(earlier)}")
        self._optuna.sampler = _sampler(study, self._draw.getrandbits(32))
        for values in proposals:
            self._optuna.enqueue_trial(self._space.params(values), skip_if_exists=True)

    @property
    def total(self) -> int:
        """How many points there will be, with the baseline."""
        return self._study.search.most_trials + self._study.has_baseline

    def points(self) -> Iterator[Point]:
        """Yield the baseline, what was asked for earlier, then what the sampler asks for by what it has been told so
        far.
        """
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
            repeats += 1
            if seen.point is None or seen.row is not None:
                self._tell(seen)
            if repeats >= _REPEATS:
                other = self._unseen()
                if other is None:
                    return
                self._optuna.enqueue_trial(other)

    def ended(self, row: Row) -> None:
        """Tell Optuna how a point came out."""
        if (seen := self._by_index.get(row["index"])) is not None:
            seen.row = row
            self._tell(seen)

    def _earlier(self) -> Iterator[Point]:
        """Points of earlier commands, in the order in which they were asked for, so that each has its number again."""
        for trial in self._optuna.get_trials(deepcopy=False):
            if len(trial.params) < len(self._space.distributions):  # waiting, or not asked to the end
                if trial.state == TrialState.RUNNING:
                    self._optuna.tell(trial.number, state=TrialState.FAIL)
                continue
            seen, is_new = self._look_up(trial.params)
            if trial.state == TrialState.RUNNING:  # when the command ended
                self._optuna.tell(trial.number, state=TrialState.FAIL)
                self._optuna.enqueue_trial(trial.params)
            if is_new and seen.point is not None:
                yield seen.point

    def _look_up(self, params: Params) -> tuple[_Seen, bool]:
        """The point of these parameters, and whether nobody has asked for it before."""
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
        """Tell its trials, also those that asked for it again, which keep a good point among a generation's parents."""
        for trial in seen.trials:
            for name, violation in self._violations(seen.row).items():
                trial.set_constraint(name, violation)
            self._optuna.tell(trial, [_finite(rating(seen.row or {}, goal)) for goal in self._study.goals])
        seen.trials.clear()

    def _violations(self, row: Row | None) -> dict[str, float]:
        """What did not come out keeps no constraint."""
        if row is None or row["status"] != "done":
            return dict.fromkeys(("status", *self._study.constraints), 1.0)
        return {"status": 0.0, **violations(row, self._study.constraints)}

    def _unseen(self) -> dict[str, int] | None:
        """A point at random that nobody has asked for; None if none is found."""
        for _ in range(_DRAWS):
            params = self._space.drawn(self._draw)
            values = self._space.values(params)
            if text_of(values) not in self._seen and not self._study.skips(values):
                return params
        return None


class _Journal(JournalFileBackend):
    """Optuna's journal in a file that nobody else writes, as the study's folder is locked."""

    def __init__(self, path: Path) -> None:
        if path.exists():  # a command that was killed may have left half a line
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
    """Of all on which it depends what a trial is and how it comes out, so that nothing is taken for something else."""
    axes = [[axis.keys, axis.rows, axis.only_if and axis.only_if.keys] for axis in study.axes]
    skip = [condition.keys for condition in study.skip]
    told = [study.goals, study.constraints, study.stages[0].fidelity, study.search.seed, version]
    content = [resolve(study, Point(BASELINE, {})).digest, axes, skip, told]
    return hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()


def _finite(number: float) -> float:
    return min(max(number, -_UNKNOWN), _UNKNOWN)
