"""The operations of torch.distributed 2.13, one value each: what arguments they take, what their members must agree
on, and what their outputs hold. `Rank` has a verb for each; libraries know them by name.
"""

from scenarios.seam.collectives.collective import COLLECTIVES, Collective, deliver, disagreement, refused
from scenarios.seam.collectives.exchange import ALL_TO_ALL, ALL_TO_ALL_SINGLE
from scenarios.seam.collectives.reduction import ALL_GATHER_INTO_TENSOR, ALL_REDUCE, REDUCE_SCATTER_TENSOR
from scenarios.seam.collectives.rooted import BARRIER, BROADCAST, RECV, SEND

__all__ = [
    "ALL_GATHER_INTO_TENSOR",
    "ALL_REDUCE",
    "ALL_TO_ALL",
    "ALL_TO_ALL_SINGLE",
    "BARRIER",
    "BROADCAST",
    "COLLECTIVES",
    "RECV",
    "REDUCE_SCATTER_TENSOR",
    "SEND",
    "Collective",
    "deliver",
    "disagreement",
    "refused",
]
