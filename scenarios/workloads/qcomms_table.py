"""The table `qcomms`: quantization of embedding exchanges, with TorchRec's names; loads no torch."""

from __future__ import annotations

from typing import Any, Literal

from scenarios.config.scenario import QComms
from scenarios.config.toml.look import Look
from scenarios.config.toml.program_spec import ScenarioTable
from scenarios.config.toml.sections import Document

ALIGNED = 4  # bytes of an encoded row's scale; TorchRec pads to it, and then decodes the padding, too

_Direction = Literal["forward", "backward"]


def _check(section: Any, document: Document, look: Look) -> None:
    both: tuple[_Direction, _Direction] = ("forward", "backward")
    for direction in both:
        precision = getattr(section, f"{direction}_precision") or "fp32"
        if precision in ("fp32", "int8"):
            reason = f"with {direction}_precision = '{precision}', which has none"
            look.refuse(("qcomms",), section, (f"{direction}_loss_scale",), reason)
    if "fp8" not in (section.forward_precision, section.backward_precision):
        look.refuse(("qcomms",), section, ("fp8_quantize_dim",), "but with a precision of 'fp8'")
    if section.forward_precision == "fp8" or (
        section.backward_precision == "fp8" and section.fp8_quantize_dim_bwd is None
    ):
        look.need(("qcomms",), section, "fp8_quantize_dim")
    for key in ("fp8_quantize_dim", "fp8_quantize_dim_bwd"):
        if look.mistakes.sound(("qcomms", key)) and (getattr(section, key) or ALIGNED) % ALIGNED:
            look.mistakes.add(("qcomms", key), f"a multiple of {ALIGNED}")


QCOMMS = ScenarioTable(
    key="qcomms",
    values=QComms,
    about="Quantization of embedding exchanges. Default: none.",
    check=_check,
)


def check_qcomms_dtype(dtype: str | None, document: Document, look: Look) -> None:
    """Add a mistake for each precision if pooled rows are not float32, the only dtype that codecs encode."""
    section = QCOMMS.of(document)
    if section is None or dtype in (None, "float32"):
        return
    for key in ("forward_precision", "backward_precision"):
        if getattr(section, key) not in (None, "fp32"):
            look.mistakes.add(("qcomms", key), f"'fp32' with model.dtype = '{dtype}', for only float32 is quantized")
