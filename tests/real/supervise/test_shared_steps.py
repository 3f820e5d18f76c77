"""Which step a rank is in is seen by others, and after its end."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

from real.supervise import spool as steps


def _hurries(folder: Path, rank: int, last: int) -> None:
    own = steps.open_steps(folder)
    assert own is not None
    for index in range(last + 1):
        own.enter(rank, index)
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_step_in_which_a_rank_was_killed_is_seen_by_others(tmp_path: Path) -> None:
    seen = steps.lay_out(tmp_path, 3)
    assert seen.of_all() == [None, None, None]
    process = multiprocessing.get_context("spawn").Process(target=_hurries, args=(tmp_path, 1, 12_345))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert seen.of_all() == [None, 12_345, None]


def test_every_step_differs_from_no_step(tmp_path: Path) -> None:
    seen = steps.lay_out(tmp_path, 2)
    for index in (0, -1, 2**62):
        seen.enter(0, index)
        assert seen.of_all() == [index, None]


def test_open_steps_is_none_without_a_file(tmp_path: Path) -> None:
    assert steps.open_steps(tmp_path) is None
