"""The tables `pipeline` and `launching`: how a step overlaps with the next, and is launched; loads no torch."""

from __future__ import annotations

from typing import Any, Literal

from scenarios.config.scenario import Launching, Pipeline
from scenarios.config.toml.program_spec import Table
from scenarios.config.toml.section import Section, about, given
from scenarios.config.toml.sections import Document


class PipelineSection(Section):
    """What goes on beside what, for program 'dlrm'."""

    kind: Literal["none", "sparse_dist", "prefetch_sparse_dist"] | None = about(
        "'sparse_dist': the next batch's input exchange, as TorchRec's TrainPipelineSparseDist does;"
        " 'prefetch_sparse_dist': that of the batch after next, and rows that the next batch misses in caches, as"
        " PrefetchTrainPipelineSparseDist. Default 'none'."
    )
    order: Literal["eager", "overlapped"] | None = about(
        "'eager': tables are exchanged and looked up where the dense part first uses any, and its backward pass waits"
        " there until their rows are updated, as autograd runs TorchRec's modules; 'overlapped': exchanges go on beside"
        " what needs them not. Default 'eager'."
    )


class LaunchingSection(Section):
    """How kernels are launched on GPUs, for program 'dlrm'; predictions price it, real runs do as torch does."""

    cuda_graphs: bool | None = about(
        "Whether a step is launched as CUDA graphs: no kernel waits for the host. Default false."
    )
    fusion: bool | None = about(
        "Whether elementwise operators become one with what they follow, as torch.compile does it. Default false."
    )


PIPELINE = Table(
    key="pipeline",
    section=PipelineSection,
    about="What goes on beside what. Default: as eager PyTorch does it.",
)
LAUNCHING = Table(key="launching", section=LaunchingSection, about="How kernels are launched. Default: one by one.")


def build_step(document: Document) -> dict[str, Any]:
    """The scenario's `pipeline` and `launching`."""
    return {
        "pipeline": Pipeline(**given(PIPELINE.of(document), "kind", "order")),
        "launching": Launching(**given(LAUNCHING.of(document), "cuda_graphs", "fusion")),
    }
