"""The shape of a scenario file: its tables, keys and what each accepts; whether they fit each other is for `checks`.

Every key may be absent here, because another file may supply it: `checks` says what is missing in the end. The
descriptions are what editors show and what `docs/scenario.md` prints.
"""

from __future__ import annotations

from typing import Literal

from scenarios.config.libraries import LibraryName
from scenarios.config.toml.hardware.sections import ClusterSection
from scenarios.config.toml.section import Section, about
from scenarios.config.toml.values import CountOrZero, Duration, Error, File, Machines, Name, Repeats, Size, Text


class RunSection(Section):
    """How the steps are played."""

    steps: Repeats | None = about("Training steps to play. Default 3.")
    seed: CountOrZero | None = about("Seed of ids, splits and initial weights. Default 0.")
    batch_size: Repeats | None = about("Samples a rank and step; required by program 'dlrm', of no use to others.")
    payload: Literal["values", "sizes"] | None = about(
        "'values' moves and computes true tensors, 'sizes' only their shapes. Default 'sizes'."
    )
    fidelity: Literal["flows", "links"] | None = about(
        "'flows' simulates each transfer of a collective; 'links' does so in groups of up to 64 ranks, and of larger"
        " ones more coarsely. Default 'flows'."
    )
    ranks: Literal["each", "alike"] | None = about(
        "'each' plays every rank; 'alike' plays one host for all that are expected to have the same to do, with"
        " expected numbers of ids in place of drawn ones. Wants fidelity 'links', payload 'sizes', library 'nccl', and"
        " splits that are not random. Default 'alike' above 256 GPUs where that is given, else 'each'."
    )
    library: LibraryName | None = about(
        "The collectives' library. Default 'nccl' where cluster.gpu.kind is 'cuda', else 'gloo'."
    )
    timeout: Duration | None = about("After how long without progress a real run gives up. Default '60 s'.")
    compute_times: File | None = about(
        "CSV of measured times of computations, which the prediction takes. Relative to this file. Default: none."
    )


class MeasuredGroup(Section):
    """One group of parameters: how far the model with them is off what was measured, relative to that."""

    name: Text | None = about("What they describe: a kind of kernel, or of link. Required.")
    median_error: Error | None = about("The median of predicted over measured, less 1. Required.")
    typical_error: Error | None = about("The median of the errors without their signs. Required.")
    worst_error: Error | None = about("That of the measurement which the model misses most. Required.")
    spread: Error | None = about(
        "Interquartile range of a measurement's repeats over their median, in the median. Default: not known."
    )
    least: Size | None = about("The smallest size measured; what is smaller is extrapolated. Required.")
    most: Size | None = about("The largest size measured; what is larger is extrapolated. Required.")


class MeasuredSection(Section):
    """Where a profile's figures come from; allowed in profiles only, and without influence on what they predict."""

    machine: Text | None = about("The machine's name. Required.")
    cpu: Text | None = about("Its processor. Default: not known.")
    kernel: Text | None = about("Its operating system's kernel. Default: not known.")
    python: Text | None = about("Version of Python. Default: not known.")
    torch: Text | None = about("Version of PyTorch. Default: not known.")
    date: Text | None = about("When: an ISO time. Required.")
    command: Text | None = about("What repeats it. Required.")
    ranks: Machines | None = about("Ranks that took part. Required.")
    duration: Duration | None = about("How long it took. Default: not known.")
    groups: list[MeasuredGroup] | None = about("Groups of parameters, and how good they are. Default: none.")


class Document(Section):
    """A scenario of Twinstep: the cluster, the workload, and how a step is played."""

    # The tables of a program join these in `document.document_type`.
    name: Name | None = about("What reports call it. Default: the file's name without .toml.")
    description: Text | None = about("A line for lists of scenarios and profiles.")
    include: File | list[File] | None = about("Files that supply what this one leaves out; later ones before earlier.")
    measured: MeasuredSection | None = about("Where a profile's figures come from. Only in profiles.")
    program: Text | None = about("What every rank runs: a program's name, or 'package.module:factory'. Required.")
    run: RunSection | None = about("Steps, seed, batch and what plays them. Default: all its defaults.")
    cluster: ClusterSection | None = about("The machines. Required.")
