"""torch's elastic launcher, called by a script: runs the rank's function or script in this process, without agents."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch.distributed.launcher.api as launcher

from scenarios.workloads.script.meeting.mains import run_as_main
from scenarios.workloads.script.meeting.seats import Seats, as_process
from scenarios.workloads.script.meeting.store import put
from scenarios.workloads.script.users_lines import users_line


def install_agents(seats: Seats) -> None:
    """Make `elastic_launch`, which torch.distributed.run calls, run this rank's part here, without new processes."""

    def launch_agent(config: Any, entrypoint: Callable[..., Any] | str | None, args: list[Any], **_: Any) -> Any:
        hosts, line = seats.world_size // seats.local_world_size, users_line(sys._getframe().f_back)
        if config.max_nodes > 1 and not config.min_nodes <= hosts <= config.max_nodes:
            wanted = f"{config.min_nodes} to {config.max_nodes}"
            seats.refuse(f"{line}: starts agents on {wanted} hosts: expected {hosts}, as many as there are here")
        number = config.nproc_per_node * (hosts if config.max_nodes > 1 else 1)
        seats.take(number, line, " by torch's elastic launcher")
        os.environ.update(
            seats.environment,
            TORCHELASTIC_RUN_ID=str(config.run_id),
            TORCHELASTIC_MAX_RESTARTS=str(config.max_restarts),
            ROLE_NAME=str(config.role),
        )
        if callable(entrypoint):
            given = seats.of_first(args, config.nproc_per_node)
            found = as_process(lambda: entrypoint(*given))
        else:
            found = as_process(lambda: _run_command(seats, line, [str(entrypoint), *map(str, args)]))
        first = seats.rank - seats.local_rank
        return dict.fromkeys(range(first, first + seats.local_world_size), found)

    put({launcher.launch_agent: launch_agent})


def _run_command(seats: Seats, line: str, words: Sequence[str]) -> None:
    """Run in this process the script or module that a Python command names."""
    python, *rest = words
    while rest[:1] == ["-u"]:
        rest = rest[1:]
    if not (Path(python).name.startswith("python") and rest):
        seats.refuse(f"{line}: starts '{' '.join(words)}' as its ranks: expected a script or a module of Python")
    run_as_main(rest)
