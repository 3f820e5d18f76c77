"""The tables `pipeline` and `launching`: how a step overlaps with the next, and is launched; loads no torch."""

from __future__ import annotations

from typing import Any, Literal

from scenarios.config.scenario import Launching, Pipeline
from scenarios.config.toml.program_spec import Table
from scenarios.config.toml.section import Section, about, given
from scenarios.config.toml.sections import Document


class PipelineSection(Section):
    """What of the next batch is done beside a step, for program 'dlrm'."""

    kind: Literal["none", "sparse_dist"] | None = about(
        "'sparse_dist': its input exchange, as TorchRec's TrainPipelineSparseDist does. Default 'none'."
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
    key="pipeline", section=PipelineSection, about="What of the next batch is done beside a step. Default: nothing."
)
LAUNCHING = Table(key="launching", section=LaunchingSection, about="How kernels are launched. Default: one by one.")


def build_step(document: Document) -> dict[str, Any]:
    """The scenario's `pipeline` and `launching`."""
    return {
        "pipeline": Pipeline(**given(PIPELINE.of(document), "kind")),
        "launching": Launching(**given(LAUNCHING.of(document), "cuda_graphs", "fusion")),
    }
