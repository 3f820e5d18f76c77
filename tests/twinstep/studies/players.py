"""Functions that Dask workers are given in tests: quick, and without torch."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinstep.studies.task import Result, Task

if TYPE_CHECKING:
    import pytest

    from twinstep.studies.engine import Where


def play_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sweeps call their function here, one call after the other, without workers."""
    from twinstep.studies import sweep  # noqa: PLC0415  (workers, which load this file too, have no need of it)

    @contextmanager
    def workers(where: Where) -> Iterator[None]:
        yield

    def play_all(client: None, function: Any, calls: Any, tick: Any) -> Iterator[Any]:
        for call in calls:
            yield call.of, function(call.argument)

    monkeypatch.setattr(sweep, "workers", workers)
    monkeypatch.setattr(sweep, "play_all", play_all)


def count(path: str) -> int:
    """Count a call in a file."""
    with Path(path).open("a") as stream:
        stream.write(".")
    return Path(path).stat().st_size


def killed_at_first(path: str) -> str:
    """As by the system: the first call's worker dies."""
    if count(path) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "whole"


def kill(path: str) -> str:
    count(path)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def quick(task: Task) -> Result:
    """A step takes longer on more hosts; a batch of 13 does not fit, and one of 17 is a program's mistake."""
    scenario = task.scenario
    if scenario.run.batch_size == 13:
        return Result(status="scenario error", sentence="rank 3: 90 GiB: expected at most 80 GiB")
    if scenario.run.batch_size == 17:
        return Result(status="program error", sentence="rank 3 waits")
    step_ns = 1e6 * scenario.cluster.hosts + scenario.run.batch_size
    samples = scenario.run.batch_size * scenario.cluster.world_size
    return Result(
        status="done",
        seconds=0.5,
        measures={"step_ns": step_ns, "samples_per_s": samples * 1e9 / step_ns, "steps": 2.0},
    )
