"""Reads and writes the nodes of an execution trace (Chakra's schema 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from scenarios import given_file
from scenarios.workloads.chakra import wire
from scenarios.workloads.chakra.wire import WireError

# NodeType and CollectiveCommType of et_def.proto.
METADATA, LOAD, STORE, COMPUTE, SEND, RECV, COLLECTIVE = 1, 2, 3, 4, 5, 6, 7
NODE_TYPES = {
    **{METADATA: "METADATA_NODE", LOAD: "MEM_LOAD_NODE", STORE: "MEM_STORE_NODE", COMPUTE: "COMP_NODE"},
    **{SEND: "COMM_SEND_NODE", RECV: "COMM_RECV_NODE", COLLECTIVE: "COMM_COLL_NODE"},
}
COMM_TYPES = (
    *("ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER"),
    *("REDUCE_SCATTER_BLOCK", "BARRIER"),
)
# Which end is a call's root, where it has one.
ROOTS = {"REDUCE": "comm_dst", "GATHER": "comm_dst", "SCATTER": "comm_src", "BROADCAST": "comm_src"}
_VERSION = "0.0.4"
# Largest whole numbers, and largest sizes of calls: sums of them, over ranks and steps, stay numbers of 64 bits.
_MOST, _MOST_BYTES = 1 << 62, 1 << 48
# Fields of Node by number.
_ID, _NAME, _TYPE, _CONTROLS, _DATA, _START, _DURATION, _ATTRIBUTE = 1, 2, 3, 4, 5, 6, 7, 10
# An attribute of Twinstep: a node's duration if it is no whole number of microseconds.
EXACT = "duration_ns"
# Another one: the bytes of a rank's input that each member gets, of an uneven all-to-all or reduce-scatter.
SPLITS = "comm_splits"
# Field numbers of AttributeProto's value: single values are odd, each followed by the list of its kind.
_SIGNED, _ZIGZAG, _FLOATS, _BOOLS, _TEXTS = (7, 9), (15, 17), (3, 5), (27,), (29,)
_SINGLE = range(3, 31, 2)  # all but bytes
_LISTS = (8, 10, 12, 14, 28)  # lists of whole numbers and flags; others are not used

Value: TypeAlias = "int | float | str | bool | list[int]"


class TraceError(ValueError):
    """A trace that cannot be simulated: a sentence with the file, the node and what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceNode:
    """An operation of a rank.

    Attributes:
        deps, controls: ids of the nodes that must end before, by data and by control.
        duration_ns: traces have whole microseconds; those written by Twinstep have the ns in an attribute.
    """

    id: int
    name: str = ""
    type: int
    deps: tuple[int, ...] = ()
    controls: tuple[int, ...] = ()
    start_ns: int = 0
    duration_ns: int = 0
    attributes: Mapping[str, Value] = field(default_factory=dict)

    def depends_on(self, *, with_controls: bool) -> tuple[int, ...]:
        """Return the ids of the nodes that must end before, each once."""
        return tuple(dict.fromkeys((*self.deps, *self.controls))) if with_controls else self.deps

    def number(self, name: str, default: int = 0) -> int:
        """Return an attribute that is a whole number, 0 or more; `default` if it is absent."""
        value, most = self.attributes.get(name, default), _MOST_BYTES if name == "comm_size" else _MOST
        if not (isinstance(value, int | float) and 0 <= value <= most):
            raise TraceError(f"{name} = {value!r}: expected a whole number, 0 or more, at most {most}")
        return int(value)

    def splits(self) -> list[int] | None:
        """Return the bytes of the input that each member gets; None if they are equal.

        Raises:
            TraceError: they are no bytes whose sum is `comm_size`.
        """
        found = self.attributes.get(SPLITS)
        if found is None:
            return None
        size = self.number("comm_size")
        if not (isinstance(found, list) and all(0 <= each <= _MOST for each in found) and sum(found) == size):
            raise TraceError(f"{SPLITS} = {found!r}: expected bytes for each member, {size:,} in all")
        return found


def read(path: Path) -> list[TraceNode]:
    """Read the nodes of a trace.

    Raises:
        TraceError: the file is no trace, or is truncated.
    """
    try:
        data = given_file.content(path)
    except OSError as error:
        raise TraceError(f"{path}: could not be read: {error.strerror}") from None
    if data[:1] in (b"{", b"["):
        raise TraceError(f"{path}: JSON; expected an execution trace of protocol buffers")
    found = list[TraceNode]()
    place = "GlobalMetadata"
    try:
        for number, message in enumerate(wire.messages(data)):
            if number:
                found.append(_node(message))
                place = f"what follows node {found[-1].id}"
            else:
                _check_metadata(message)
                place = "the first node"
    except WireError as error:
        raise TraceError(f"{path}: {place}: expected {error}") from None
    if not found:
        raise TraceError(f"{path}: no node; expected GlobalMetadata and nodes, each behind its length")
    return found


