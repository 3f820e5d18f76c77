"""Every function of torch.distributed is predicted as itself, refused by name, or known not to communicate."""

from __future__ import annotations

import ast
import inspect
import re
import types
import warnings
from typing import Any

import pytest
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as of_autograd

from scenarios.seam.trace import Recording
from scenarios.workloads.script.command import load_given
from tests.sim.operators.rows import DATA, rows
from tests.sim.unjudged import simulate_unjudged

SCRIPT = DATA / "scripts" / "every_call.py"

# The calls that each function is predicted as, on rank 0 and on rank 1, which is the root: verb, bytes in and bytes out
# of three elements, or of parts of three and two or of two and two. Objects travel as bytes of a pickle, their size
# first: only their verbs are known (torch 2.13). Where `backend` is empty they are those of each.
EXPECTED = rows(DATA / "every_call.csv")
# Public functions that call nothing, each with the reason.
SILENT = {row["function"] for row in rows(DATA / "silent_functions.csv")}
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
    assert functions() - {*CALLS, *ONLY_GLOO, *REFUSED, *SILENT} == set()
    assert SILENT.isdisjoint({*CALLS, *ONLY_GLOO, *REFUSED})
    assert {row["function"] for row in EXPECTED} == {*CALLS, *ONLY_GLOO}


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
        found: dict[str, list[list[str]]] = {name: [] for name in called}
        for span in sorted(recording.spans, key=lambda span: span.sequence):
            place = re.match(rf"{SCRIPT.name}:(\d+) ", span.label)
            if span.rank == rank and place is not None and span.kind not in ("compute", "step"):
                for name, (first, last) in called.items():
                    if first <= int(place[1]) <= last:
                        found[name].append([span.kind, str(span.bytes_in), str(span.bytes_out)])
        for row in EXPECTED:
            name, calls = row["function"], [call.split() for call in row[f"rank {rank}"].split("; ")]
            if name in called and is_there(name) and row["backend"] in ("", backend):
                known = [one[: len(call)] for one, call in zip(found[name], calls, strict=True)]
                assert known == calls, name
