"""A bad collective call is one sentence, the same on every rank of the group, which goes on working afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.roles import ROLES
from tests.contract.worlds import results

Issue = Callable[[Rank], Awaitable[Any]]


def pair(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.ones(2, dtype=dtype), torch.ones(2, dtype=dtype)]


def list_form(outputs: Any = None, inputs: Any = None) -> Issue:
    """The list form, with a right list for each that is not given."""
    return lambda rank: rank.all_to_all(pair() if outputs is None else outputs, pair() if inputs is None else inputs)


def single(output: Any = None, input: Any = None, *splits: Any) -> Issue:
    """The single form of four rows, with a right tensor for each that is not given."""
    given = torch.ones(4) if output is None else output, torch.ones(4) if input is None else input
    return lambda rank: rank.all_to_all_single(*given, *splits)


LEAF = "is a leaf that requires grad; give it detached"
INTS = "split sizes must be a list of ints, got"
IN, OUT = "input_tensor_list", "output_tensor_list"

# What one rank does wrong by itself: the call, what it raises there, and what every rank hears after "rank 1: verb: ".
# Probes of tests/vectors hold further sentences, of mistakes that all ranks make.
LISTS: dict[str, tuple[Callable[[], Issue], str, str]] = {
    "short": (
        lambda: list_form(None, [torch.ones(2)]),
        "CollectiveError",
        f"{IN} has 1 tensors, expected the group's size 2",
    ),
    "tensor": (lambda: list_form(torch.ones(2, 2)), "TypeError", f"{OUT} must be a list of tensors, got Tensor"),
    "no tensor": (lambda: list_form(None, [torch.ones(2), 3]), "TypeError", f"{IN}[1] must be a tensor, got int"),
    "mixed between": (
        lambda: list_form(None, pair(torch.int32)),
        "ValueError",
        "all tensors must have one dtype, got float32 and int32",
    ),
    "elsewhere": (
        lambda: list_form([item.to("meta") for item in pair()], [item.to("meta") for item in pair()]),
        "CollectiveError",
        "tensors are on meta, expected cpu",
    ),
    "half elsewhere": (
        lambda: list_form([item.to("meta") for item in pair()]),
        "CollectiveError",
        "all tensors must be on one device, got meta and cpu",
    ),
    "conjugate": (
        lambda: list_form([item.conj() for item in pair(torch.complex64)], pair(torch.complex64)),
        "CollectiveError",
        f"{OUT}[0] is a conjugate view, which cannot be written in place;"
        " expected a tensor as resolve_conj() returns it",
    ),
    "negated": (
        lambda: list_form([torch._neg_view(item) for item in pair()], pair()),
        "CollectiveError",
        f"{OUT}[0] is a negative view, which cannot be written in place; expected a tensor as resolve_neg() returns it",
    ),
}
SINGLES: dict[str, tuple[Callable[[], Issue], str, str]] = {
    "floats": (lambda: single(None, None, None, [2, 2.0]), "TypeError", f"input {INTS} float at index 1"),
    "bools": (lambda: single(None, None, [True, 3], None), "TypeError", f"output {INTS} bool at index 0"),
    "word": (lambda: single(None, None, "22"), "TypeError", f"output {INTS} str"),
    "sparse": (
        lambda: single(None, torch.ones(4, 1).to_sparse_csr()),
        "CollectiveError",
        "input must be a dense tensor, got a sparse_csr one",
    ),
    "elsewhere": (
        lambda: single(torch.ones(4, device="meta"), torch.ones(4, device="meta")),
        "CollectiveError",
        "tensors are on meta, expected cpu",
    ),
    "leaf": (lambda: single(torch.ones(4, requires_grad=True)), "CollectiveError", f"output {LEAF}"),
}
OTHERS: dict[str, tuple[str, Issue, str, str]] = {
    "unknown reduction": (
        "all_reduce",
        lambda rank: rank.all_reduce(torch.ones(2), ReduceOp.BAND),
        "CollectiveError",
        "op RedOpType.BAND is not one of sum, avg, product, min, max",
    ),
    "not added": (
        "all_reduce",
        lambda rank: rank.all_reduce(torch.ones(2, dtype=torch.uint64)),
        "CollectiveError",
        "op sum is not defined for uint64",
    ),
    "no tensor": ("all_reduce", lambda rank: rank.all_reduce(3), "TypeError", "tensor must be a tensor, got int"),  # type: ignore[arg-type]
    "no root": (
        "broadcast",
        lambda rank: rank.broadcast(torch.ones(2), 7),
        "CollectiveError",
        "rank 7 is not in group world of [0, 1]",
    ),
    "tensor as root": (
        "broadcast",
        lambda rank: rank.broadcast(torch.ones(2), torch.tensor(0)),  # type: ignore[arg-type]
        "TypeError",
        "src must be an int, got Tensor",
    ),
    "bool as root": (
        "broadcast",
        lambda rank: rank.broadcast(torch.ones(2), False),
        "TypeError",
        "src must be an int, got bool",
    ),
    "no label": (
        "barrier",
        lambda rank: rank.barrier(label=None),  # type: ignore[arg-type]
        "TypeError",
        "label must be a str, got NoneType",
    ),
    "no role": (
        "all_reduce",
        lambda rank: rank.all_reduce(torch.ones(2), role="gradient"),
        "ValueError",
        f"role = 'gradient': expected one of {', '.join(ROLES)}",
    ),
    "no reduction": (
        "all_reduce",
        lambda rank: rank.all_reduce(torch.ones(2), None),  # type: ignore[arg-type]
        "CollectiveError",
        "op None is not one of sum, avg, product, min, max",
    ),
    "size": (
        "reduce_scatter_tensor",
        lambda rank: rank.reduce_scatter_tensor(torch.ones(2), torch.ones(3)),
        "CollectiveError",
        "output has 2 elements and input 3, expected 1.5 for a group of 2",
    ),
}


async def said_by(rank: Rank, issue: Issue) -> tuple[str, str, float]:
    """What this rank hears of a call, and that the group goes on: the sum of a one of each member."""
    kind, sentence = "", ""
    try:
        await issue(rank)
    except (TypeError, ValueError, ProgramError) as error:
        kind, sentence = type(error).__name__, str(error)
    total = await rank.all_reduce(torch.ones(1))
    return kind, sentence, total.item()


async def one_is_wrong(rank: Rank, verb: str, name: str) -> tuple[str, str, float]:
    right = {"all_to_all": list_form(), "all_to_all_single": single()}.get(verb, lambda rank: rank.barrier())
    if rank.rank == 0:
        return await said_by(rank, right)
    if verb in ("all_to_all", "all_to_all_single"):
        return await said_by(rank, (LISTS if verb == "all_to_all" else SINGLES)[name][0]())
    return await said_by(rank, OTHERS[name][1])


ONE = [("all_to_all", name, *LISTS[name][1:]) for name in LISTS]
ONE += [("all_to_all_single", name, *SINGLES[name][1:]) for name in SINGLES]
ONE += [(verb, name, kind, text) for name, (verb, _, kind, text) in OTHERS.items()]


@pytest.mark.parametrize(("verb", "name", "kind", "text"), ONE, ids=[f"{verb}-{name}" for verb, name, _, _ in ONE])
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_a_mistake_of_one_rank_is_the_same_sentence_on_all_and_the_group_goes_on(
    world: str, verb: str, name: str, kind: str, text: str
) -> None:
    sentence = f"rank 1: {verb}: {text}"
    assert results(world, 1, 2, one_is_wrong, verb, name) == [
        ("CollectiveError", sentence, 2.0),
        (kind, sentence, 2.0),
    ]


def make_sized(outputs: tuple[int, int], inputs: tuple[int, int], dtype: torch.dtype = torch.float32) -> Issue:
    """The single form of some rows to and from each."""
    return lambda rank: rank.all_to_all_single(
        torch.empty(sum(outputs), dtype=dtype), torch.ones(sum(inputs), dtype=dtype), outputs, inputs, label="ids"
    )


# What each rank calls for itself is right; together the calls do not fit.
TOGETHER: dict[str, tuple[tuple[Issue, Issue], str]] = {
    "expects less": (
        (make_sized((1, 2), (1, 2)), make_sized((1, 1), (2, 1))),
        "all_to_all_single 'ids': rank 0 sends 8 bytes to rank 1, which expects 4",
    ),
    "expects none": (
        (make_sized((0, 0), (0, 0)), make_sized((0, 1), (1, 1))),
        "all_to_all_single 'ids': rank 1 sends 4 bytes to rank 0, which expects 0",
    ),
    "list": (
        (
            lambda rank: rank.all_to_all([torch.ones(1), torch.ones(2)], [torch.ones(1), torch.ones(3)]),
            lambda rank: rank.all_to_all([torch.ones(2), torch.ones(1)], [torch.ones(2), torch.ones(1)]),
        ),
        "all_to_all: rank 0 sends 12 bytes to rank 1, which expects 8",
    ),
    "verb": (
        (lambda rank: rank.all_reduce(torch.ones(2), label="mean"), list_form()),
        "rank 0 calls all_reduce 'mean' (8 bytes, float32, sum), but rank 1 calls all_to_all (16 bytes, float32)",
    ),
    "form": (
        (list_form(), single()),
        "rank 0 calls all_to_all (16 bytes, float32), but rank 1 calls all_to_all_single (16 bytes, float32)",
    ),
    "reduction": (
        (lambda rank: rank.all_reduce(torch.ones(2)), lambda rank: rank.all_reduce(torch.ones(2), ReduceOp.MAX)),
        "rank 0 calls all_reduce (8 bytes, float32, sum), but rank 1 calls all_reduce (8 bytes, float32, max)",
    ),
    "root": (
        (lambda rank: rank.broadcast(torch.ones(2), 0), lambda rank: rank.broadcast(torch.ones(2), 1)),
        "rank 0 calls broadcast (8 bytes, float32, root 0), but rank 1 calls broadcast (8 bytes, float32, root 1)",
    ),
    "size": (
        (lambda rank: rank.all_reduce(torch.ones(2)), lambda rank: rank.all_reduce(torch.ones(3))),
        "rank 0 calls all_reduce (8 bytes, float32, sum), but rank 1 calls all_reduce (12 bytes, float32, sum)",
    ),
    "barrier": (
        (lambda rank: rank.barrier(), lambda rank: rank.broadcast(torch.ones(2), 0, label="wëights")),
        "rank 0 calls barrier (0 bytes), but rank 1 calls broadcast 'wëights' (8 bytes, float32, root 0)",
    ),
}


async def together(rank: Rank, name: str) -> tuple[str, str, float]:
    return await said_by(rank, TOGETHER[name][0][rank.rank])


@pytest.mark.parametrize("name", TOGETHER)
def test_calls_that_do_not_fit_are_the_same_sentence_on_all_and_the_group_goes_on(world: str, name: str) -> None:
    sentence = f"group world: {TOGETHER[name][1]}"
    assert results(world, 1, 2, together, name) == [("CollectiveError", sentence, 2.0)] * 2


OTHERS_GROUP = Group("elsewhere", (0, 1))
# What only the rank that is wrong can hear of: there is no group in whose order the call would stand.
ALONE: dict[str, tuple[Issue, str, str]] = {
    "another run's group": (
        lambda rank: rank.all_reduce(torch.ones(1), group=OTHERS_GROUP),
        "CollectiveError",
        "all_reduce: group elsewhere of [0, 1] is not of this run; make it with new_group",
    ),
    "another run's members": (
        lambda rank: rank.send(torch.ones(1), 1 - rank.rank, Group("world", (0, 1, 2))),
        "CollectiveError",
        "send: group world of [0, 1, 2] is not of this run; make it with new_group",
    ),
    "list": (
        lambda rank: rank.barrier([0, 1]),  # type: ignore[arg-type]
        "TypeError",
        "barrier: group must be a Group, got list",
    ),
    "nought": (
        lambda rank: rank.all_gather_into_tensor(torch.ones(2), torch.ones(1), 0),  # type: ignore[arg-type]
        "TypeError",
        "all_gather_into_tensor: group must be a Group, got int",
    ),
    "kernel's label": (
        lambda rank: rank.compute(Kernel(kind="gemm"), int, label=None),  # type: ignore[arg-type]
        "TypeError",
        "compute: label must be a str, got NoneType",
    ),
    "kernel's role": (
        lambda rank: rank.compute(Kernel(kind="gemm"), int, role="gradient"),
        "ValueError",
        f"compute: role = 'gradient': expected one of {', '.join(ROLES)}",
    ),
    "rank's role": (
        lambda rank: rank.for_role("gradient").barrier(),
        "ValueError",
        f"for_role: role = 'gradient': expected one of {', '.join(ROLES)}",
    ),
}


async def alone(rank: Rank, name: str) -> tuple[str, str, float]:
    return await said_by(rank, ALONE[name][0])


@pytest.mark.parametrize("name", ALONE)
def test_mistakes_that_cannot_reach_other_ranks_fail_on_their_own_rank(world: str, name: str) -> None:
    _, kind, text = ALONE[name]
    assert results(world, 1, 2, alone, name) == [(kind, f"rank {rank}: {text}", 2.0) for rank in range(2)]
