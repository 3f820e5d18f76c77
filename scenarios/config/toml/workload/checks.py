"""What must hold within a scenario's workload sections."""

from __future__ import annotations

import math

from scenarios.config.scenario import ELEMENT_BYTES
from scenarios.config.toml.hardware.sections import ClusterSection
from scenarios.config.toml.look import Look
from scenarios.config.toml.schema import expected
from scenarios.config.toml.sections import Document
from scenarios.config.toml.tree import KeyPath
from scenarios.config.toml.values import BYTES_BELOW
from scenarios.config.toml.workload.model_checks import check_model, check_sharding_types
from scenarios.config.toml.workload.sections import (
    CollectiveSection,
    CompressionSection,
    ExchangeSection,
    GradientsSection,
)

NEEDED = {"dlrm": "model", "all_to_all": "exchange", "collective": "collective", "powersgd": "gradients"}
OPTIONAL = {
    "dlrm": ("sharding", "buckets", "compression"),
    "all_to_all": (),
    "collective": (),
    "powersgd": ("buckets", "compression"),
}


def check_program(document: Document, look: Look) -> None:
    """Add a missing workload section, and every section that the program does not read."""
    if document.program is None:
        return
    needed = NEEDED[document.program]
    if getattr(document, needed) is None:
        look.mistakes.missing((needed,), f"a table, because program = '{document.program}'")
    foreign = {*NEEDED.values(), *(key for keys in OPTIONAL.values() for key in keys)}
    foreign -= {needed, *OPTIONAL[document.program]}
    look.refuse((), document, tuple(sorted(foreign)), f"with program = '{document.program}'")


def check_workload(document: Document, look: Look) -> None:
    """Add everything that is missing from the workload or does not fit together."""
    if document.model is not None:
        check_model(document.model, document, look.mistakes)
    if document.sharding is not None:
        check_sharding_types(document.sharding.types, ("sharding", "types"), look.mistakes)
    _check_compression(document.compression or CompressionSection(), look)
    if document.exchange is not None:
        _check_exchange(document.exchange, ("exchange",), look)
    if document.collective is not None:
        _check_collective(document, document.collective, look)
    if document.gradients is not None:
        _check_gradients(document.gradients, look)


def check_dtypes(document: Document, cluster: ClusterSection, look: Look) -> None:
    """The GPU needs a rate for what the workload computes in."""
    flops = cluster.gpu.flops if cluster.gpu else None
    for section in ("model", "gradients"):
        workload = document.model if section == "model" else document.gradients
        dtype = workload.dtype if workload else None
        if NEEDED.get(document.program or "") == section and dtype not in (None, "float32") and flops is not None:
            path = ("cluster", "gpu", "flops", str(dtype))
            reason = f"because {section}.dtype = '{dtype}'"
            if getattr(flops, str(dtype)) is None:
                look.mistakes.missing(path, f"{expected(type(flops), str(dtype))}, {reason}")


def _check_compression(compression: CompressionSection, look: Look) -> None:
    """As PowerSGDState does: what is carried from step to step needs steps that went before."""
    keys = ("start_powerSGD_iter", "use_error_feedback", "warm_start", "kind")
    path: KeyPath = ("compression", "start_powerSGD_iter")
    start = compression.start_powerSGD_iter
    carries = {"use_error_feedback": compression.use_error_feedback, "warm_start": compression.warm_start}
    on = [key for key, value in carries.items() if value is not False]
    if start is not None and start <= 1 and on and look.mistakes.sound(*(("compression", key) for key in keys)):
        look.mistakes.add(path, f"at least 2 with {' and '.join(on)}")


def _check_exchange(exchange: ExchangeSection | CollectiveSection, path: KeyPath, look: Look) -> None:
    look.need(path, exchange, "size")
    element = ELEMENT_BYTES[exchange.dtype or "float32"]
    if exchange.size is not None and look.mistakes.sound((*path, "dtype")) and exchange.size % element:
        look.mistakes.add((*path, "size"), f"a multiple of {element} bytes, a {exchange.dtype or 'float32'}")
    if exchange.skew and exchange.splits != "random" and look.mistakes.sound((*path, "splits")):
        look.mistakes.add((*path, "skew"), "0 unless splits = 'random'")


def _check_collective(document: Document, collective: CollectiveSection, look: Look) -> None:
    path = ("collective",)
    look.need(path, collective, "op")
    _check_exchange(collective, path, look)
    if collective.op != "all_to_all" and look.mistakes.sound((*path, "op")):
        look.refuse(path, collective, ("splits", "skew"), f"with op = '{collective.op}'")


def _check_gradients(gradients: GradientsSection, look: Look) -> None:
    path = ("gradients",)
    if gradients.model is None and gradients.shapes is None and look.mistakes.sound((*path, "model")):
        look.mistakes.missing((*path, "shapes"), "an array of shapes, or model = 'resnet50'")
    if gradients.model is not None:
        look.refuse(path, gradients, ("shapes",), f"with model = '{gradients.model}'")
    if gradients.shapes is not None and not gradients.shapes:
        look.mistakes.add((*path, "shapes"), "at least one shape")
    dtype = gradients.dtype or "float32"
    elements = sum(map(math.prod, gradients.shapes or []))
    if look.mistakes.sound((*path, "dtype")) and elements * ELEMENT_BYTES[dtype] >= BYTES_BELOW:
        most = BYTES_BELOW // ELEMENT_BYTES[dtype]
        look.mistakes.add((*path, "shapes"), f"fewer than {most} elements of {dtype} in all")
