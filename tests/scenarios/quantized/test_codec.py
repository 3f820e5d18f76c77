"""Codecs: TorchRec's to the bit, errors within what their bits allow, and what they declare to cost."""

from __future__ import annotations

from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scenarios.config.scenario import CommPrecision, QComms
from scenarios.quantized import Codec, HalfCodec, RowCodec, quantized_comms, rows_device, rows_host
from scenarios.quantized.formats import BACKWARD_FP8, FORWARD_FP8, INT8_EPSILON, INT8_ROW_SIZE, Minifloat
from tests.scenarios.quantized.recorded import ENCODED, SAID, codec_of, record, same_bits

ROWS = [rows_host, rows_device]


@pytest.mark.parametrize("name", ENCODED)
def test_codecs_equal_torchrecs_bits(name: str) -> None:
    codec, wanted = codec_of(name), record(f"{name}.encoded")
    encoded = codec.encode(record(f"{name}.input"))
    if isinstance(codec, HalfCodec):
        assert same_bits(encoded.float(), wanted.view(codec.dtype).float())
    else:
        assert torch.equal(encoded, wanted)
    assert same_bits(codec.decode(encoded), record(f"{name}.decoded"))


@pytest.mark.parametrize("name", [name for name in ENCODED if name.startswith(("int8", "fp8"))])
def test_torch_operations_do_the_same_on_any_device(name: str) -> None:
    codec = codec_of(name)
    assert isinstance(codec, RowCodec)
    values, size, of = record(f"{name}.input"), codec.row_size, codec.minifloat
    encoded = rows_device.encode_int8(values, size) if of is None else rows_device.encode_fp8(values, size, of)
    decoded = rows_device.decode_int8(encoded, size) if of is None else rows_device.decode_fp8(encoded, size, of)
    assert torch.equal(encoded, record(f"{name}.encoded"))
    assert same_bits(decoded, record(f"{name}.decoded"))


@pytest.mark.parametrize("kind", ["fp16", "bf16", "int8", "fp8"])
def test_sizes_are_torchrecs(kind: CommPrecision) -> None:
    codec = quantized_comms(QComms(forward_precision=kind, fp8_quantize_dim=20)).all_to_all.forward
    assert codec is not None
    for elements, size in SAID["sizes"][kind].items():
        assert codec.encoded_size(int(elements)) == size
        assert codec.encode(torch.zeros(int(elements))).numel() == size
        assert codec.encode(torch.zeros(int(elements), device="meta")).shape == (size,)
        assert codec.decode(torch.zeros(size, dtype=codec.dtype, device="meta")).shape == (int(elements),)


def precision_of(codec: Codec | None) -> str:
    if isinstance(codec, HalfCodec):
        return codec.precision
    assert isinstance(codec, RowCodec)
    return "int8" if codec.minifloat is None else "fp8"


@pytest.mark.parametrize("kind", ["fp16", "bf16", "int8", "fp8"])
def test_gpu_fallback_equals_torchrecs(kind: CommPrecision) -> None:
    made = quantized_comms(QComms(forward_precision=kind, backward_precision=kind, fp8_quantize_dim=4))
    for name, codecs in (
        ("POOLED_EMBEDDINGS_ALL_TO_ALL", made.all_to_all),
        ("SEQUENCE_EMBEDDINGS_ALL_TO_ALL", made.all_to_all),
        ("POOLED_EMBEDDINGS_REDUCE_SCATTER", made.reduce_scatter),
    ):
        wanted = SAID["registry"][f"{kind}.{name}"]
        assert [precision_of(codecs.forward), precision_of(codecs.backward)] == wanted


def test_directions_have_separate_formats() -> None:
    given = QComms(backward_precision="fp8", fp8_quantize_dim=8, fp8_quantize_dim_bwd=16)
    made = quantized_comms(given).all_to_all
    assert made.forward is None
    assert made.backward == RowCodec(row_size=16, minifloat=BACKWARD_FP8)
    like_forward = QComms(backward_precision="fp8", fp8_quantize_dim=8, fp8_bwd_uses_143=True)
    assert quantized_comms(like_forward).all_to_all.backward == RowCodec(row_size=8, minifloat=FORWARD_FP8)
    scaled = quantized_comms(QComms(forward_precision="fp8", fp8_quantize_dim=8, forward_loss_scale=2.0))
    assert scaled.reduce_scatter.forward == HalfCodec(precision="fp16", loss_scale=2.0)


