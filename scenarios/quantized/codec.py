"""Codecs of the messages of embedding exchanges, equal to the bit to TorchRec 1.8.0's QCommsConfig, and their costs.

TorchRec gives each kind of exchange a pair of codecs (`get_qcomm_codecs_registry`); `quantized_comms` does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from scenarios.config.scenario import CommPrecision, QComms
from scenarios.quantized import rows_device
from scenarios.quantized.formats import BACKWARD_FP8, FORWARD_FP8, INT8_ROW_SIZE, Minifloat, row_bytes
from scenarios.seam.kernel import Kernel

FLOAT_BYTES = torch.float32.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfCodec:
    """A codec of float32 in 16 bits an element; larger values become the largest.

    `loss_scale` multiplies values before encoding; decoding divides by it while values still have 16 bits, as in
    TorchRec.
    """

    precision: CommPrecision  # "fp16" or "bf16"
    loss_scale: float | None = None

    @property
    def dtype(self) -> torch.dtype:
        return torch.float16 if self.precision == "fp16" else torch.bfloat16

    @property
    def row_size(self) -> int:
        """The number of elements that are encoded together; only whole rows can be sent."""
        return 1

    def encoded_size(self, elements: float) -> float:
        """Return the items of `dtype` that `elements` elements become; an int if they are whole rows."""
        return elements

    def encode(self, values: Tensor) -> Tensor:
        if values.is_meta:
            return values.new_empty(values.shape, dtype=self.dtype)
        largest = torch.finfo(self.dtype).max
        scaled = values if self.loss_scale is None else values * self.loss_scale
        # As TorchRec's casts with clamp: larger values would become infinite.
        return scaled.clamp(-largest, largest).to(self.dtype)

    def decode(self, encoded: Tensor) -> Tensor:
        if encoded.is_meta:
            return encoded.new_empty(encoded.shape, dtype=torch.float32)
        return (encoded if self.loss_scale is None else encoded / self.loss_scale).float()

    def encode_kernel(self, elements: int) -> Kernel:
        """Price the scaling, clamping and rounding of `elements`."""
        return self._kernel(elements, 2, FLOAT_BYTES, self.dtype.itemsize)

    def decode_kernel(self, elements: int) -> Kernel:
        """Price the scaling and widening of `elements`."""
        return self._kernel(elements, 1, self.dtype.itemsize, FLOAT_BYTES)

    def _kernel(self, elements: int, passes: int, read_bytes: int, last_bytes: int) -> Kernel:
        """Price passes over elements of `read_bytes`, the last into elements of `last_bytes`; scaling is one more."""
        passes += self.loss_scale is not None
        return Kernel(
            kind="elementwise",
            flops=float(passes * elements),
            bytes_read=float(passes * read_bytes * elements),
            bytes_written=float(((passes - 1) * read_bytes + last_bytes) * elements),
            launches=passes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCodec:
    """A codec of flat float32 in rows of `row_size` elements, in one byte each, followed by two float32.

    Without `minifloat` int8: steps from a row's least to its largest element. With it fp8: the minifloat's numbers,
    scaled so that a row's largest magnitude is the largest of them. As int8 a row with a NaN is all NaN (in FBGEMM the
    result depends on the NaN's position); as fp8 a NaN becomes the largest number, as in FBGEMM.
    """

    row_size: int
    minifloat: Minifloat | None = None

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8

    def encoded_size(self, elements: float) -> float:
        rows, rest = divmod(elements, self.row_size)
        return (elements / self.row_size if rest else rows) * row_bytes(self.row_size)

    def encode(self, values: Tensor) -> Tensor:
        if values.is_meta:
            return values.new_empty(round(self.encoded_size(values.numel())), dtype=self.dtype)
        rows = _rows(values.device)
        return self._encode(values, rows.encode_int8, rows.encode_fp8)

    def decode(self, encoded: Tensor) -> Tensor:
        if encoded.is_meta:
            elements = encoded.numel() / row_bytes(self.row_size) * self.row_size
            return encoded.new_empty(round(elements), dtype=torch.float32)
        rows = _rows(encoded.device)
        return self._encode(encoded, rows.decode_int8, rows.decode_fp8)

    def _encode(self, source: Tensor, int8: Callable[..., Tensor], fp8: Callable[..., Tensor]) -> Tensor:
        return int8(source, self.row_size) if self.minifloat is None else fp8(source, self.row_size, self.minifloat)

    def encode_kernel(self, elements: int) -> Kernel:
        """Price two passes, as in FBGEMM's kernels for more than 20 rows: the first finds each row's range, the second
        writes.
        """
        return Kernel(
            kind="elementwise",
            flops=float(5 * elements),
            bytes_read=float(2 * FLOAT_BYTES * elements),
            bytes_written=float(self.encoded_size(elements)),
            launches=2,
        )

    def decode_kernel(self, elements: int) -> Kernel:
        """Price one pass over the encoded rows."""
        return Kernel(
            kind="elementwise",
            flops=float(2 * elements),
            bytes_read=float(self.encoded_size(elements)),
            bytes_written=float(FLOAT_BYTES * elements),
        )


Codec = HalfCodec | RowCodec


@dataclass(frozen=True, slots=True, kw_only=True)
class Codecs:
    """A pair of codecs of one kind of exchange, forward and backward; None sends float32 unencoded."""

    forward: Codec | None = None
    backward: Codec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedComms:
    """A set of codecs: of exchanged pooled rows and sequences, and of reduce-scattered sums."""

    all_to_all: Codecs = Codecs()
    reduce_scatter: Codecs = Codecs()

    def load(self, device: torch.device) -> None:
        """Compile the codecs for a device, before any step."""
        for codec in (self.all_to_all.forward, self.all_to_all.backward):
            if isinstance(codec, RowCodec) and device.type != "meta":
                _rows(device).load()


PLAIN = QuantizedComms()


def quantized_comms(source: QComms) -> QuantizedComms:
    """Return the codecs of a scenario.

    fp8 cannot be added: as in TorchRec 1.8.0 a reduce-scatter sends fp16 in its place, and its backward, an all-gather,
    bf16. int8 is for exchanges alone: the code that builds groups of tables refuses it where sums travel.
    """
    formats = FORWARD_FP8, FORWARD_FP8 if source.fp8_bwd_uses_143 else BACKWARD_FP8
    row_sizes = source.fp8_quantize_dim, source.fp8_quantize_dim_bwd or source.fp8_quantize_dim

    def codec(precision: CommPrecision, loss_scale: float | None, row_size: int | None, of: Minifloat) -> Codec | None:
        if precision in ("fp16", "bf16"):
            return HalfCodec(precision=precision, loss_scale=loss_scale)
        if precision == "int8":
            return RowCodec(row_size=INT8_ROW_SIZE)
        if precision == "fp8":
            assert row_size is not None, "fp8 has rows of a size"
            return RowCodec(row_size=row_size, minifloat=of)
        return None

    def codecs(first: CommPrecision = "fp8", second: CommPrecision = "fp8") -> Codecs:
        forward, backward = source.forward_precision, source.backward_precision
        return Codecs(
            forward=codec(first if forward == "fp8" else forward, source.forward_loss_scale, row_sizes[0], formats[0]),
            backward=codec(
                second if backward == "fp8" else backward, source.backward_loss_scale, row_sizes[1], formats[1]
            ),
        )

    return QuantizedComms(all_to_all=codecs(), reduce_scatter=codecs("fp16", "bf16"))


def _rows(device: torch.device) -> ModuleType:
    """Return the module that encodes rows on a device; imported when first needed, as numba takes a while."""
    if device.type == "cpu":
        from scenarios.quantized import rows_host  # noqa: PLC0415

        return rows_host
    return rows_device
