"""What compression asks of a bucket of gradients; making buckets is left to `programs.buckets` or to DDP itself."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Bucket(Protocol):
    """Some gradients in one flat buffer: the methods of torch's own `GradBucket`, so that DDP's fit as they are.

    The buffer is contiguous, 1-D, in the gradients' order, each row-major. A reduction writes its result into it.
    """

    def index(self) -> int:
        """Which bucket of the step this is, from 0; what compression remembers is kept by this number."""
        ...

    def buffer(self) -> Tensor: ...

    def gradients(self) -> list[Tensor]:
        """Views of the buffer in the parameters' shapes."""
        ...

    def is_last(self) -> bool:
        """Whether this is the last bucket of its step."""
        ...
