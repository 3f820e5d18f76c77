"""The table `gradients` of a scenario file, and the program that reads it; loads no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from scenarios.config.scenario import GradientReduction, Gradients, Scenario
from scenarios.config.toml.look import Look
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, ScenarioTable, check_dtype
from scenarios.config.toml.section import have
from scenarios.config.toml.sections import Document
from scenarios.config.toml.values import BYTES_BELOW
from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.workloads.effort import Effort
from scenarios.workloads.step_tables import BUCKETS, COMPRESSION

Shape = tuple[int, ...]

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # width of the 3x3 convolutions, number of blocks
EXPANSION = 4  # a block's outputs over its width
CLASSES = 1000


def _check_gradients(section: Any, document: Document, look: Look) -> None:
    path = ("gradients",)
    if section.model is None and section.shapes is None and look.mistakes.sound((*path, "model")):
        look.mistakes.missing((*path, "shapes"), "an array of shapes, or model = 'resnet50'")
    if section.model is not None:
        look.refuse(path, section, ("shapes",), f"with model = '{section.model}'")
    if section.shapes is not None and not section.shapes:
        look.mistakes.add((*path, "shapes"), "at least one shape")
    dtype = section.dtype or "float32"
    elements = sum(map(math.prod, section.shapes or []))
    if look.mistakes.sound((*path, "dtype")) and elements * ELEMENT_BYTES[dtype] >= BYTES_BELOW:
        most = BYTES_BELOW // ELEMENT_BYTES[dtype]
        look.mistakes.add((*path, "shapes"), f"fewer than {most} elements of {dtype} in all")


def _check(document: Document, look: Look) -> None:
    section = TABLE.of(document)
    check_dtype(section.dtype if section else None, "gradients", document, look)


def step_effort(scenario: Scenario) -> Effort:
    """Return the effort of simulating every rank: each parameter's passes, and its share of the reduction."""
    return Effort(operations=4 * scenario.cluster.world_size * len(GradientReduction.of(scenario.workload).shapes))


def _gradients(document: Document, mistakes: Mistakes) -> Gradients:
    given = {"shapes": resnet50_shapes()} if have(TABLE.of(document)).model else {}
    return TABLE.build(document, **given)


def resnet50_shapes() -> tuple[Shape, ...]:
    """Return every trainable parameter's shape, in the order of the forward pass: 161 tensors, 25,557,032 elements.

    Kaiming He et al., Deep Residual Learning for Image Recognition, CVPR 2016, table 1, the 50-layer column; parameters
    in the order in which torchvision registers them.
    """
    return tuple(_parameters())


def _parameters() -> Iterator[Shape]:
    yield from _normalized_convolution(3, 64, 7)
    inputs = 64
    for width, blocks in STAGES:
        for block in range(blocks):
            yield from _bottleneck(inputs, width, shortcut=block == 0)
            inputs = width * EXPANSION
    yield (CLASSES, inputs)
    yield (CLASSES,)


def _bottleneck(inputs: int, width: int, *, shortcut: bool) -> Iterator[Shape]:
    yield from _normalized_convolution(inputs, width, 1)
    yield from _normalized_convolution(width, width, 3)
    yield from _normalized_convolution(width, width * EXPANSION, 1)
    if shortcut:
        yield from _normalized_convolution(inputs, width * EXPANSION, 1)


def _normalized_convolution(inputs: int, outputs: int, kernel: int) -> Iterator[Shape]:
    """Yield a convolution without bias, then the weight and bias of its batch normalization."""
    yield (outputs, inputs, kernel, kernel)
    yield (outputs,)
    yield (outputs,)


TABLE = ScenarioTable(
    key="gradients",
    values=Gradients,
    about="Shapes of the gradients. Required by program 'powersgd'.",
    check=_check_gradients,
    make=_gradients,
)
SPEC = ProgramSpec(
    factory="scenarios.workloads.powersgd.program:PowerSGDProgram",
    workload=GradientReduction,
    summary="gradient reduction with compression",
    needs=TABLE,
    may=(BUCKETS, COMPRESSION),
    batch_size="refused",
    check=_check,
    effort=step_effort,
)
