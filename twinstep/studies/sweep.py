"""Simulates a study's points, stage by stage, and hands on a row for each; storing and showing rows is left to
others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any, Protocol

from distributed import Client

from scenarios.versions import version_of
from twinstep.studies.conditions import violations
from twinstep.studies.engine import Died, Where, WorkItem, play_all, workers
from twinstep.studies.goals import layers, rating
from twinstep.studies.kept_plan import digest_of
from twinstep.studies.points import BASELINE, Point, Resolved, points_of, resolve
from twinstep.studies.study_file import Study, StudyStage
from twinstep.studies.task import Result, Task

Row = Mapping[str, Any]
Player = Callable[[Task], Result]
Crew = Callable[[], Client]


@contextmanager
def crew(where: Where) -> Iterator[Crew]:
    """Yield a function that starts shared workers at its first call; the workers end with the context."""
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(workers(where)))


class Store(Protocol):
    """A store that keeps rows, and knows rows of earlier commands."""

    def find_row(self, digest: str, fidelity: str) -> Row | None: ...
    def add(self, row: Row) -> None: ...
    def add_folder(self, digest: str, fidelity: str, archive: bytes) -> str: ...


class PointSource(Protocol):
    """A source of a first stage's points, one at a time, which receives their results."""

    @property
    def total(self) -> int: ...
    def points(self) -> Iterator[Point]: ...
    def take_result(self, row: Row) -> None: ...


class Listed:
    """A source of points that are known beforehand."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._points = sorted(points, key=_batch)

    @property
    def total(self) -> int:
        """The number of points."""
        return len(self._points)

    def points(self) -> Iterator[Point]:
        """Return the baseline first, then points with equal ids one after the other."""
        return iter(self._points)

    def take_result(self, row: Row) -> None:
        """Do nothing: later points do not depend on results."""


class Watch(Protocol):
    """A display of a sweep's progress."""

    def stage(self, words: str, total: int) -> None: ...
    def count_ended(self, row: Row) -> None: ...
    def tick(self, workers: int) -> None: ...


@dataclass
class Sweep:
    """A sweep: the points of each stage go through the engine, unless their result is known.

    The first stage's points come from `source`, by default all; a later stage's are the best of the stage before.
    """

    study: Study
    store: Store
    where: Where
    watch: Watch
    player: Player
    source: PointSource | None = None
    version: str = field(default_factory=lambda: version_of("twinstep"))
    played: int = 0
    crew: Crew | None = None  # workers shared with other sweeps; None: workers of its own

    def run(self) -> list[Row]:
        """Return the rows of all points and stages."""
        source: PointSource = self.source or Listed(points_of(self.study))
        whole: list[Row] = []
        with ExitStack() as stack:
            client: Client | None = None
            for number, stage in enumerate(self.study.stages, 1):
                self.watch.stage(
                    f"stage {number}: {stage.fidelity}" if len(self.study.stages) > 1 else "", source.total
                )
                of_stage = _StageRun(self, stage, source)
                calls = of_stage.calls()
                # Reading the first call already writes the rows of all known points before it.
                first = next(calls, None)
                if first is not None:  # without calls no workers are started
                    client = client or (self.crew or stack.enter_context(crew(self.where)))()
                    for key, result in play_all(client, self.player, chain([first], calls), self.watch.tick):
                        of_stage.take(key, result)
                whole += of_stage.rows
                source = Listed(choose_points(of_stage.rows, stage, self.study))
        return whole

    def row(self, resolved: Resolved, fidelity: str, result: Result) -> dict[str, Any]:
        """Return the row of a point whose result is that of an equal point; `played` is False."""
        return {
            "index": resolved.point.index,
            "digest": resolved.digest,
            "fidelity": fidelity,
            "status": result.status,
            "sentence": result.sentence,
            "seconds": result.seconds,
            "worker": result.worker,
            "played": False,
            "run": "",
            "plan": digest_of(result.places),
            "version": self.version,
            **result.measures,
            "values": resolved.point.values,
        }


