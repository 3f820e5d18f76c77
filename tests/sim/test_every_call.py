"""Every function of torch.distributed is predicted as itself, refused by name, or known not to communicate."""

from __future__ import annotations

import ast
import inspect
import re
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as of_autograd

from scenarios.seam.trace import Recording
from scenarios.workloads.script.command import load_given
from tests.sim.unjudged import simulate_unjudged

SCRIPT = Path(__file__).parents[1] / "data" / "scripts" / "every_call.py"

# What a call of three elements, or in parts of three and two or of two and two, gives and gets on rank 0 and on rank 1,
# which is the root, in bytes.
Sizes = tuple[tuple[int, int], tuple[int, int]]


def alike(given: int, got: int) -> Sizes:
    return (given, got), (given, got)


VERBS: dict[str, Sizes] = {
    "all_gather": alike(12, 24),
    "all_gather_coalesced": alike(20, 40),
    "all_gather_into_tensor": alike(12, 24),
    "all_reduce": alike(12, 12),
    "all_reduce_coalesced": alike(20, 20),
    "all_to_all": alike(24, 24),
    "all_to_all_single": alike(24, 24),
    "barrier": alike(0, 0),
    "broadcast": ((0, 12), (12, 0)),
    "gather": ((12, 0), (12, 24)),
    "monitored_barrier": alike(0, 0),
    "reduce": ((12, 0), (12, 12)),
    "reduce_scatter": alike(24, 12),
    "reduce_scatter_tensor": alike(24, 12),
    "scatter": ((0, 12), (24, 12)),
}
MESSAGE = [[("send", 12, 0)], [("recv", 0, 12)]]
# By rank, the calls of a function whose name is not that of its verb, or whose sizes are others.
OTHERS: dict[str, list[list[tuple[str, int, int]]]] = {
    "batch_isend_irecv": [[("send", 12, 0), ("recv", 0, 12)]] * 2,
    **dict.fromkeys(["irecv", "isend", "recv", "send", "ProcessGroup.recv", "ProcessGroup.send"], MESSAGE),
    "_coalescing_manager of all_gather": [[("all_gather_into_tensor_coalesced", 20, 40)]] * 2,
    "_coalescing_manager of reduce_scatter": [[("reduce_scatter_tensor_coalesced", 40, 20)]] * 2,
    **dict.fromkeys(
        [
            "ProcessGroup.all_gather_single_coalesced",
            "ProcessGroup.allgather_into_tensor_coalesced",
            "functional.all_gather_into_tensor_coalesced",
            "functional.all_gather_single_coalesced",
        ],
        [[("all_gather_into_tensor_coalesced", 16, 32)]] * 2,
    ),
    **dict.fromkeys(
        [
            "ProcessGroup.reduce_scatter_single_coalesced",
            "ProcessGroup.reduce_scatter_tensor_coalesced",
            "functional.reduce_scatter_single_coalesced",
            "functional.reduce_scatter_tensor_coalesced",
        ],
        [[("reduce_scatter_tensor_coalesced", 32, 16)]] * 2,
    ),
    "functional.permute_tensor": [[("all_to_all_single", 12, 12)]] * 2,
}
# The verb of a function that has another name.
RENAMED = {
    **dict.fromkeys(
        ["all_gather_single", "_allgather_base", "all_gather_single_autograd", "all_gather_tensor"],
        "all_gather_into_tensor",
    ),
    "all_gather_tensor_autograd": "all_gather_into_tensor",
    **dict.fromkeys(["reduce_scatter_single", "_reduce_scatter_base"], "reduce_scatter_tensor"),
    **dict.fromkeys(["reduce_scatter_single_autograd", "reduce_scatter_tensor_autograd"], "reduce_scatter_tensor"),
    **dict.fromkeys(["all_to_all_single_autograd", "alltoall_base"], "all_to_all_single"),
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather_coalesced",
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "alltoall": "all_to_all",
    "_coalescing_manager": "all_reduce_coalesced",
}
# Objects travel as bytes of a pickle: their size first. By rank, the kinds of call (torch 2.13).
OBJECTS = {
    "all_gather_object": [["all_gather"] * 2] * 2,
    "broadcast_object_list": [["broadcast"] * 2] * 2,
    "gather_object": [["all_gather", "gather"]] * 2,
    "scatter_object_list": [["broadcast", "scatter", "scatter"]] * 2,
    "recv_object_list": [["send"] * 2, ["recv"] * 2],
    "send_object_list": [["send"] * 2, ["recv"] * 2],
}
# torch makes gloo's from scatters, one of each rank.
OF_GLOO = {
    "nn.functional.all_to_all": [[("scatter", 24, 12), ("scatter", 0, 12)], [("scatter", 0, 12), ("scatter", 24, 12)]]
}

