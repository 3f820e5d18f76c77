"""The collectives of torch.distributed 2.13, one value each: which arguments they take, on what their members must
agree, and what their outputs hold. `Rank` has a verb for each; libraries find them by name.
"""

from scenarios.seam.collectives import coalesced, exchange, lists, reduction, rooted
from scenarios.seam.collectives.collective import COLLECTIVES, Collective, deliver, disagreement, refused_call

__all__ = [
    "COLLECTIVES",
    "Collective",
    "coalesced",
    "deliver",
    "disagreement",
    "exchange",
    "lists",
    "reduction",
    "refused_call",
    "rooted",
]
