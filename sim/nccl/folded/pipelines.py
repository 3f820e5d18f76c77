"""What a ring or tree loads on a host, drawn on a few hosts; on which links is left to `nccl`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sim.nccl import plan as nccl


class Load(NamedTuple):
    """Of some transfers together."""

    size_bytes: float = 0.0
    transfers: float = 0.0

    def and_one(self, size_bytes: float) -> Load:
        """With another transfer."""
        return Load(self.size_bytes + size_bytes, self.transfers + 1)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The most that a pipeline loads on any host: between GPUs (source, target, relay), out of each and into each.

    `relayed`: from a GPU to the one of its host by whose NIC the bytes leave.
    """

    inside: dict[tuple[int, int, int | None], Load]
    leaving: dict[int, Load]
    arriving: dict[int, Load]
    relayed: dict[tuple[int, int], Load]

    @staticmethod
    def of(phase: nccl.Phase, gpus: Sequence[int]) -> Drawn:
        """`gpus`: of a host, in the order of its group ranks."""
        each: dict[tuple[str, Any], dict[int, Load]] = {}

        def add(kind: str, place: Any, host: int, size_bytes: float) -> None:
            loads = each.setdefault((kind, place), {})
            loads[host] = loads.get(host, Load()).and_one(size_bytes)

        for source, target, size_bytes in phase.transfers:
            (here, near), (there, far) = divmod(source, len(gpus)), divmod(target, len(gpus))
            if here == there:
                via = phase.relays.get((source, target))
                relay = None if via is None else gpus[via % len(gpus)]
                add("inside", (gpus[near], gpus[far], relay), here, size_bytes)
            else:
                via = phase.relays.get((source, target))
                leaves_by = near if via is None else via % len(gpus)
                if leaves_by != near:
                    add("relayed", (gpus[near], gpus[leaves_by]), here, size_bytes)
                add("leaving", gpus[leaves_by], here, size_bytes)
                add("arriving", gpus[far], there, size_bytes)
        most = {key: max(loads.values()) for key, loads in each.items()}
        return Drawn(*({place: most[kind, place] for kind, place in most if kind == name} for name in _KINDS))

    @property
    def of_host(self) -> Load:
        """Out of a whole host; as much comes in."""
        return Load(*map(sum, zip(*self.leaving.values(), strict=True))) if self.leaving else Load()


_KINDS = ("inside", "leaving", "arriving", "relayed")


def largest_across(phase: nccl.Phase, local: Sequence[int]) -> float:
    """Of transfers between hosts of so many ranks each."""
    across = (size for source, target, size in phase.transfers if source // len(local) != target // len(local))
    return max(across, default=0.0)