FLOATS = st.floats(-(2.0**60), 2.0**60, width=32)


def rows(size: int) -> st.SearchStrategy[Tensor]:
    return st.lists(FLOATS, min_size=size, max_size=3 * size).map(
        lambda values: torch.tensor(values[: len(values) // size * size], dtype=torch.float32)
    )


def errors(codec: Codec, values: Tensor) -> Tensor:
    """What is lost, in float64, which holds differences of float32 well enough."""
    return (codec.decode(codec.encode(values)).double() - values.double()).abs()


@given(rows(1))
def test_halves_lose_half_a_unit_in_their_last_place(values: Tensor) -> None:
    """fp16 has 11 bits and 2^-24 as its smallest number, bf16 8 bits and 2^-133."""
    kept = values.clamp(-65504.0, 65504.0)  # fp16 has no larger one
    size = kept.double().abs()
    assert (errors(HalfCodec(precision="fp16"), kept) <= torch.maximum(size * 2**-11, torch.tensor(2.0**-25))).all()
    whole = values.double().abs()
    assert (errors(HalfCodec(precision="bf16"), values) <= (whole * 2**-8).clamp(min=2.0**-134)).all()
    clamped = HalfCodec(precision="fp16")
    assert torch.equal(clamped.decode(clamped.encode(values)), clamped.decode(clamped.encode(kept)))


@given(rows(INT8_ROW_SIZE))
def test_int8_loses_half_a_step_of_its_row(values: Tensor) -> None:
    """Half of range / 255; what its epsilon takes off the range, at most the epsilon; and float32's own roundings.

    Those are of the range, its scale, the difference, their product (four of 2^-24, relative to up to the range) and of
    the result, relative to the row's largest magnitude.
    """
    by_row = values.view(-1, INT8_ROW_SIZE).double()
    span = by_row.amax(1, keepdim=True) - by_row.amin(1, keepdim=True)
    allowed = span / 510 + INT8_EPSILON + 2**-22 * span + 2**-24 * by_row.abs().amax(1, keepdim=True) + 2.0**-149
    assert (errors(RowCodec(row_size=INT8_ROW_SIZE), values).view_as(by_row) <= allowed).all()


@pytest.mark.parametrize("minifloat", [FORWARD_FP8, BACKWARD_FP8], ids=["forward", "backward"])
@given(values=rows(8))
def test_fp8_loses_half_a_unit_in_its_last_place(minifloat: Minifloat, values: Tensor) -> None:
    """Of its mantissa, or of its smallest number, which is as small a part of the row's largest magnitude.

    Its scale, the scaled element and the result are rounded to float32. Rows below its epsilon are scaled to less.
    """
    by_row = values.view(-1, 8).double()
    most = by_row.abs().amax(1, keepdim=True).clamp(min=1e-20) + 1e-20
    least = 2.0 ** (minifloat.least_exponent - minifloat.mantissa_bits)
    allowed = torch.maximum(by_row.abs() * 2.0 ** -(minifloat.mantissa_bits + 1), least / 2 * most / minifloat.largest)
    found = errors(RowCodec(row_size=8, minifloat=minifloat), values).view_as(by_row)
    assert (found <= allowed + 2**-22 * by_row.abs() + 2.0**-149).all()


@pytest.mark.parametrize("minifloat", [FORWARD_FP8, BACKWARD_FP8], ids=["forward", "backward"])
def test_fp8_is_what_the_nearest_of_its_numbers_is(minifloat: Minifloat) -> None:
    """Every number comes back, and what lies between two goes to the nearer one, or to the one of even code."""
    numbers = torch.from_numpy(minifloat.values()[:128])
    numbers = numbers[numbers <= minifloat.largest]
    # Rows of the largest, whose scale is then 1, and of others; codes count up from zero.
    scaled = torch.stack([torch.full_like(numbers, minifloat.largest), numbers, -numbers, numbers], 1).flatten()
    codes = rows_host.encode_fp8(scaled, 4, minifloat).view(-1, 12)[:, :4]
    assert codes[:, 1].tolist() == list(range(len(numbers)))
    assert codes[:, 2].tolist() == [code | 0x80 for code in range(len(numbers))]
    between = (numbers[:-1].double() + numbers[1:].double()).div(2).float()
    ties = torch.stack([torch.full_like(between, minifloat.largest), between, between, between], 1).flatten()
    found = rows_host.encode_fp8(ties, 4, minifloat).view(-1, 12)[:, 1]
    assert found.tolist() == [code + code % 2 for code in range(len(between))]


@given(rows(INT8_ROW_SIZE))
def test_host_and_device_encodings_are_equal(values: Tensor) -> None:
    assert torch.equal(rows_host.encode_int8(values, 32), rows_device.encode_int8(values, 32))
    for of in (FORWARD_FP8, BACKWARD_FP8):
        host, device = (where.encode_fp8(values, 16, of) for where in ROWS)
        assert torch.equal(host, device)
        assert same_bits(rows_host.decode_fp8(host, 16, of), rows_device.decode_fp8(host, 16, of))


def row_of(codes: list[int], scale: float, least: float) -> Tensor:
    behind = torch.tensor([scale, least], dtype=torch.float32).view(torch.uint8)
    return torch.cat([torch.tensor(codes, dtype=torch.uint8), behind])


def nearest(exact: Fraction) -> float:
    """The float32 nearest to it, of two equally near the even one."""
    guess = np.float32(float(exact))
    near = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    finite = [each for each in near if np.isfinite(each)]
    return float(min(finite, key=lambda each: (abs(Fraction(float(each)) - exact), int(each.view(np.int32)) & 1)))


@pytest.mark.parametrize("where", ROWS, ids=["host", "device"])
def test_int8_is_rounded_once(where: ModuleType) -> None:
    """130 steps of 16519105 * 2^-55 are 2^-24 and 2^-54: with 1 just above the middle of two float32.

    Neither two roundings to float32 nor one to float64 before gives the upper one; a fused multiply-add does.
    """
    assert 130 * 16519105 == 2**31 + 2
    decoded = where.decode_int8(row_of([130, 0, 0, 0], 16519105 * 2.0**-55, 1.0), 4)
    assert decoded.tolist() == [1 + 2**-23, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("where", ROWS, ids=["host", "device"])
@given(codes=st.lists(st.integers(0, 255), min_size=4, max_size=4), scale=FLOATS, least=FLOATS)
def test_int8_is_the_nearest_to_the_exact_sum(where: ModuleType, codes: list[int], scale: float, least: float) -> None:
    decoded = where.decode_int8(row_of(codes, scale, least), 4)
    assert decoded.tolist() == [nearest(code * Fraction(scale) + Fraction(least)) for code in codes]


@pytest.mark.parametrize("where", ROWS, ids=["host", "device"])
def test_a_row_with_a_nan_is_nan_as_int8_and_others_are_not(where: ModuleType) -> None:
    values = torch.arange(64, dtype=torch.float32)
    values[5] = float("nan")
    decoded = where.decode_int8(where.encode_int8(values, 32), 32)
    assert decoded[:32].isnan().all()
    assert torch.equal(decoded[32:], where.decode_int8(where.encode_int8(values[32:], 32), 32))


@pytest.mark.parametrize("name", ["fp16.plain", "fp16.8.0", "int8", "fp8.backward.32"])
def test_declared_bytes_are_those_of_what_is_read_and_written_last(name: str) -> None:
    """Encoding reads float32 and writes what is sent, decoding the reverse; further passes over all come on top."""
    codec, values = codec_of(name), record(f"{name}.input")
    encoded = codec.encode(values)
    sent, whole = encoded.numel() * encoded.element_size(), values.numel() * 4
    encode, decode = codec.encode_kernel(values.numel()), codec.decode_kernel(values.numel())
    assert encode.bytes_read == whole * encode.launches
    assert (encode.bytes_written - sent) % whole == 0
    assert decode.bytes_read == sent * decode.launches
    assert (decode.bytes_written - whole) % sent == 0