def write(nodes: Iterable[TraceNode], path: Path) -> None:
    """Write one rank's trace."""
    with path.open("wb") as stream:
        for message in (wire.field(1, _VERSION), *map(_message, nodes)):
            stream.write(wire.to_varint(len(message)) + message)


def _check_metadata(message: bytes) -> None:
    for number, kind, value in wire.fields(message):
        if (number, kind) == (1, wire.LEN):
            wire.text(value)
        elif number not in (1, 2) or kind != wire.LEN:
            raise WireError(f"a version and attributes, but got field {number}")


def _node(message: bytes) -> TraceNode:
    whole = dict.fromkeys((_ID, _TYPE, _START, _DURATION), 0)
    name, deps, attributes = "", {_CONTROLS: list[int](), _DATA: list[int]()}, dict[str, Value]()
    for number, kind, value in wire.fields(message):
        if number in whole and isinstance(value, int):
            whole[number] = value
        elif number in deps:
            deps[number] += wire.numbers(kind, value)
        elif number == _NAME:
            name = wire.text(value)
        elif number == _ATTRIBUTE and isinstance(value, bytes):
            attributes.update(_attribute(value))
    exact_ns = attributes.get(EXACT)
    return TraceNode(
        id=whole[_ID],
        name=name,
        type=whole[_TYPE],
        deps=tuple(dict.fromkeys(deps[_DATA])),
        controls=tuple(dict.fromkeys(deps[_CONTROLS])),
        start_ns=whole[_START] * 1000,
        duration_ns=exact_ns if isinstance(exact_ns, int) else whole[_DURATION] * 1000,
        attributes=attributes,
    )


def _attribute(message: bytes) -> dict[str, Value]:
    name, found = "", None
    for number, kind, value in wire.fields(message):
        if number == 1:
            name = wire.text(value)
        elif number > 2:
            found = _values(value) if number in _LISTS else _value(number, kind, value) if number in _SINGLE else None
    return {} if found is None else {name: found}


def _value(number: int, kind: int, value: int | bytes) -> Value:
    if number in _FLOATS:
        return wire.read_float(kind, value)
    if isinstance(value, int):
        if number in _SIGNED:
            return value - (1 << 64) if value >> 63 else value
        return value >> 1 ^ -(value & 1) if number in _ZIGZAG else bool(value) if number in _BOOLS else value
    return wire.text(value) if number in _TEXTS else int.from_bytes(value, "little", signed=number in (23, 25))


def _values(message: int | bytes) -> list[int]:
    if isinstance(message, int):
        raise WireError("a list, but got a number")
    return [value for _, kind, each in wire.fields(message) for value in wire.numbers(kind, each)]


def _message(node: TraceNode) -> bytes:
    attributes = {**node.attributes, EXACT: node.duration_ns} if node.duration_ns % 1000 else node.attributes
    parts = [wire.field(_ID, node.id), wire.field(_NAME, node.name), wire.field(_TYPE, node.type)]
    both = ((_CONTROLS, node.controls), (_DATA, node.deps))
    parts += [wire.field(number, b"".join(map(wire.to_varint, ids))) for number, ids in both if ids]
    parts += [wire.field(_START, node.start_ns // 1000), wire.field(_DURATION, round(node.duration_ns / 1000))]
    return b"".join(parts + [wire.field(_ATTRIBUTE, _attribute_message(*each)) for each in attributes.items()])


def _attribute_message(name: str, value: Value) -> bytes:
    """Return an attribute's message for a text, flag, flags or whole number, of the kind that Chakra's feeder reads."""
    if isinstance(value, str):
        written = wire.field(29, value)
    elif isinstance(value, bool):
        written = wire.field(27, int(value))
    elif name == SPLITS and isinstance(value, list):
        written = wire.field(10, wire.field(1, b"".join(map(wire.to_varint, value))))
    elif isinstance(value, list):
        written = wire.field(28, wire.field(1, bytes(map(bool, value))))
    else:
        assert isinstance(value, int), "traces of ours have no other values"
        written = wire.field({"tensor_size": 13, "comm_src": 7, "comm_dst": 7, "comm_tag": 7}.get(name, 9), value)
    return wire.field(1, name) + written
