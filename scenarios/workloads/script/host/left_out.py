"""Notes what a script does that is not predicted: work of the host beside simulated GPUs, data loaders' workers.

Rank 0 tells it at the end of each step, for all ranks.
"""

from __future__ import annotations

import os
import time
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from scenarios.modules.operators import tensors_in
from scenarios.workloads.script.process.simulated import SimulatedLink

WORKERS = "time of DataLoader workers"
LOADING = "data loading in the script's process"
ON_CPU = "operators on CPU tensors"


# Operators below are next to nothing, such as those that count an optimizer's steps: Python takes most of their time.
_LEAST_NS, _LEAST_ELEMENTS = 50_000, 1024


class LeftOut:
    """A record of what one process has done of that since its last step, by words; None where no time is known."""

    def __init__(self, link: SimulatedLink, *, is_on_gpu: bool) -> None:
        self._link, self._is_on_gpu = link, is_on_gpu
        self._since: dict[str, int | None] = {}
        self._is_counting = False  # what is computed now is in a longer count
        self._is_told = os.environ["RANK"] == "0"
        if self._is_told:
            link.on_cpu = self.run

    def watch(self) -> None:
        """Note from now on what the script uses."""
        if not self._is_told:
            return
        self._watch_loaders()

    def tell(self) -> None:
        """Tell what the step has done that ends now."""
        if self._since:
            self._link.ask("left_out", self._since)
            self._since = {}

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator on CPU tensors, and count its CPU time unless it is next to nothing or not the script's."""
        if self._is_counting or self._link.is_busy or func.namespace == "profiler":
            return func(*args, **kwargs)
        began_ns = time.thread_time_ns()
        result = func(*args, **kwargs)
        took_ns = time.thread_time_ns() - began_ns
        if took_ns >= _LEAST_NS and any(each.numel() > _LEAST_ELEMENTS for each in tensors_in((args, result))):
            self._add(ON_CPU, took_ns)
        return result

    def _add(self, words: str, took_ns: int) -> None:
        self._since[words] = (self._since.get(words) or 0) + took_ns

    def _watch_loaders(self) -> None:
        advance = _BaseDataLoaderIter.__next__

        def watched(loader: Any) -> Any:
            if loader._num_workers:
                self._since[WORKERS] = None
                return advance(loader)
            if not self._is_on_gpu:  # what a process computes on CPUs is charged
                return advance(loader)
            self._is_counting, began_ns = True, time.thread_time_ns()
            try:
                return advance(loader)
            finally:
                self._is_counting = False
                self._add(LOADING, time.thread_time_ns() - began_ns)

        _BaseDataLoaderIter.__next__ = watched  # type: ignore[method-assign, assignment]
