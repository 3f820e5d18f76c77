"""The tables `buckets` and `compression`, of all programs that reduce gradients; loads no torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from scenarios.config.scenario import LEAST_POWERSGD_START, Buckets, Compression
from scenarios.config.toml.look import Look
from scenarios.config.toml.program_spec import Table
from scenarios.config.toml.section import Section, about, given
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath
from scenarios.config.toml.values import Count, CountOrZero, NotNegative, Positive, Seed32, Size, Width


class BucketsSection(Section):
    """Gradient buckets, as DDP makes them, for programs 'dlrm' and 'powersgd' and recorded scripts."""

    first: Size | None = about(
        "Cap of the first bucket. Default '1 MiB' as of DDP; with program 'dlrm' cap, as of DistributedModelParallel."
    )
    cap: Size | None = about("Cap of the others. Default '25 MiB'.")


class CompressionSection(Section):
    """Gradient compression, with PowerSGDState's names, for programs 'dlrm' and 'powersgd' and recorded scripts."""

    kind: Literal["none", "batched_powersgd", "layerwise_powersgd"] | None = about(
        "'none' leaves the other options without effect. Default 'none'."
    )
    matrix_approximation_rank: Width | None = about("Rank of the approximation. Default 1.")
    start_powerSGD_iter: CountOrZero | None = about(  # noqa: N815 - PowerSGDState's own name
        "Steps of plain all-reduce before; at least 2 with error feedback or warm start. Default 1000."
    )
    min_compression_rate: Positive | None = about("Below this gain, layers are not compressed. Default 2.")
    use_error_feedback: bool | None = about("Whether what was lost is added to the next gradient. Default true.")
    warm_start: bool | None = about("Whether the last step's Q is the next one's start. Default true.")
    orthogonalization_epsilon: NotNegative | None = about("Added to norms to keep them from zero. Default 0.")
    random_seed: Seed32 | None = about("Seed of the initial Q, the same on all ranks. Default 0.")
    compression_stats_logging_frequency: Count | None = about("Steps between two statistics. Default 10000.")
    batch_tensors_with_same_shape: bool | None = about(
        "Whether layers of one shape are orthogonalized together. Default false."
    )


def _check_compression(section: CompressionSection, document: Document, look: Look) -> None:
    """Check as PowerSGDState does that what is carried between steps has earlier steps."""
    keys = ("start_powerSGD_iter", "use_error_feedback", "warm_start", "kind")
    path: KeyPath = ("compression", "start_powerSGD_iter")
    start = section.start_powerSGD_iter
    carries = {"use_error_feedback": section.use_error_feedback, "warm_start": section.warm_start}
    on = [key for key, value in carries.items() if value is not False]
    if (
        start is not None
        and start < LEAST_POWERSGD_START
        and on
        and look.mistakes.sound(*(("compression", key) for key in keys))
    ):
        look.mistakes.add(path, f"at least {LEAST_POWERSGD_START} with {' and '.join(on)}")


BUCKETS = Table(key="buckets", section=BucketsSection, about="Sizes of gradient buckets. Default: as DDP makes them.")
COMPRESSION = Table(
    key="compression",
    section=CompressionSection,
    about="How gradients are compressed. Default: not at all.",
    check=_check_compression,
)


def build_reduction(document: Document, *, first_is_cap: bool = False) -> dict[str, Any]:
    """The scenario's `buckets` and `compression`; without compression its other keys have no effect.

    With `first_is_cap` the first bucket is like the others, where the document does not say.
    """
    section = COMPRESSION.of(document)
    buckets = Buckets(**given(BUCKETS.of(document), "first", "cap", suffix="_bytes"))
    if first_is_cap and getattr(BUCKETS.of(document), "first", None) is None:
        buckets = replace(buckets, first_bytes=buckets.cap_bytes)
    is_on = section is not None and section.kind not in (None, "none")
    return {
        "buckets": buckets,
        "compression": Compression(**given(section, *CompressionSection.model_fields)) if is_on else Compression(),
    }
