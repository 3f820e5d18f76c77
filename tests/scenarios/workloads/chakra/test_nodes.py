"""Execution traces as bytes: read as protobuf's own package writes them, written so that they are read back."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.workloads.chakra import wire
from scenarios.workloads.chakra.nodes import COLLECTIVE, COMPUTE, LOAD, SEND, TraceError, TraceNode, read, write

# Written by Google's protobuf package (7.36.2) of the messages of et_def.proto, each behind its length.
BY_PROTOBUF = Path(__file__).parents[3] / "data" / "chakra" / "by_protobuf.0.et"
NODE = TraceNode(id=3, name="sum", type=COLLECTIVE, deps=(1, 300), attributes={"comm_type": 0, "comm_size": 1 << 40})


def test_traces_written_by_protobuf_are_read() -> None:
    load, gemm, call, send = read(BY_PROTOBUF)
    assert load == TraceNode(id=0, name="load", type=LOAD, attributes={"tensor_size": 1 << 20})
    assert (gemm.id, gemm.type, gemm.deps, gemm.controls) == (7, COMPUTE, (0,), (0, 300))
    assert (gemm.start_ns, gemm.duration_ns) == (100_000, 250_000)
    numbers = {"d": 1.5, "f": -2.5, "i": -3, "s": -4, "x": 5, "y": -6, "u": 8}
    assert numbers.items() <= gemm.attributes.items()
    assert (gemm.attributes["is_cpu_op"], gemm.number("num_ops"), gemm.number("tensor_size")) == (
        False,
        10**12,
        1 << 33,
    )
    assert (call.name, call.type, call.deps) == ("all reduce ü", COLLECTIVE, (7,))
    assert call.attributes["involved_dim"] == [1, 1]
    assert (send.type, send.number("comm_dst"), send.number("comm_tag")) == (SEND, 1, 3)


def test_bytes_are_those_of_the_wire_format(tmp_path: Path) -> None:
    """Hand-assembled: 150 is 96 01 and "testing" a field 2 of 7 bytes, as in protobuf's guide to its encoding."""
    assert wire.field(1, 150) == bytes.fromhex("089601")
    assert wire.field(2, "testing") == bytes.fromhex("120774657374696e67")
    write([TraceNode(id=1, name="a", type=COMPUTE, duration_ns=2000)], tmp_path / "a.0.et")
    assert (tmp_path / "a.0.et").read_bytes() == bytes.fromhex("070a05302e302e34" + "0b0801120161180430003802")


@given(
    st.integers(0, 2**64 - 1),
    st.text(),
    st.lists(st.integers(0, 2**64 - 1), unique=True),
    st.integers(0, 10**15),
    st.dictionaries(
        st.sampled_from(["pg_name", "num_ops", "tensor_size", "is_cpu_op"]),
        st.one_of(st.text(), st.booleans(), st.integers(-(2**63), 2**63 - 1)),
    ),
)
def test_written_traces_are_read_back(
    id_: int, name: str, deps: list[int], duration_ns: int, more: dict[str, object]
) -> None:
    more = {key: abs(value) if key == "tensor_size" and type(value) is int else value for key, value in more.items()}
    node = TraceNode(id=id_, name=name, type=COMPUTE, deps=tuple(deps), duration_ns=duration_ns, attributes=more)  # type: ignore[arg-type]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.0.et"
        write([node], path)
        (found,) = read(path)
    assert (found.id, found.name, found.deps, found.duration_ns) == (id_, name, tuple(deps), duration_ns)
    assert more.items() <= found.attributes.items()


def test_a_file_that_is_cut_off_anywhere_is_a_sentence(tmp_path: Path) -> None:
    whole, path = tmp_path / "a.0.et", tmp_path / "cut.0.et"
    write([NODE, NODE], whole)
    data = whole.read_bytes()
    metadata = 1 + data[0]
    end = metadata + (len(data) - metadata) // 2  # of the first node, where a file may end
    for size in {*range(1, len(data))} - {end}:
        path.write_bytes(data[:size])
        with pytest.raises(TraceError, match=r"cut\.0\.et: .*expected"):
            read(path)
    path.write_bytes(data[:-1])
    with pytest.raises(TraceError, match=r"cut\.0\.et: what follows node 3: expected a message of \d+ bytes from byte"):
        read(path)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "no node; expected GlobalMetadata and nodes, each behind its length"),
        (b'{"schema": "1.1.1"}', "JSON; expected an execution trace of protocol buffers"),
        (b"\x02\x0b\x0c", "GlobalMetadata: expected a field of wire type 0, 1, 2 or 5, but byte 0 has 3"),
        (b"\x02\x18\x01", "GlobalMetadata: expected a version and attributes, but got field 3"),
        (b"\x00\x03\x12\x01\xff", "the first node: expected a text in UTF-8"),
        (b"\x00\x02\x08\xff", "the first node: expected a whole number of at most 64 bits before byte 2"),
        (
            b"\x00\x0b\x08" + b"\xff" * 9 + b"\x7f",
            "the first node: expected a whole number of at most 64 bits before byte 11",
        ),
    ],
    ids=["empty", "JSON", "wire type", "field", "text", "number", "70 bits"],
)
def test_files_that_are_no_traces_are_one_sentence(tmp_path: Path, data: bytes, sentence: str) -> None:
    path = tmp_path / "a.0.et"
    path.write_bytes(data)
    with pytest.raises(TraceError) as caught:
        read(path)
    assert str(caught.value) == f"{path}: {sentence}"
