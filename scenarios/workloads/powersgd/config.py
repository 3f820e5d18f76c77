"""The table `gradients` of a scenario file, and the program that reads it; loads no torch."""

from __future__ import annotations

import math
from typing import Any, Literal

from scenarios.config.scenario import ELEMENT_BYTES, Gradients
from scenarios.config.toml.look import Look
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, Table, check_dtype
from scenarios.config.toml.section import Section, about, given, have
from scenarios.config.toml.sections import Document
from scenarios.config.toml.values import BYTES_BELOW, Count, Flops
from scenarios.workloads.gradient_tables import BUCKETS, COMPRESSION, build_reduction
from scenarios.workloads.powersgd.resnet import resnet50_shapes


class GradientsSection(Section):
    """What program 'powersgd' reduces."""

    model: Literal["resnet50"] | None = about("A known model's parameter shapes, instead of `shapes`.")
    shapes: list[list[Count]] | None = about("Parameter shapes in the order of the forward pass.")
    forward_flops: Flops | None = about("A rank's forward pass, before the backward pass. Default '0 FLOP'.")
    backward_flops: Flops | None = about("A rank's backward pass, such as '250 GFLOP'. Default '0 FLOP'.")
    dtype: Literal["float32", "float64", "bfloat16", "float16"] | None = about("Of gradients. Default 'float32'.")


def _check_gradients(section: GradientsSection, document: Document, look: Look) -> None:
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


def _build(document: Document, mistakes: Mistakes) -> dict[str, Any]:
    section = have(TABLE.of(document))
    shapes = resnet50_shapes() if section.model else tuple(map(tuple, have(section.shapes)))
    options = given(section, "forward_flops", "backward_flops", "dtype")
    return {"gradients": Gradients(shapes=shapes, **options), **build_reduction(document)}


TABLE = Table(
    key="gradients",
    section=GradientsSection,
    about="The gradients. Required by program 'powersgd'.",
    check=_check_gradients,
)
SPEC = ProgramSpec(
    name="powersgd",
    factory="scenarios.workloads.powersgd.program:PowerSGDProgram",
    summary="gradient compression alone",
    needs=TABLE,
    may=(BUCKETS, COMPRESSION),
    batch_size="refused",
    check=_check,
    build=_build,
)
