"""Communication libraries: what a scenario must know of each without loading it.

How one behaves is found by its name: in the simulator `sim.<name>.library`, on real ranks `real.libraries.<name>`; each
of these modules has a `LIBRARY`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LibraryName = Literal["gloo", "nccl"]


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
