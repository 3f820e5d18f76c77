"""Runs the in-place work of compression on a rank's device, or only names its cost where there are no values."""

from __future__ import annotations

from collections.abc import Callable

from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank


async def compute(rank: Rank, kernel: Kernel, function: Callable[..., object], *arguments: object, label: str) -> None:
    """`rank.compute` for functions that change their arguments and whose result nobody needs.

    On the meta device they are not even called: some of torch's meta functions take 100 us and more each.
    """
    await rank.compute(kernel, _nothing if rank.device.type == "meta" else function, *arguments, label=label)


def _nothing(*_: object) -> None:
    return
