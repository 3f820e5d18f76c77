"""The wire format of protocol buffers, as far as execution traces need it: fields of messages, and sequences of
messages.

See https://protobuf.dev/programming-guides/encoding: a field is a varint of its number and wire type, then its value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, I64, LEN, I32 = 0, 1, 2, 5
_FIXED = {I64: "<d", I32: "<f"}
_MOST_SHIFT = 63


class WireError(ValueError):
    """Bytes that are no valid message; the text says what was expected and where."""


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Return the whole number at a place, and the place after it.

    Raises:
        WireError: the bytes end inside it, or it has more than 64 bits.
    """
    value = shift = 0
    while place < len(data) and shift <= _MOST_SHIFT:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128 and value >> 64 == 0:
            return value, place
    raise WireError(f"a whole number of at most 64 bits before byte {place:,}")


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield the number, wire type and value of each field of a message; fixed-size numbers are yielded as bytes.

    Raises:
        WireError: the bytes are no message, or end inside a field.
    """
    place = 0
    while place < len(data):
        tag, place = varint(data, place)
        number, kind = tag >> 3, tag & 7
        value: int | bytes
        if kind == VARINT:
            value, place = varint(data, place)
        elif kind in (LEN, I64, I32):
            size = {I64: 8, I32: 4}.get(kind, 0)
            if kind == LEN:
                size, place = varint(data, place)
            value = data[place : place + size]
            if len(value) < size:
                raise WireError(f"{size:,} bytes of field {number}, but {len(value):,} are left")
            place += size
        else:
            raise WireError(f"a field of wire type 0, 1, 2 or 5, but byte {place - 1:,} has {kind}")
        yield number, kind, value


def messages(data: bytes) -> Iterator[bytes]:
    """Yield consecutive messages, each preceded by its length.

    Raises:
        WireError: the last message is truncated.
    """
    place = 0
    while place < len(data):
        size, place = varint(data, place)
        if place + size > len(data):
            raise WireError(f"a message of {size:,} bytes from byte {place:,} on, but the file ends at {len(data):,}")
        yield data[place : place + size]
        place += size


def numbers(kind: int, value: int | bytes) -> list[int]:
    """Return the whole numbers of a repeated field, which may be packed.

    Raises:
        WireError: the field has other values.
    """
    if isinstance(value, int):
        return [value]
    if kind != LEN:
        raise WireError("whole numbers, but got fixed ones")
    found, place = list[int](), 0
    while place < len(value):
        number, place = varint(value, place)
        found.append(number)
    return found


def text(value: int | bytes) -> str:
    """Return a text; raise WireError if the value is no text."""
    if isinstance(value, int):
        raise WireError("a text, but got a number")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise WireError("a text in UTF-8") from None


def read_float(kind: int, value: int | bytes) -> float:
    """Return a floating-point number of 4 or 8 bytes; raise WireError if the value is none."""
    if isinstance(value, int) or kind not in _FIXED:
        raise WireError("a floating-point number")
    return float(struct.unpack(_FIXED[kind], value)[0])


def to_varint(value: int) -> bytes:
    """Return a whole number as a varint; negative ones as protocol buffers write them, in 64 bits."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def field(number: int, value: int | str | bytes) -> bytes:
    """Return an encoded field: a whole number, a text, or bytes such as a message."""
    if isinstance(value, int):
        return to_varint(number << 3 | VARINT) + to_varint(value)
    data = value.encode() if isinstance(value, str) else value
    return to_varint(number << 3 | LEN) + to_varint(len(data)) + data
