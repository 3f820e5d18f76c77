"""Sections of a scenario file's [cluster], derived from the declarations in `hardware`; faults are declared here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from scenarios.config.gpu import Gpu
from scenarios.config.hardware import Cluster, Inside, Network, Nics
from scenarios.config.interconnect import WITH_LEAVES
from scenarios.config.toml.derive import section_of
from scenarios.config.toml.section import Section, about
from scenarios.config.toml.values import Efficient, Place


class SlowSection(Section):
    """A fault: a GPU, NIC or leaf switch that runs below its rates. The planner and the library do not know of it."""

    host: Place | None = about("Number of the host with the slow GPU or NIC, from 0. Required, except with `leaf`.")
    gpu: Place | None = about("Number of the GPU on the host. Its kernels take longer, launches do not.")
    nic: Place | None = about("Number of the interface on the host; both directions are slow.")
    leaf: Place | None = about(
        f"Number of the leaf switch; its uplinks are slow in both directions. Only for {WITH_LEAVES}."
    )
    speed: Efficient | None = about("Share of its rates that the part reaches, such as 0.5. Required.")


if TYPE_CHECKING:
    # The classes are made at run time, so type checkers cannot see their keys; tests cover reading and checks key by
    # key.
    GpuSection: TypeAlias = Any
    InsideSection: TypeAlias = Any
    NicSection: TypeAlias = Any
    NetworkSection: TypeAlias = Any
    ClusterSection: TypeAlias = Any
else:
    GpuSection = section_of(Gpu)
    InsideSection = section_of(Inside)
    NicSection = section_of(Nics, "NicSection")
    NetworkSection = section_of(Network)

    class ClusterSection(section_of(Cluster)):
        """A cluster of hosts that are identical, apart from faults."""

        slow: list[SlowSection] | None = about(
            "Faults: parts that run below their rates, one entry each. Default: none."
        )
