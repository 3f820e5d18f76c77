"""The ranges of operators: all families come early, none comes twice, sizes lie evenly and within the scale."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from itertools import islice, pairwise

import pytest

from real.calibration.operators.draws import CPU_SCALE, GPU_SCALE, Draw
from real.calibration.operators.ranges import Family, families, plan_operators
from scenarios.config.load import load_profile
from scenarios.seam.operations.moves import OneRankCollective
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import Pointwise, contiguous
from scenarios.seam.operations.products import Recurrence
from sim.operators.laws import seconds

GPU = load_profile("hgx_h200").host.gpu
ALL = families(GPU, has_fbgemm=True)


def test_a_round_has_all_families_and_all_descriptions_come_early() -> None:
    once = sum(family.share for family in ALL)
    early = Counter(name for name, _ in islice(plan_operators(ALL, GPU_SCALE), once))
    assert early == {family.name: family.share for family in ALL}
    found = {type(operation) for _, operation in islice(plan_operators(ALL, GPU_SCALE), 10 * once)}
    assert found == set(Operation.kinds.values()) - {OneRankCollective, Recurrence}


def repeats(alone_s: float) -> int:
    return max(2, min(5, round(2e-3 / alone_s)))


def test_no_operator_comes_twice_and_thousands_have_laws() -> None:
    every = [operation for _, operation in islice(plan_operators(ALL, GPU_SCALE), 5000)]
    assert len(set(every)) == len(every)
    times_s = [seconds(each, GPU, is_cold=True) for each in every]
    assert min(times_s) > 0
    # Each runs twice before it is measured two to five times, each behind a fill of 256 MiB and a spin.
    spent_s = sum((2 + repeats(each)) * each + repeats(each) * 150e-6 for each in times_s)
    assert spent_s < 30, "5,000 of them are to be measured in a minute of a GPU, beside what its host takes"


def test_a_family_that_has_no_more_operators_ends() -> None:
    few = Family(name="few", make=lambda draw: contiguous("relu", draw.one_of((1, 2, 3)), "float32"))
    assert len(list(plan_operators([few], CPU_SCALE))) == 3


@pytest.mark.parametrize("count", [16, 64, 256])
def test_sizes_lie_evenly_however_early_the_sequence_is_cut_off(count: int) -> None:
    logs = sorted(math.log2(Draw(number, GPU_SCALE).elements()) for number in range(1, count + 1))
    gaps = [after - before for before, after in pairwise(logs)]
    assert max(gaps) < 3 * 18 / count + 0.1
    assert logs[0] < 10 + 3 * 18 / count
    assert logs[-1] > 28 - 3 * 18 / count


def test_operators_of_a_cpu_are_small() -> None:
    for _, operation in islice(plan_operators(ALL, CPU_SCALE), 500):
        if isinstance(operation, Pointwise):
            assert operation.elements <= CPU_SCALE.elements


def test_dtypes_are_those_that_the_gpu_has_peaks_for() -> None:
    old = dataclasses.replace(GPU, flops_per_s={"float32": 1e13, "float16": 1e14})
    names = {family.name for family in families(old, has_fbgemm=False)}
    assert "products float16" in names
    assert not {name for name in names if "bfloat16" in name or "tf32" in name or "bags" in name}
