"""The table `qcomms`: how exchanges of embeddings are quantized, with TorchRec's names; loads no torch."""

from __future__ import annotations

from typing import Literal

from scenarios.config.scenario import CommPrecision, QComms
from scenarios.config.toml.look import Look
from scenarios.config.toml.program_spec import Table
from scenarios.config.toml.section import Section, about, given
from scenarios.config.toml.sections import Document
from scenarios.config.toml.values import Positive, Width

ALIGNED = 4  # bytes of an encoded row's scale, before which TorchRec pads: it then decodes the padding, too

_Direction = Literal["forward", "backward"]


class QCommsSection(Section):
    """Quantized exchanges of embeddings, with QCommsConfig's names, for program 'dlrm'."""

    forward_precision: CommPrecision | None = about(
        "Precision of pooled rows and sequences sent home. Reduce-scatters send 'fp16' for 'fp8' and cannot add 'int8'."
        " Default 'fp32'."
    )
    backward_precision: CommPrecision | None = about(
        "Precision of their gradients. All-gathers, the way back of reduce-scatters, send 'bf16' for 'fp8', and not"
        " 'int8'. Default 'fp32'."
    )
    forward_loss_scale: Positive | None = about(
        "What rows are multiplied by before they are 'fp16' or 'bf16', and divided by after. Default: none."
    )
    backward_loss_scale: Positive | None = about(
        "What gradients are multiplied by before they are 'fp16' or 'bf16', and divided by after. Default: none."
    )
    fp8_quantize_dim: Width | None = about(
        "Elements that share a scale in 'fp8', a multiple of 4. Required by forward_precision 'fp8'."
    )
    fp8_quantize_dim_bwd: Width | None = about(
        "Elements of gradients that share a scale in 'fp8', a multiple of 4. Default: fp8_quantize_dim."
    )
    fp8_bwd_uses_143: bool | None = about(
        "Whether gradients in 'fp8' have 4 bits of exponent as rows have, not 5. Default false."
    )


def _check(section: QCommsSection, document: Document, look: Look) -> None:
    both: tuple[_Direction, _Direction] = ("forward", "backward")
    for direction in both:
        precision = getattr(section, f"{direction}_precision") or "fp32"
        if precision in ("fp32", "int8"):
            reason = f"with {direction}_precision = '{precision}', which has none"
            look.refuse(("qcomms",), section, (f"{direction}_loss_scale",), reason)
    if section.backward_precision != "fp8":
        keys = ("fp8_quantize_dim_bwd", "fp8_bwd_uses_143")
        look.refuse(("qcomms",), section, keys, "but with backward_precision = 'fp8'")
    if "fp8" not in (section.forward_precision, section.backward_precision):
        look.refuse(("qcomms",), section, ("fp8_quantize_dim",), "but with a precision of 'fp8'")
    if section.forward_precision == "fp8" or (
        section.backward_precision == "fp8" and section.fp8_quantize_dim_bwd is None
    ):
        look.need(("qcomms",), section, "fp8_quantize_dim")
    for key in ("fp8_quantize_dim", "fp8_quantize_dim_bwd"):
        if look.mistakes.sound(("qcomms", key)) and (getattr(section, key) or ALIGNED) % ALIGNED:
            look.mistakes.add(("qcomms", key), f"a multiple of {ALIGNED}")


QCOMMS = Table(
    key="qcomms",
    section=QCommsSection,
    about="How exchanges of embeddings are quantized. Default: not at all.",
    check=_check,
)


def check_qcomms_dtype(dtype: str | None, document: Document, look: Look) -> None:
    """Add a precision where pooled rows are no float32, which codecs encode."""
    section = QCOMMS.of(document)
    if section is None or dtype in (None, "float32"):
        return
    for key in ("forward_precision", "backward_precision"):
        if getattr(section, key) not in (None, "fp32"):
            look.mistakes.add(("qcomms", key), f"'fp32' with model.dtype = '{dtype}', for only float32 is quantized")


def build_qcomms(document: Document) -> QComms:
    """The scenario's `qcomms`."""
    return QComms(**given(QCOMMS.of(document), *QCommsSection.model_fields))
