"""The operations of torch.distributed 2.13, one value each: what arguments they take, what their members must agree
on, and what their outputs hold. `Rank` has a verb for each; libraries know them by name.
"""

from scenarios.seam.collectives import coalesced, exchange, lists, reduction, rooted
from scenarios.seam.collectives.collective import COLLECTIVES, Collective, deliver, disagreement, refused

__all__ = [
    "COLLECTIVES",
    "Collective",
    "coalesced",
    "deliver",
    "disagreement",
    "exchange",
    "lists",
    "reduction",
    "refused",
    "rooted",
]
