"""Several works of torch.distributed as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist


class Several(dist.Work):
    """A torch Work made of works that began one after the other."""

    def __init__(self, works: Sequence[dist.Work] = ()) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: Any = None) -> bool:
        """Wait until all works have ended; RuntimeError if one failed."""
        for work in self._works:
            work.wait()
        return True

    def is_completed(self) -> bool:
        """Return whether all works have ended."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Return whether all works have ended successfully."""
        return all(work.is_success() for work in self._works)

    def synchronize(self) -> None:
        """Wait until all works have ended."""
        self.wait()

    def result(self) -> Any:
        """Return the results of all works."""
        return [work.result() for work in self._works]

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future that completes when all works have."""
        return torch.futures.collect_all([work.get_future() for work in self._works])
