"""Which steps a run's headline is of, from what each step did: a letter is an operation."""

from __future__ import annotations

import pytest

from scenarios.seam.steady_steps import Work, steady_steps


def steady(*steps: str) -> list[int]:
    works: dict[Work, int] = {}
    for step in steps:
        works.setdefault(frozenset((("kind", one, ""), step.count(one)) for one in step), len(works))
    work_of = [works[frozenset((("kind", one, ""), step.count(one)) for one in step)] for step in steps]
    return [step for step, is_steady in enumerate(steady_steps(list(works), work_of)) if is_steady]


def test_of_no_step_none_and_of_one_step_that_one_is_steady() -> None:
    assert steady() == []
    assert steady("") == steady("C") == [0]


@pytest.mark.parametrize("count", [3, 4, 8])
def test_steps_that_fill_or_drain_a_pipeline_are_not_steady(count: int) -> None:
    assert steady("IIC", *["IC"] * (count - 2), "C") == list(range(1, count - 1))
    assert steady("I", *["IC"] * (count - 2), "C") == list(range(1, count - 1))
    assert steady(*["IC"] * (count - 1), "C") == list(range(count - 1))


@pytest.mark.parametrize("count", [4, 8])
def test_of_a_pipeline_two_deep_both_draining_steps_are_left_out(count: int) -> None:
    assert steady("AAABBC", *["ABC"] * (count - 3), "BC", "C") == list(range(1, count - 2))


def test_steps_with_compression_are_steady_however_few() -> None:
    assert steady("CG", "CG", "CPQ") == [2]
    assert steady("CG", "CG", "CPQ", "CPQE") == [3]
    assert steady(*["CG"] * 5, "CPQ", "CPQE", "CPQE") == [6, 7]
    assert steady("CG", "CG", "CPQn", "CPQ", "CPQ") == [3, 4]


def test_a_pipeline_with_compression_is_steady_between_its_begin_and_its_drain() -> None:
    assert steady("IICG", "ICG", "ICP", "CP") == [2]
    assert steady("IICG", "ICG", "ICP", "ICP", "ICP", "CP") == [2, 3, 4]


def test_occasional_operations_make_no_steady_steps() -> None:
    assert steady("Cn", "C") == [1]
    assert steady("CB", "CSSS", "C") == [2]
    assert steady(*["C"] * 9, "CS") == list(range(9))
    ten = [*["C"] * 9, "CS"]
    assert steady(*ten * 3) == [step for step in range(30) if step % 10 != 9]
    assert steady(*[*["C"] * 9, "E"] * 3) == [step for step in range(30) if step % 10 != 9]


def test_steps_that_differ_in_their_number_of_calls_alone_are_all_steady() -> None:
    assert steady("C", "CC", "CCC", "CCCC", "CCCCC") == [0, 1, 2, 3, 4]
