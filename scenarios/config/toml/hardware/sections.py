"""Sections of a scenario file's [cluster], derived from the declarations in `hardware`; faults are declared here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from scenarios.config.gpu import Gpu
from scenarios.config.hardware import Cluster, Inside, Network, Nics
from scenarios.config.interconnect import WITH_LEAVES
from scenarios.config.toml.derive import section_of
from scenarios.config.toml.section import Section, about
from scenarios.config.toml.values import Efficient, Place, Profile


class SlowSection(Section):
    """A fault: a GPU, NIC or leaf switch that runs below its rates; neither planner nor library knows of it."""

    host: Place | None = about("Whose GPU or NIC; the first is 0. Required, except with `leaf`.")
    gpu: Place | None = about("Which GPU of the host: its kernels take longer, their launches do not.")
    nic: Place | None = about("Which interface of the host, in both directions.")
    leaf: Place | None = about(f"Which leaf, by its uplinks in both directions. Only for {WITH_LEAVES}.")
    speed: Efficient | None = about("The share of its rates that it reaches, such as 0.5. Required.")


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
    ClusterSection = section_of(
        Cluster,
        first=(("profile", Profile, "A ready profile by name, or a path that ends in .toml. Default: none."),),
        last=(
            (
                "slow",
                list[SlowSection],
                "Stragglers: parts that run below their rates, each listed once. Default: none.",
            ),
        ),
    )