SILENT = {
    "says what there is": """
        get_backend get_backend_config get_debug_level get_default_backend_for_device get_global_rank get_group_rank
        get_node_local_rank get_pg_count get_process_group_ranks get_rank get_world_size is_available
        is_backend_available is_gloo_available is_initialized is_mpi_available is_nccl_available
        is_torchelastic_launched is_ucc_available is_xccl_available supports_complex
        ProcessGroup.name ProcessGroup.rank ProcessGroup.size ProcessGroup.get_group_store ProcessGroup.boxed
        ProcessGroup.unbox
    """,
    "makes or ends groups, whose meeting is not predicted": """
        destroy_process_group init_device_mesh init_process_group new_group new_subgroups
        new_subgroups_by_enumeration register_rendezvous_handler rendezvous split_group ProcessGroup.abort
        ProcessGroup.shutdown
    """,
    "sets something on this rank": """
        record_comm set_debug_level set_debug_level_from_env ProcessGroup.set_timeout
        functional.allow_inflight_collective_as_graph_input_ctx
    """,
    "waits for a person, then calls barrier": "breakpoint",
    "waits for a call that another function made": "functional.wait_tensor",
    "put by torch.compile in place of another function, of which nothing is compiled here": """
        functional.all_gather_inplace functional.all_gather_tensor_inplace functional.all_reduce_inplace
        functional.all_to_all_inplace functional.batch_p2p_ops_inplace functional.irecv_inplace
        functional.isend_inplace functional.reduce_scatter_tensor_inplace
    """,
}
# Autograd's own halves of functions.
_HALVES = ("_backward", "_setup_context")


def routines(module: Any, names: list[str] | None = None, prefix: str = "") -> set[str]:
    """Public functions, by name."""
    listed = [name for name in (names or dir(module)) if not name.startswith("_") and name != "reduce_op"]
    return {prefix + name for name in listed if inspect.isroutine(getattr(module, name))}


def functions_of(module: types.ModuleType, prefix: str) -> set[str]:
    """Public functions that a module defines."""
    found = {
        name for name, each in vars(module).items() if inspect.isfunction(each) and each.__module__ == module.__name__
    }
    return {prefix + name for name in found if not (name.startswith("_") or name.endswith(_HALVES))}


def functions() -> set[str]:
    """All that torch.distributed has."""
    of_c10d = [name for name in dist.distributed_c10d.__all__ if name != "reduce_op"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            *routines(dist),
            *routines(dist.distributed_c10d, of_c10d),
            *routines(dist.ProcessGroup, prefix="ProcessGroup."),
            *functions_of(functional, "functional."),
            *functions_of(of_autograd, "nn.functional."),
        }


def lines(table: str) -> dict[str, tuple[int, int]]:
    """Return the first and the last line of each entry of a table of the script's, or of the function that it names."""
    tree = ast.parse(SCRIPT.read_text())
    named = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    (found,) = [
        each.value
        for each in tree.body
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and each.targets[0].id == table
    ]
    assert isinstance(found, ast.Dict)
    places = {}
    for key, value in zip(found.keys, found.values, strict=True):
        assert isinstance(key, ast.Constant)
        where: Any = named[value.id] if isinstance(value, ast.Name) else value
        places[str(key.value)] = where.lineno, where.end_lineno
    return places


CALLS, ONLY_GLOO, REFUSED = map(lines, ("CALLS", "ONLY_GLOO", "REFUSED"))


def test_every_function_of_torch_distributed_is_in_one_table() -> None:
    """A further one of a new release of torch has to be put into one of the tables."""
    silent = {name for names in SILENT.values() for name in names.split()}
    assert functions() - {*CALLS, *ONLY_GLOO, *REFUSED, *silent} == set()
    assert silent.isdisjoint({*CALLS, *ONLY_GLOO, *REFUSED})


def expected(name: str, rank: int, backend: str) -> list[tuple[str, int, int]]:
    """Return what a function is predicted as on a rank: kinds, bytes in and out."""
    if backend == "gloo" and name in OF_GLOO:
        return OF_GLOO[name][rank]
    if name in OTHERS:
        return OTHERS[name][rank]
    last = name.rpartition(".")[2]
    verb = RENAMED.get(last, last)
    return [(verb, *VERBS[verb][rank])]


def is_there(name: str) -> bool:
    where, _, last = name.rpartition(".")
    found: dict[str, Any] = {"ProcessGroup": dist.ProcessGroup, "functional": functional, "nn.functional": of_autograd}
    return " " in name or hasattr(found.get(where, dist.distributed_c10d), last)


def play(profile: str, backend: str) -> Recording:
    made = load_given(SCRIPT, {"profile": profile, "timeout": "60 s"}, args=[backend], hosts=1, gpus_per_host=2)
    return simulate_unjudged(made)


@pytest.mark.parametrize(
    ("profile", "backend"), [("emulated_200mbit", "gloo"), pytest.param("dgx_h100", "nccl", marks=pytest.mark.slow)]
)
@pytest.mark.supports("every collective and message of torch.distributed", "CPUs", "GPUs")
def test_every_call_is_recorded_with_its_kind_and_sizes(profile: str, backend: str) -> None:
    """Its kind, sizes and root, on either rank; the script sees to those that are refused."""
    recording = play(profile, backend)
    called = {**CALLS, **ONLY_GLOO} if backend == "gloo" else CALLS
    for rank in range(2):
        found: dict[str, list[tuple[str, int, int]]] = {}
        for span in sorted(recording.spans, key=lambda span: span.sequence):
            place = re.match(rf"{SCRIPT.name}:(\d+) ", span.label)
            if span.rank == rank and place is not None and span.kind not in ("compute", "step"):
                line = int(place[1])
                names = [name for name, (first, last) in called.items() if first <= line <= last]
                for name in names:
                    found.setdefault(name, []).append((span.kind, span.bytes_in, span.bytes_out))
        for name in called:
            if name in OBJECTS:
                assert [kind for kind, _, _ in found[name]] == OBJECTS[name][rank], name
            elif is_there(name):
                assert found[name] == expected(name, rank, backend), name
