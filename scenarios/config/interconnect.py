"""Facts on communication libraries and kinds of networks that a scenario needs without loading their models.

A library's behavior is found by its name: `sim.<name>.library` for the simulator and `real.libraries.<name>` for real
ranks, each with a `LIBRARY`. The paths of a network are in `sim.engine.network`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LibraryName = Literal["gloo", "nccl"]
NetworkKind = Literal["non_blocking", "leaf_spine", "rail_only"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFacts:
    """The properties of a communication library that the checks of a scenario need.

    Attributes:
        device: the kind of GPU whose default library this is; real ranks pass tensors of this device type.
        serves: kinds of GPU that may use the library.
        can_fold: whether one host of each host class can be simulated for all.
        limits: what a prediction leaves out with another kind of GPU than `device`.
    """

    device: Literal["cpu", "cuda"]
    serves: tuple[str, ...]
    can_fold: bool = False
    limits: str = ""


LIBRARIES: dict[LibraryName, LibraryFacts] = {
    "gloo": LibraryFacts(
        device="cpu",
        serves=("cpu", "cuda"),
        limits="with GPUs, copies to the host and sums there are not modelled; the prediction is a lower bound",
    ),
    "nccl": LibraryFacts(device="cuda", serves=("cuda",), can_fold=True),
}


def default_library(gpu_kind: str) -> LibraryName:
    """Return the default library of a kind of GPU."""
    return next(name for name, facts in LIBRARIES.items() if facts.device == gpu_kind)


def quote_names(names: list[LibraryName]) -> str:
    """Format names for a sentence: "'gloo' or 'nccl'"."""
    return " or ".join(f"'{name}'" for name in names)


def serving(gpu_kind: str) -> str:
    """Return the libraries that a kind of GPU may use, formatted for a sentence."""
    return quote_names([name for name, facts in LIBRARIES.items() if gpu_kind in facts.serves])


def folding() -> str:
    """Return the libraries that allow host classes, formatted for a sentence."""
    return quote_names([name for name, facts in LIBRARIES.items() if facts.can_fold])


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """The properties of a kind of network that the checks of a scenario need.

    Attributes:
        summary: its description in the reference of keys.
        has_leaves: whether groups of hosts share uplinks, so that `hosts_per_leaf` and `oversubscription` apply.
        by_rail: whether a NIC reaches only NICs of its own number, which requires a NIC per GPU, and NVLink to reach
            it.
    """

    summary: str
    has_leaves: bool = False
    by_rail: bool = False


NETWORKS: dict[NetworkKind, NetworkFacts] = {
    "non_blocking": NetworkFacts("one ideal switch"),
    "leaf_spine": NetworkFacts("leaf switches with uplinks that may be oversubscribed", has_leaves=True),
    "rail_only": NetworkFacts(
        "one switch for the NICs of each GPU number, no path between these switches, so NVLink carries data to"
        " the right NIC",
        by_rail=True,
    ),
}
DEFAULT_NETWORK: NetworkKind = "non_blocking"
WITH_LEAVES = " or ".join(f"'{kind}'" for kind, facts in NETWORKS.items() if facts.has_leaves)
SUMMARIES = "; ".join(f"'{kind}': {facts.summary}" for kind, facts in NETWORKS.items())
