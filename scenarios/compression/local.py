"""Runs the local, in-place work of compression, and prices it as kernels."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from scenarios.do_nothing import do_nothing
from scenarios.seam.arguments import dtype_name
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import stream_call
from scenarios.seam.rank import Rank

# Kinds of kernels that stream through memory.
_PLAIN = frozenset({"elementwise", "permute"})


def cost(
    kind: str,
    like: Tensor,
    *,
    flops: float,
    read: float,
    written: float,
    launches: int = 1,
    operations: tuple[Operation, ...] = (),
) -> Kernel:
    """Return a kernel that reads and writes `read` and `written` elements of the dtype of `like`.

    `operations` describe the kernel; a single launch that streams elements or copies needs none.
    """
    size, dtype = like.element_size(), dtype_name(like)
    plain = kind in _PLAIN and launches == 1 and read + written > 0
    return Kernel(
        kind=kind,
        flops=flops,
        bytes_read=read * size,
        bytes_written=written * size,
        dtype=dtype,
        launches=launches,
        operations=(stream_call(kind, dtype, read=read, written=written),) if plain else operations,
    )


def copy_cost(like: Tensor, numel: float, launches: int = 1) -> Kernel:
    """Return a kernel that copies `numel` elements."""
    return cost("permute", like, flops=0, read=numel, written=numel, launches=launches)


async def compute(
    rank: Rank, kernel: Kernel, function: Callable[..., object], *arguments: object, label: str, role: str = ""
) -> None:
    """Run a function that changes its arguments and has no result of use, as `rank.compute` does.

    On the meta device the function is not called: some of torch's meta functions take 100 us and more each.
    """
    nothing_or_function = do_nothing if rank.device.type == "meta" else function
    await rank.compute(kernel, nothing_or_function, *arguments, label=label, role=role)
