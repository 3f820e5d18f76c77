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

    steps: Repeats | None = about("Training steps to run. Default 3.")
    seed: CountOrZero | None = about("Seed of ids, splits and initial weights. Default 0.")
    batch_size: Repeats | None = about(
        "Samples per rank and step; required by program 'dlrm', without effect in others."
    )
    payload: Literal["values", "sizes"] | None = about(
        "'values' moves and computes true tensors, 'sizes' only their shapes. Default 'sizes'."
    )
    fidelity: Literal["flows", "links"] | None = about(
        "'flows' simulates each transfer of a collective; 'links' does so in groups of up to 64 ranks, and of larger"
        " ones more coarsely. Default 'links' where hosts are simulated once, else 'flows'."
    )
    ranks: Literal["each", "alike"] | None = about(
        "'each' simulates every rank; 'alike' simulates identical hosts once, using expected id counts instead of"
        " sampled ones. Not with fidelity 'flows', payload 'values', library 'gloo' or random splits. Default 'alike'"
        " where none of these is asked for and all ranks would take long (over 256 GPUs, a minute, 4 GiB), else 'each'."
    )
    library: LibraryName | None = about(
        "The collectives' library. Default 'nccl' where cluster.gpu.kind is 'cuda', else 'gloo'."
    )
    timeout: Duration | None = about("After how long without progress a real run gives up. Default '60 s'.")
    compute_times: File | None = about(
        "CSV of measured times of computations, which the prediction takes. Relative to this file. Default: none."
    )
    balanced: bool | None = about(
        "Whether the prediction gives each rank the mean of all ranks' work, as if it were perfectly balanced. Default"
        " false."
    )


if TYPE_CHECKING:
    MeasuredSection: TypeAlias = Any  # made at run time, like the sections of the hardware
else:
    MeasuredSection = section_of(Measured)


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
