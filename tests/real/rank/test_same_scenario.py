"""Ranks that read their scenario from their own hosts' disks agree on it, or a sentence names the host."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from torch._C._distributed_c10d import HashStore

from real.rank.run import check_same_scenario
from scenarios.config.load import load
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ProgramError
from tests.scenarios.workloads.own import train, write_scenario

HOST = socket.gethostname()


def sentence(first: Scenario, second: Scenario) -> str:
    """What rank 3 says that has read `second` where rank 0 has read `first`."""
    store = HashStore()
    check_same_scenario(store, 0, first)
    with pytest.raises(ProgramError) as caught:
        check_same_scenario(store, 3, second)
    return str(caught.value)


def test_ranks_of_one_scenario_agree(tmp_path: Path) -> None:
    store, path = HashStore(), write_scenario(tmp_path, train())
    for rank in range(3):
        check_same_scenario(store, rank, load(path))


def test_a_host_with_other_files_is_named_with_them(tmp_path: Path) -> None:
    first = load(write_scenario(tmp_path / "first", train()))
    second = load(write_scenario(tmp_path / "second", train("ELEMENTS = 5")))
    where = f"unlike rank 0's host {HOST}, expected the same files on all hosts"
    assert sentence(first, second) == f"rank 3: host {HOST} has another train_step.py, {where}"
    assert sentence(first, replace(first, sources=())) == f"rank 3: host {HOST} has no train_step.py, {where}"
    other = sentence(first, first.with_run(seed=7))
    assert other == f"rank 3: host {HOST} has another scenario {first.path}, {where}"


@pytest.mark.real
def test_a_host_without_the_program_is_named_though_it_is_not_rank_0s(tmp_path: Path) -> None:
    given = {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "real", str(write_scenario(tmp_path))],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={**os.environ, **given},
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"host {HOST}: {tmp_path / 'my.toml'}: program = './train_step.py:Train': expected a")
