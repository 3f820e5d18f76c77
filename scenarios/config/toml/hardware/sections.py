"""Sections of a scenario file's [cluster], derived from the declarations in `hardware`; faults are declared here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from scenarios.config.gpu import Gpu
from scenarios.config.hardware import Cluster, Inside, Network, Nics
from scenarios.config.interconnect import WITH_LEAVES
from scenarios.config.toml.derive import section_of
from scenarios.config.toml.section import Section, about
from scenarios.config.toml.values import Duration, DurationOrZero, Efficient, Place, Rate


class FaultSection(Section):
    """A GPU, NIC or leaf switch that is slow, always or for a time. The planner and NCCL's choices ignore faults."""

    host: Place | None = about("Number of the host with the slow GPU or NIC, from 0. Required, except with `leaf`.")
    gpu: Place | None = about("Number of the GPU on the host. Its kernels take longer, launches do not.")
    nic: Place | None = about("Number of the interface on the host; both directions are slow.")
    leaf: Place | None = about(
        f"Number of the leaf switch; its uplinks are slow in both directions. Only for {WITH_LEAVES}."
    )
    speed: Efficient | None = about("Share of its rates that the part reaches, such as 0.5. Required without `rate`.")
    rate: Rate | None = about(
        "Rate that an interface, or all uplinks of a leaf together, still reaches in each direction, such as"
        " '100 Gbit/s', instead of `speed`. A part that is no faster is not slowed."
    )
    begin: DurationOrZero | None = about("When the fault begins, since the run's start, such as '2 s'. Default '0 s'.")
    end: Duration | None = about("When the fault ends, since the run's start. Default: with the run.")


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

        faults: list[FaultSection] | None = about("Parts that are slow, one entry for each fault. Default: none.")
