"""Communication libraries and kinds of networks: what a scenario must know of each without loading what models it.

How a library behaves is found by its name: `sim.<name>.library` for the simulator and `real.libraries.<name>` for real
ranks, each with a `LIBRARY`. The paths of a network are in `sim.engine.network`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LibraryName = Literal["gloo", "nccl"]
NetworkKind = Literal["non_blocking", "leaf_spine", "rail_only"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFacts:
    """What the checks of a scenario go by.

    Attributes:
        device: the kind of GPU that it is the default for; real ranks give it tensors of this type of device.
        serves: kinds of GPU that it can be chosen for.
        can_fold: whether identical hosts can be simulated once.
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
    """The library of a kind of GPU, where a scenario names none."""
    return next(name for name, facts in LIBRARIES.items() if facts.device == gpu_kind)


def quoted(names: list[LibraryName]) -> str:
    """Names as a sentence has them: "'gloo' or 'nccl'"."""
    return " or ".join(f"'{name}'" for name in names)


def serving(gpu_kind: str) -> str:
    """The libraries that a kind of GPU can have, as a sentence has them."""
    return quoted([name for name, facts in LIBRARIES.items() if gpu_kind in facts.serves])


def folding() -> str:
    """The libraries with which identical hosts can be simulated once, as a sentence has them."""
    return quoted([name for name, facts in LIBRARIES.items() if facts.can_fold])


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """What the checks of a scenario go by.

    Attributes:
        summary: what it is, in the reference of keys.
        has_leaves: whether groups of hosts share uplinks, so that it has `hosts_per_leaf` and `oversubscription`.
        by_rail: whether a NIC reaches only those of its number: then there is a NIC per GPU, and NVLink to reach it.
    """

    summary: str
    has_leaves: bool = False
    by_rail: bool = False


NETWORKS: dict[NetworkKind, NetworkFacts] = {
    "non_blocking": NetworkFacts("one ideal switch"),
    "leaf_spine": NetworkFacts("uplinks may be too narrow", has_leaves=True),
    "rail_only": NetworkFacts(
        "a switch for NIC j of all hosts and nothing between these, so that NVLink takes bytes to the NIC", by_rail=True
    ),
}
DEFAULT_NETWORK: NetworkKind = "non_blocking"
WITH_LEAVES = " or ".join(f"'{kind}'" for kind, facts in NETWORKS.items() if facts.has_leaves)
SUMMARIES = "; ".join(f"'{kind}': {facts.summary}" for kind, facts in NETWORKS.items())
