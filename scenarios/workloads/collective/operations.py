"""The collectives that program `collective` can call: what a scenario must know of each without loading torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """How buffers are shaped.

    Attributes:
        gives, receives: "all" elements or a rank's "share" of them; "" where the buffer given is also the output.
        has_root: whether one rank's part differs from all others'.
        has_splits: whether buffers are split among the members by `splits` and `skew`.
        has_sums: whether elements of the members are added up.
    """

    gives: str = "all"
    receives: str = ""
    has_root: bool = False
    has_splits: bool = False
    has_sums: bool = False

    @property
    def has_shares(self) -> bool:
        """Whether the larger buffer has an equal share for each rank."""
        return "share" in (self.gives, self.receives)


OPERATIONS = {
    "all_reduce": Operation(has_sums=True),
    "reduce_scatter": Operation(receives="share", has_sums=True),
    "all_gather": Operation(gives="share", receives="all"),
    "broadcast": Operation(has_root=True),
    "all_to_all": Operation(receives="all", has_splits=True),
}
