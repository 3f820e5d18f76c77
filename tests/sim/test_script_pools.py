"""Pools of processes in scripts: those whose tasks are ranks, and those that are pools."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.sim.test_script import SCRIPTS
from tests.sim.test_script_launches import reduce


@pytest.mark.parametrize("name", ["multiprocessing.Pool", "multiprocessing.pool.Pool", "torch.multiprocessing.Pool"])
def test_pools_are_found_under_each_name(name: str, tmp_path: Path) -> None:
    """The script asserts that tasks are ranks, and that they all have the first one's port."""
    module, _, kind = name.rpartition(".")
    shutil.copy(SCRIPTS / "pools.py", tmp_path)
    (file := tmp_path / "ranks.py").write_text(
        f"""from {module} import {kind} as Workers
import os
import pools


def train(rank, port):
    global number
    number += 1
    assert number == 1, "what a task has set is undone where it is run again"
    pools.train(rank, port)


number = 0
if __name__ == "__main__":
    with Workers(2) as pool:
        pool.starmap(train, [(rank, os.getpid()) for rank in range(2)])
    assert number == 1, "the task ran here"
"""
    )
    assert reduce(file, 1, "emulated_200mbit", 2) == [[4 * 8 * 8]] * 2


def test_pools_that_compute_ahead_of_the_group_are_pools() -> None:
    """The script asserts the results of the pools, and that a task that was tried in a rank leaves nothing behind."""
    assert reduce(SCRIPTS / "pools.py", 1, "emulated_200mbit", 2) == [[4 * 8 * 8]] * 2
