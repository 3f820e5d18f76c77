"""The shape of a scenario file: its tables, keys and accepted values; `checks` looks at how they fit together.

Every key may be absent here, because another file may supply it: `checks` reports what is missing in the end. Editors
show the descriptions, and the documentation's page of keys prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from scenarios.config.gpu import DEVICES, Device
from scenarios.config.provenance import Measured
from scenarios.config.scenario.job import TrainingJob
from scenarios.config.scenario.run_settings import RunSettings
from scenarios.config.toml.derive import section_of
from scenarios.config.toml.hardware.sections import ClusterSection
from scenarios.config.toml.section import Section, about
from scenarios.config.toml.values import File, Name, Text

if TYPE_CHECKING:
    MeasuredSection: TypeAlias = Any  # made at run time, like the sections of the hardware
    RunSection: TypeAlias = Any
    JobSection: TypeAlias = Any
else:
    MeasuredSection = section_of(Measured)
    RunSection = section_of(RunSettings, "RunSection")
    JobSection = section_of(TrainingJob)


class Document(Section):
    """A scenario of Twinstep: the cluster, the workload, and how a step is run."""

    # The tables of a program are added in `document.document_type`.
    name: Name | None = about("Name of the scenario in reports. Default: the file's name without .toml.")
    description: Text | None = about("One line for lists of scenarios and profiles.")
    include: File | list[File] | None = about(
        "Files, or names of ready scenarios, with the values that this file leaves out. In a list, later ones"
        " take precedence."
    )
    set: dict[str, Any] | None = about(
        "Values by path of their keys, which replace those of this file and of the files that it includes."
    )
    measured: MeasuredSection | None = about("Sources of a profile's figures. Only in profiles.")
    program: Text | None = about(
        "What every rank runs: a program's name, 'package.module:factory' or './file.py:factory'. Required."
    )
    run: RunSection | None = about("Steps, seed, batch size, fidelity and library. Default: the default of each key.")
    job: JobSection | None = about("A job of days: its length, checkpoints and failures. Default: only steps.")
    cluster: ClusterSection | None = about("The hosts, their GPUs and their network. Required.")

    @property
    def gpu_kind(self) -> str | None:
        """The kind of the cluster's GPU; None if the file names none."""
        return self.cluster.gpu.kind if self.cluster and self.cluster.gpu else None

    @property
    def device(self) -> Device | None:
        """The properties of that kind of GPU; None if the file names none."""
        return DEVICES.get(self.gpu_kind or "")
