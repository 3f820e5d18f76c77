"""Reports CPU work that is not predicted: the time of DataLoader workers.

Rank 0 reports at the end of each step, for all ranks.
"""

from __future__ import annotations

import os
from typing import Any

from torch.utils.data import dataloader

from scenarios.workloads.recording.events.notes import NoteLeftOut
from scenarios.workloads.script.process.simulated import SimulatedLink

WORKERS = "time of DataLoader workers"


class LeftOut:
    """A record of whether a process has used DataLoader workers since its last step."""

    def __init__(self, link: SimulatedLink) -> None:
        self._link, self._is_used = link, False

    def watch(self) -> None:
        """Start watching for batches from DataLoader workers."""
        if os.environ["RANK"] != "0":
            return
        loader: Any = dataloader._MultiProcessingDataLoaderIter
        advance = loader._next_data

        def call_watched(self_: Any) -> Any:
            self._is_used = True
            return advance(self_)

        loader._next_data = call_watched

    def end_step(self) -> None:
        """Report the work of the ending step that is not predicted."""
        if self._is_used:
            self._link.ask(NoteLeftOut([WORKERS]))
            self._is_used = False
