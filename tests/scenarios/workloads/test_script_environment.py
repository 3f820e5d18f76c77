"""Variables that a script's rank finds are those that torchrun sets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch import distributed

from scenarios.workloads.script.config import Script
from scenarios.workloads.script.environment import Seat, environment_of

# What torch.distributed.elastic gives a worker (torch 2.13, agent/server/local_elastic_agent.py).
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
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_ERROR_FILE": "/errors/rank-3-error.json",
    "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "OMP_NUM_THREADS": "1",
}


def test_a_rank_finds_the_variables_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(path=Path("train.py"), sha256="", env=(("DATA", "here"),))
    given = environment_of(script, Seat(3, 4, 2), address="10.0.0.1", port=29500, folder=Path("/errors"))
    assert given == {**OF_TORCHRUN, "DATA": "here"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert distributed.is_torchelastic_launched()


@pytest.mark.slow
@pytest.mark.real
def test_torchrun_itself_gives_the_same(tmp_path: Path) -> None:
    """But for where ranks meet, the run's name and where errors go."""
    file = tmp_path / "tells.py"
    file.write_text(
        "import json, os, sys\n"
        "with open(os.path.join(sys.argv[1], os.environ['RANK']), 'w') as out:\n    json.dump(dict(os.environ), out)\n"
    )
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(file), str(tmp_path)]
    subprocess.run(launcher, check=True, capture_output=True, timeout=120)
    for rank in (0, 1):
        found = json.loads((tmp_path / str(rank)).read_text())
        found = {name: found[name] for name in found.keys() - {"COLUMNS", "LINES"}}  # readline's, which torchrun loads
        theirs = {name: value for name, value in found.items() if os.environ.get(name) != value}
        script = Script(path=file, sha256="")
        ours = environment_of(script, Seat(rank, 2, 2), address="localhost", port=29500, folder=tmp_path)
        assert theirs.keys() <= ours.keys()
        assert ours.keys() - theirs.keys() <= {"OMP_NUM_THREADS"}  # where the machine sets it, too
        own = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"}
        assert {name: ours[name] for name in theirs if name not in own} == {
            name: value for name, value in theirs.items() if name not in own
        }
