"""What a folder of traces has to be before it is played: one sentence with the file, the node and what was expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.config.load import load
from scenarios.seam.errors import ScenarioError
from scenarios.workloads.build import build
from scenarios.workloads.chakra.nodes import COLLECTIVE, COMPUTE, RECV, SEND, TraceNode, write
from scenarios.workloads.chakra.traces import read_traces
from tests.mistakes import mistakes_of

CLUSTER = 'program = "chakra"\n[cluster]\nprofile = "dgx_h100"\nhosts = 1\ngpus_per_host = 2\n[chakra]\n'


def call(id_: int = 2, **attributes: Any) -> TraceNode:
    return TraceNode(id=id_, type=COLLECTIVE, attributes={"comm_type": 0, "comm_size": 64, **attributes})


def message(kind: int, peer: int, **attributes: Any) -> TraceNode:
    end = "comm_dst" if kind == SEND else "comm_src"
    return TraceNode(id=5, type=kind, attributes={end: peer, "comm_size": 64, **attributes})


def work(id_: int, *deps: int, type_: int = COMPUTE, start_ns: int = 0) -> TraceNode:
    return TraceNode(id=id_, type=type_, deps=deps, start_ns=start_ns, duration_ns=1000)


def write_trace_files(folder: Path, *ranks: list[TraceNode], keys: str = "", **groups: Any) -> Path:
    """Write the traces of these ranks, and a scenario that plays them."""
    for rank, nodes in enumerate(ranks):
        write(nodes, folder / f"a.{rank}.et")
    if groups:
        (folder / "groups.json").write_text(json.dumps(groups))
        keys += '\ngroups = "groups.json"'
    path = folder / "a.toml"
    path.write_text(f'{CLUSTER}traces = "."\n{keys}\n')
    return path


# By what is said of rank 0's trace, the nodes of both ranks.
ALIKE = {
    "node 1: type 8: expected one of METADATA_NODE": [work(1, type_=8)],
    "node 2: comm_type = 10: expected 0 to 9, ALL_REDUCE and so on": [call(comm_type=10)],
    "node 1: expected comm_size, its bytes": [TraceNode(id=1, type=SEND)],
    "node 2: comm_dtype = 'fp8': expected one of float64": [call(comm_dtype="fp8")],
    "node 2: comm_dtype = '[1]': expected one of float64": [call(comm_dtype=[1])],
    "node 2: comm_size = -1: expected a whole number, 0 or more": [call(comm_size=-1)],
    "node 2: comm_size = 2305843009213693952: expected a": [call(comm_size=1 << 61)],
    "node 1: expected an id of its own, but an earlier node has it": [work(1), work(1)],
    "node 2: depends on node 9: expected a node of the trace": [work(1), work(2, 9)],
    "node 1: expected dependencies without a cycle, but it depends on itself": [work(1, 2), work(2, 1)],
    "node 2: expected dependencies without": [work(1, 2), work(2, 3), work(3, 2)],
    "node 2: comm_src = -1: expected a whole number": [call(comm_type=5, comm_src=-1)],
    "node 2: comm_src = 2: expected a rank of group world, [0, 1]": [call(comm_type=5, comm_src=2)],
    "node 5: comm_dst = -1: expected a whole number": [message(SEND, -1)],
    "node 1: tensor_size = 9223372036854775808: expected a whole number": [
        TraceNode(id=1, type=COMPUTE, attributes={"tensor_size": 1 << 63})
    ],
    "node 2: pg_name = 'tp': expected a group of chakra.groups (none)": [call(pg_name="tp")],
    "node 2: comm_splits: expected 2 of them, one for each member": [call(comm_type=6, comm_size=0, comm_splits=[])],
}
_OF_WORLD = "is call 0 of group world: expected ALL_REDUCE of 64 bytes, as"
# By sentence, the nodes of each rank.
APART = {
    "a.1.et: node 4: expected comm_src": [
        [message(SEND, 1)],
        [TraceNode(id=4, type=RECV, attributes={"comm_size": 1})],
    ],
    f"a.1.et: node 2: ALL_GATHER of 64 bytes {_OF_WORLD}": [[call()], [call(comm_type=2)]],
    f"a.1.et: node 2: ALL_REDUCE of 8 bytes {_OF_WORLD} of rank 0": [[call()], [call(comm_size=8)]],
    "a.1.et: node 2: comm_dst = 1: expected 0, as of rank 0": [[call(comm_type=1)], [call(comm_type=1, comm_dst=1)]],
    "a.1.et: node 2: comm_dtype = float32: expected uint8, as of rank 0": [[call()], [call(comm_dtype="float32")]],
    "a.1.et: node 2: comm_splits = [24, 40]: expected [32, 32], as of rank 0": [
        [call(comm_type=7, comm_splits=splits)] for splits in ([32, 32], [24, 40])
    ],
    "a.0.et: node 3: call 1 of group world: expected one in": [[call(), call(3)], [call()]],
    "a.1.et: node 5: tag 2 and 64 bytes: expected tag 1 and 64 bytes, as rank 0 sends next": [
        [message(SEND, 1, comm_tag=1)],
        [message(RECV, 0, comm_tag=2)],
    ],
    "a.0.et: node 5: expected its other end in": [[message(SEND, 1)], [work(1)]],
    "a.0.et: node 5: a message with rank 0: expected another of the ranks": [[message(SEND, 0)], [work(1)]],
    "3 traces in": [[work(1)]] * 3,
}
WRONG: list[tuple[str, list[list[TraceNode]], dict[str, Any]]] = [
    *((f"a.0.et: {sentence}", [nodes] * 2, {}) for sentence, nodes in ALIKE.items()),
    *((sentence, ranks, {}) for sentence, ranks in APART.items()),
    ("a.1.et: node 2: group tp of [0]: expected rank 1 in it", [[call(pg_name="tp")]] * 2, {"tp": [0]}),
    ("groups.json: tp = [2]: expected ranks below 2, each once", [[call()]] * 2, {"tp": [2]}),
]


@pytest.mark.parametrize(("sentence", "ranks", "groups"), WRONG, ids=[sentence for sentence, *_ in WRONG])
def test_invalid_traces_are_one_sentence(
    tmp_path: Path, sentence: str, ranks: list[list[TraceNode]], groups: dict[str, Any]
) -> None:
    path = write_trace_files(tmp_path, *ranks, **groups)
    (found,) = mistakes_of(lambda: build(load(path)))
    assert sentence in found
    assert found.startswith(f"{path}: chakra.traces")


def test_files_that_are_missing_or_of_several_names_are_a_sentence(tmp_path: Path) -> None:
    path = write_trace_files(tmp_path, [work(1)], [work(1)], [work(1)])
    (tmp_path / "a.1.et").unlink()
    with pytest.raises(ScenarioError, match=r"a trace of each rank, but there is no file .*a\.1\.et"):
        load(path)
    (tmp_path / "b.0.et").write_bytes((tmp_path / "a.0.et").read_bytes())
    with pytest.raises(ScenarioError, match=r"traces of one name in .*, but there are a, b: name .*a"):
        load(path)
    for each in tmp_path.glob("*.et"):
        each.unlink()
    with pytest.raises(ScenarioError, match=r"files NAME\.RANK\.et in .*, but there are none"):
        load(path)


def test_a_prefix_names_one_of_several(tmp_path: Path) -> None:
    write_trace_files(tmp_path, [work(1)], [work(1)])
    write([work(2)], tmp_path / "b.0.et")
    assert read_traces(tmp_path / "b", None, with_controls=False).files == (tmp_path / "b.0.et",)


def test_nodes_come_by_start_and_behind_what_they_depend_on(tmp_path: Path) -> None:
    controlled = TraceNode(id=5, type=COMPUTE, controls=(2,), duration_ns=1000)
    write_trace_files(tmp_path, [work(1, 3), work(2, start_ns=5000), work(3, start_ns=9000), work(4), controlled])
    for with_controls, order in ((False, [4, 5, 2, 3, 1]), (True, [4, 2, 5, 3, 1])):
        traces = read_traces(tmp_path, None, with_controls=with_controls)
        assert [node.id for node in traces.nodes[0]] == order
