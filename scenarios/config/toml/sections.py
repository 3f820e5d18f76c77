"""The shape of a scenario file: its tables, keys and accepted values; `checks` looks at how they fit together.

Every key may be absent here, because another file may supply it: `checks` reports what is missing in the end. Editors
show the descriptions, and `docs/scenario.md` prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from scenarios.config.gpu import DEVICES, Device
from scenarios.config.interconnect import LibraryName
from scenarios.config.provenance import Measured
from scenarios.config.toml.derive import section_of
from scenarios.config.toml.hardware.sections import ClusterSection
from scenarios.config.toml.section import Section, about
from scenarios.config.toml.values import CountOrZero, Duration, File, Name, Repeats, Text


class RunSection(Section):
    """How the steps are run."""

    steps: Repeats | None = about("Number of steps. Default 3.")
    seed: CountOrZero | None = about("Seed of ids, splits and initial weights. Default 0.")
    batch_size: Repeats | None = about(
        "Samples per rank, in each micro-batch of a step. Required by program 'dlrm', refused by other ready programs."
    )
    payload: Literal["values", "sizes"] | None = about(
        "'values': tensors hold numbers, which are computed and sent; 'sizes': tensors only have shapes. Default"
        " 'sizes', for a script on CPUs 'values'."
    )
    fidelity: Literal["flows", "links"] | None = about(
        "'flows': simulate each transfer of a collective; 'links': the same for groups of up to 64 ranks, and"
        " coarser for larger ones. Default 'links' with ranks = 'alike', else 'flows'."
    )
    ranks: Literal["each", "alike"] | None = about(
        "'each': simulate every rank; 'alike': simulate one host of each host class, with expected instead of"
        " sampled numbers of ids. 'alike' excludes fidelity 'flows', payload 'values', library 'gloo' and random"
        " splits. Default 'alike' if none of these is set and simulating every rank would be slow (over 256 GPUs,"
        " a minute or 4 GiB), else 'each'."
    )
    library: LibraryName | None = about(
        "Library of the collectives. Default 'nccl' where cluster.gpu.kind is 'cuda', else 'gloo'."
    )
    timeout: Duration | None = about(
        "Time without progress after which a real run, or a predicted script, is given up. Default '60 s'."
    )
    compute_times: File | None = about(
        "CSV file of measured times of computations, which a prediction uses. Relative to this file. Default: none."
    )
    balanced: bool | None = about(
        "Whether the prediction gives each rank the mean work of all ranks, as if the work were perfectly"
        " balanced. Default false."
    )


if TYPE_CHECKING:
    MeasuredSection: TypeAlias = Any  # made at run time, like the sections of the hardware
else:
    MeasuredSection = section_of(Measured)


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
    cluster: ClusterSection | None = about("The hosts, their GPUs and their network. Required.")

    @property
    def gpu_kind(self) -> str | None:
        """The kind of the cluster's GPU; None if the file names none."""
        return self.cluster.gpu.kind if self.cluster and self.cluster.gpu else None

    @property
    def device(self) -> Device | None:
        """The properties of that kind of GPU; None if the file names none."""
        return DEVICES.get(self.gpu_kind or "")
