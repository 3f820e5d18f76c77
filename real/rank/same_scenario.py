"""Checks that all ranks have read the same scenario and program, each from its own host's disk."""

from __future__ import annotations

import json
import socket

from torch._C._distributed_c10d import Store

from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ProgramError

_KEY = "scenario"


def check_same_scenario(store: Store, rank: int, scenario: Scenario) -> None:
    """Compare this rank's scenario with rank 0's, through the store.

    Raises:
        ProgramError: they differ; the sentence names this rank's host and, if the program's code differs, the files.
    """
    own = {source.name: source.sha256 for source in scenario.sources}
    if rank == 0:
        told = {"host": socket.gethostname(), "digest": scenario.digest(), "sources": own}
        store.set(_KEY, json.dumps(told))
        return
    first = json.loads(store.get(_KEY))
    if first["digest"] == scenario.digest():
        return
    here = f"rank {rank}: host {socket.gethostname()}"
    theirs: dict[str, str] = first["sources"]
    missing = [name for name in theirs if name not in own]
    others = [name for name in own if own[name] != theirs.get(name)]
    what = f"another {', '.join(others)}" if others else f"no {', '.join(missing)}"
    if not (others or missing):
        what = f"another scenario {scenario.path}"
    raise ProgramError(f"{here} has {what}, unlike rank 0's host {first['host']}, expected the same files on all hosts")
