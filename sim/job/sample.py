"""Many jobs with different failures, simulated in several processes; or a few of them for a first estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context

from sim.job.closed_form import goodput
from sim.job.model import JobModel
from sim.job.play import Played, play

# Starting a process takes as long as playing so many interruptions.
_WORTH_A_PROCESS = 50_000
_LOOK, _LOOKED = 5, 1000  # jobs played for a quick look, and mean times between failures of each


def sample(
    model: JobModel, draws: int, seed: int, *, workers: int = 1, tell: Callable[[int], None] = lambda done: None
) -> list[Played]:
    """Play a job `draws` times, with the failures of draws 0, 1, ...; `tell` is called with the number that is done."""
    pieces = _pieces(model, draws, workers)
    if len(pieces) == 1:
        return [_tell(play(model, seed, draw), tell, draw + 1) for draw in range(draws)]
    from scenarios.workloads.script.forking import without_main  # noqa: PLC0415 - loads a scenario's classes

    found: list[Played] = []
    # Spawned, because this process may have threads. Twinstep comes first, as a user's folder may have its own `sim`.
    with ProcessPoolExecutor(workers, get_context("spawn"), import_module, ("twinstep",)) as pool:
        with without_main():  # a user's script must not run again in each process; they all start here
            pieces_played = pool.map(partial(_play_all, model, seed), pieces)
        for played in pieces_played:
            found += played
            tell(len(found))
    return found


def _tell(played: Played, tell: Callable[[int], None], done: int) -> Played:
    tell(done)
    return played


def _pieces(model: JobModel, draws: int, workers: int) -> list[range]:
    """Return draws in pieces, several for each worker; one piece where that is faster."""
    seconds = model.horizon_s if math.isinf(model.steps) else 2 * model.steps * model.step_s
    if workers < 2 or draws * seconds * model.failures_per_s < _WORTH_A_PROCESS:
        return [range(draws)]
    size = max(-(-draws // (8 * workers)), 1)
    return [range(begin, min(begin + size, draws)) for begin in range(0, draws, size)]


def _play_all(model: JobModel, seed: int, draws: Sequence[int]) -> list[Played]:
    return [play(model, seed, draw) for draw in draws]


def mean_goodput(model: JobModel, seed: int) -> float:
    """Return the goodput of `_LOOK` jobs of `_LOOKED` mean times between failures each."""
    rate = model.failures_per_s
    if not rate:
        return goodput(model)
    long = model.until(horizon_s=_LOOKED / rate)
    played = [play(long, seed, draw) for draw in range(_LOOK)]
    return sum(one.steps for one in played) * model.step_s / sum(one.seconds for one in played)
