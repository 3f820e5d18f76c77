"""Several calls of torch.distributed as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist


class Several(dist.Work):
    """Works that began one after the other, as one."""

    def __init__(self, works: Sequence[dist.Work] = ()) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: Any = None) -> bool:
        """Wait until all have ended; RuntimeError if one failed."""
        for work in self._works:
            work.wait()
        return True

    def is_completed(self) -> bool:
        """Return whether all have ended."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Return whether all have ended well."""
        return all(work.is_success() for work in self._works)

    def synchronize(self) -> None:
        """Wait until all have ended."""
        self.wait()

    def result(self) -> Any:
        """Return the results of all."""
        return [work.result() for work in self._works]

    def get_future(self) -> torch.futures.Future[Any]:
        """Return what is done when all are."""
        return torch.futures.collect_all([work.get_future() for work in self._works])
