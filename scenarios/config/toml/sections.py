"""The shape of a scenario file: its tables, keys and accepted values; `checks` looks at how they fit together.

Every key may be absent here, because another file may supply it: `checks` reports what is missing in the end. Editors
show the descriptions, and `docs/scenario.md` prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from scenarios.config.gpu import DEVICES, Device
from scenarios.config.provenance import Measured
from scenarios.config.scenario.run_settings import RunSettings
from scenarios.config.toml.derive import section_of
from scenarios.config.toml.hardware.sections import ClusterSection
from scenarios.config.toml.section import Section, about
from scenarios.config.toml.values import File, Name, Text

if TYPE_CHECKING:
    MeasuredSection: TypeAlias = Any  # made at run time, like the sections of the hardware
    RunSection: TypeAlias = Any
else:
    MeasuredSection = section_of(Measured)
    RunSection = section_of(RunSettings, "RunSection")


class Document(Section):
    """A scenario of Twinstep: the cluster, the workload, and how a step is run."""

    # The tables of a program are added in `document.document_type`.
    name: Name | None = about("What reports call it. Default: the file's name without .toml.")
    description: Text | None = about("A line for lists of scenarios and profiles.")
    include: File | list[File] | None = about(
        "Files, or ready scenarios' names, that supply what this one leaves out; later ones before earlier."
    )
    set: dict[str, Any] | None = about("Values by their keys' paths, put over this file and what it includes.")
    measured: MeasuredSection | None = about("Where a profile's figures come from. Only in profiles.")
    program: Text | None = about(
        "What every rank runs: a program's name, 'package.module:factory' or './file.py:factory'. Required."
    )
    run: RunSection | None = about("Steps, seed, batch size, fidelity and library. Default: all its defaults.")
    cluster: ClusterSection | None = about("The machines. Required.")

    @property
    def gpu_kind(self) -> str | None:
        """The kind of the cluster's GPU; None if the file names none."""
        return self.cluster.gpu.kind if self.cluster and self.cluster.gpu else None

    @property
    def device(self) -> Device | None:
        """The properties of that kind of GPU; None if the file names none."""
        return DEVICES.get(self.gpu_kind or "")