class _StageRun:
    """A stage's points in progress: points with the same digest and fidelity wait for one result."""

    def __init__(self, sweep: Sweep, stage: StudyStage, source: PointSource) -> None:
        self._sweep, self._stage, self._source = sweep, stage, source
        self._waiting: dict[tuple[str, str], list[Resolved]] = {}
        self.rows: list[Row] = []

    def calls(self) -> Iterator[WorkItem[tuple[str, str]]]:
        """Yield the calls to make; known and impossible points become rows at once."""
        study = self._sweep.study
        for point in self._source.points():
            resolved = resolve(study, point)
            scenario = resolved.scenario
            fidelity = self._stage.fidelity or (scenario.run.fidelity if scenario is not None else "")
            key = resolved.digest, fidelity
            if (known := self._sweep.store.find_row(*key)) is not None:
                self._again(resolved, known)
            elif scenario is None:
                result = Result(status="scenario error", sentence=resolved.sentence)
                self._add(self._sweep.row(resolved, fidelity, result))
            elif key in self._waiting:
                self._waiting[key].append(resolved)
            else:
                self._waiting[key] = [resolved]
                task = Task(scenario=scenario, fidelity=fidelity, timeout_s=study.timeout_s, keep=study.keep)
                yield WorkItem(replace(task, draws=study.draws), key)

    def take(self, key: tuple[str, str], result: Result | Died) -> None:
        """Add the row of the point that was simulated, and rows of the equal points that waited for its result."""
        if isinstance(result, Died):
            result = Result(status="worker lost", sentence=result.sentence)
        run = self._sweep.store.add_folder(*key, result.folder) if result.folder else ""
        self._sweep.played += 1
        first, *others = self._waiting.pop(key)
        self._add(row := {**self._sweep.row(first, key[1], result), "run": run, "played": True})
        # Points of one digest differ in index and values only.
        for resolved in others:
            self._again(resolved, row)

    def _again(self, resolved: Resolved, known: Row) -> None:
        """Add a row of an earlier command, or of another point of the same digest."""
        point = resolved.point
        if known["index"] == point.index and known["values"] == point.values:
            self._finish(known)
        else:
            self._add({**known, "index": point.index, "values": point.values, "played": False})

    def _add(self, row: Row) -> None:
        self._sweep.store.add(row)
        self._finish(row)

    def _finish(self, row: Row) -> None:
        self.rows.append(row)
        self._sweep.watch.count_ended(row)
        self._source.take_result(row)


def _batch(point: Point) -> tuple[bool, str]:
    """Sort the baseline first, then points with equal ids after each other, as workers keep ids for a while."""
    return point.index != BASELINE, str([point.values.get(key) for key in ("run.seed", "run.batch_size")])


def choose_points(rows: Iterable[Row], stage: StudyStage, study: Study) -> list[Point]:
    """Return the points that go on to the next stage: the best of a stage, and the baseline.

    Points that keep the constraints, or break them least, come first; then fronts of the goals, and the first goal
    decide.
    """
    rows = list(rows)
    done = [row for row in rows if row["status"] == "done" and row["index"] != BASELINE]
    count = int(math.ceil(stage.keep * len(done)) if stage.keep < 1 else min(stage.keep, len(done)))
    costs = [[rating(row, goal) for goal in study.goals] for row in done]
    broken = [sum(violations(row, study.constraints).values()) for row in done]
    sound = [at for at, by in enumerate(broken) if not by]
    front = dict(zip(sound, layers([costs[at] for at in sound], count), strict=True))
    best = sorted(range(len(done)), key=lambda at: (broken[at], front.get(at, 0), costs[at], done[at]["index"]))
    kept = {done[at]["index"] for at in best[:count]} | {BASELINE}
    return [Point(row["index"], row["values"]) for row in rows if row["index"] in kept]
