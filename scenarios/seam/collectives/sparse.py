"""All-reduce of sparse tensors, computed as torch does over gloo.

Every rank's tensor is coalesced, and all of them are gathered: sizes first, then indices, then values
(torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, `AsyncSparseAllreduceWork`). Every rank sums the gathered tensors
locally.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Variable

from scenarios.seam.collectives.several import Several

# int64 numbers that describe a rank's tensor: up to four sparse and four dense sizes, and the number of indices.
_NUMBERS = 9
# Begins an all-gather of each rank's flat tensor into parts of a flat output.
Gather = Callable[[Tensor, Sequence[Tensor], Tensor], dist.Work]


class SparseSum(Several):
    """An all-reduce of one sparse tensor (COO), which holds the sum once the work has been waited for.

    The constructor waits until the sizes of all ranks are known, and then begins to gather indices and values.

    Raises:
        RuntimeError: the reduction is no sum, or the backend is not gloo; torch supports no others.
        ValueError: the ranks' shapes differ.
    """

    def __init__(self, tensor: Tensor, ranks: int, gather: Gather, *, op: str, over: str) -> None:
        if (op, over) != ("SUM", "gloo"):
            raise RuntimeError(
                f"all_reduce of a sparse tensor: expected SUM over gloo, got {op} over {over}; embeddings with"
                " sparse=False have dense gradients"
            )
        self._tensor, own = tensor, tensor.detach().coalesce()
        indices, values = own.indices(), own.values()
        work, described = _gather(_describe(own), [_NUMBERS] * ranks, gather)
        work.wait()
        sizes = [each.tolist() for each in described]
        if any(each[:-1] != sizes[0][:-1] for each in sizes):
            raise ValueError(f"all_reduce of sparse tensors: expected one shape, got {[each[:-1] for each in sizes]}")
        counts, dims = [each[-1] for each in sizes], own.sparse_dim()
        of_indices, self._indices = _gather(indices.reshape(-1), [dims * count for count in counts], gather)
        of_one = math.prod(own.shape[dims:])
        of_values, self._values = _gather(values.reshape(-1), [of_one * count for count in counts], gather)
        self._future: torch.futures.Future[Any] | None = None
        self._is_done = False
        super().__init__([of_indices, of_values])

    def wait(self, timeout: Any = None) -> bool:
        """Wait for indices and values of all ranks, and sum them."""
        if self._is_done:
            return True
        self._is_done = super().wait(timeout)
        tensor, dims = self._tensor, self._tensor.sparse_dim()
        with torch.no_grad():
            indices = torch.cat([each.view(dims, -1) for each in self._indices], 1)
            values = torch.cat([each.view(-1, *tensor.shape[dims:]) for each in self._values])
            tensor.copy_(torch.sparse_coo_tensor(indices, values, tensor.shape, check_invariants=False).coalesce())
        if self._future is not None:
            self._future.set_result([tensor])
        return True

    def is_completed(self) -> bool:
        """Return whether everything has arrived; the tensor then holds the sum."""
        return self._is_done or (super().is_completed() and self.wait())

    def result(self) -> list[Tensor]:
        """Return a list of the tensor with the sum."""
        self.wait()
        return [self._tensor]

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of the sum; within a backward pass it completes at the pass's end, where DDP waits in C++."""
        if self._future is None:
            self._future = torch.futures.Future()
            if self._is_done:
                self._future.set_result([self._tensor])
            elif torch._C._current_autograd_node() is not None:
                engine: Any = Variable._execution_engine
                # The engine calls it when the pass ends; a wait here would hold up the rest of the pass.
                engine.queue_callback(self.wait)
            else:
                self.wait()
        return self._future


def _gather(own: Tensor, sizes: Sequence[int], gather: Gather) -> tuple[dist.Work, Sequence[Tensor]]:
    output = own.new_empty(sum(sizes))
    parts = output.split_with_sizes([*sizes])
    return gather(own, parts, output), parts


def _describe(sparse: Tensor) -> Tensor:
    dims = sparse.sparse_dim()
    found = [*sparse.shape[:dims], *[0] * (4 - dims), *sparse.shape[dims:], *[0] * (4 - sparse.dense_dim())]
    return torch.tensor([*found, sparse._nnz()], device=sparse.device)
