from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from benchmarks.baselines.cases import Case, calls
from scenarios.config.load import load_profile
from scenarios.seam.arguments import Issue
from scenarios.seam.calls import Call
from scenarios.seam.collectives import COLLECTIVES, disagreement
from scenarios.seam.group import Group

ELEMENT = 4


def case(**values: Any) -> Case:
    given = {"op": "all_to_all", "size_bytes": 4000, "hosts": 2, "ranks_per_host": 2, "nic_bytes_per_s": 25e6}
    return Case.model_validate(given | {"measured_s": 1.0, "ours_s": 1.0} | values)


def essentials(call: Call) -> tuple[object, ...]:
    return call.op, call.rank, call.bytes_in, call.bytes_out, call.send_bytes, call.recv_bytes, call.element_size


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather"])
def test_calls_are_those_that_tensors_make(op: str) -> None:
    size, ranks = 4800, 3
    group = Group("world", tuple(range(ranks)))
    shares = {"all_reduce": (1, 1), "reduce_scatter": (1, ranks), "all_gather": (ranks, 1)}[op]
    given, received = (torch.zeros(size // ELEMENT // share) for share in shares)
    made = calls(op, size, ranks)
    for rank in group.ranks:
        issue = Issue(made[0].op, rank, group, input=given, output=given if op == "all_reduce" else received)
        issue.reduce = torch.distributed.ReduceOp.SUM
        expected = COLLECTIVES[made[0].op].check(issue)
        assert essentials(made[rank]) == essentials(expected)


def test_calls_of_an_all_to_all_are_those_that_tensors_make() -> None:
    matrix = [[8, 4, 0], [12, 0, 16], [4, 4, 4]]
    group = Group("world", (0, 1, 2))
    for call in calls("all_to_all", 28, 3, matrix):
        sends = [size // ELEMENT for size in matrix[call.rank]]
        receives = [row[call.rank] // ELEMENT for row in matrix]
        tensors = torch.zeros(sum(receives)), torch.zeros(sum(sends))
        output, input = tensors
        issue = Issue(call.op, call.rank, group, input=input, output=output, splits=(receives, sends))
        assert essentials(call) == essentials(COLLECTIVES[call.op].check(issue))


def test_a_broadcast_is_rank_0_s_and_members_agree() -> None:
    made = calls("broadcast", 64, 3)
    assert [(call.root, call.bytes_in, call.bytes_out) for call in made] == [(0, 64, 0), (0, 0, 64), (0, 0, 64)]
    assert disagreement(dict(enumerate(made))) is None


def test_even_splits_send_the_size_as_equally_as_can_be() -> None:
    (matrix,) = case(size_bytes=36).matrices()
    assert matrix == [[12, 8, 8, 8]] * 4


def test_random_splits_are_drawn_for_each_step_that_was_measured() -> None:
    drawn = case(splits="random", steps=[3, 4], seed=5, skew=1.0)
    third, fourth = drawn.matrices()
    assert third != fourth
    assert [third] == case(splits="random", steps=[3], seed=5, skew=1.0).matrices()
    assert third is not None
    assert [sum(row) for row in third] == [4000] * 4


def test_other_collectives_have_no_splits() -> None:
    assert case(op="all_reduce").matrices() == [None]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"splits": "random"}, "random splits want the steps that were measured"),
        ({"splits": [[[1, 2], [3, 4]]]}, "expected splits of 4 rows of 4 each, for each step"),
        ({"splits": []}, "expected splits of 4 rows of 4 each, for each step"),
        ({"rate": 1}, "Extra inputs are not permitted"),
    ],
)
def test_a_case_that_says_too_little_is_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        case(**values)


def test_a_platform_has_the_case_s_hosts_and_ranks() -> None:
    platform = case(hosts=3).platform(load_profile("cpu_local"))
    assert (platform.hosts, platform.host.gpus, platform.world_size) == (3, 2, 6)
