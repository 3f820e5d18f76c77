"""The operations of torch.distributed 2.13, one value each: what arguments they take, what their members must agree
on, and what their outputs hold. `Rank` has a verb for each; libraries know them by name.
"""

from scenarios.seam.collectives import exchange, reduction, rooted
from scenarios.seam.collectives.collective import COLLECTIVES, Collective, deliver, disagreement, refused

__all__ = ["COLLECTIVES", "Collective", "deliver", "disagreement", "exchange", "reduction", "refused", "rooted"]
