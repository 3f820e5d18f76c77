"""Variables that a script's rank finds are those that torchrun sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import distributed

from scenarios.workloads.script.config import Script
from scenarios.workloads.script.environment import Seat, environment_of

# What torch.distributed.elastic gives a worker (torch 2.13, agent/server/local_elastic_agent.py), but for what belongs
# to the agent itself: its store, its error files.
OF_TORCHRUN = {
    "LOCAL_RANK": "1",
    "RANK": "3",
    "GROUP_RANK": "1",
    "ROLE_RANK": "3",
    "ROLE_NAME": "default",
    "LOCAL_WORLD_SIZE": "2",
    "WORLD_SIZE": "4",
    "GROUP_WORLD_SIZE": "2",
    "ROLE_WORLD_SIZE": "4",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCHELASTIC_RUN_ID": "none",
    "OMP_NUM_THREADS": "1",
}


def test_a_rank_finds_the_variables_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(path=Path("train.py"), sha256="", env=(("DATA", "here"),))
    given = environment_of(script, Seat(3, 4, 2), address="10.0.0.1", port=29500)
    assert given == {**OF_TORCHRUN, "DATA": "here"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert distributed.is_torchelastic_launched()
