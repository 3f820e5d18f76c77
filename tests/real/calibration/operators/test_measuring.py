"""Measuring within a time, and going on where an earlier measurement stood."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest
import torch

from real.calibration.operators import measuring
from real.calibration.operators.making.arena import Arena, Made
from real.calibration.operators.measuring import measure
from real.calibration.operators.part import PartialMeasurement, keeping
from real.calibration.operators.timers import CpuTimer, Maker, RepeatTimes
from real.launch.launcher import RunEnded
from scenarios.seam.errors import ScenarioError
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.sorting import Sort

OF = {"device": "a CPU", "torch": "2"}


def operators(number: int) -> list[Operation]:
    return [contiguous("relu", 8 + size, "float32") for size in range(number)]


def arena() -> Arena:
    return Arena(torch.device("cpu"), 1 << 20, 1 << 20)


class Counting:
    """A timer that makes each operator and says that it took 3 us; `then` is called after each batch."""

    is_cold = False

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.made: list[Made | None] = []
        self._then = then

    def take(self, batch: Sequence[tuple[Operation, Maker]]) -> list[RepeatTimes]:
        """See `Timer`."""
        made = [make() for _, make in batch]
        self.made += made
        self._then()
        return [RepeatTimes() if each is None else RepeatTimes((3.0, 3.1)) for each in made]


def test_plan_is_measured_and_refusals_have_reasons() -> None:
    part, bad = PartialMeasurement(), Sort(elements=8, bits=3)
    assert measure([*operators(30), bad], Counting(), arena(), part, seconds=60)
    assert [one.operation for one in part.measured] == operators(30)
    assert {one.times_us for one in part.measured} == {(3.0, 3.1)}
    assert [(one.operation, one.why) for one in part.refused] == [(bad, "torch sorts by all bits of its integers")]
    assert part.measured[0].needed_bytes == 2 * 8 * 4


def test_an_endless_plan_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    def later() -> None:
        now_s[0] += 1.0

    part = PartialMeasurement()
    endless = (contiguous("relu", size, "float32") for size in count(1))
    assert not measure(endless, Counting(later), arena(), part, seconds=3.5)
    assert len(part.measured) == 4 * measuring._BATCH
    assert part.spent_s == 4.0


def test_a_measurement_that_was_interrupted_goes_on_where_it_stood(tmp_path: Path) -> None:
    file, plan = tmp_path / "a.parquet.part", operators(60)
    batches = count()

    def interrupt() -> None:
        if next(batches) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), keeping(file, OF) as part:
        measure(plan, Counting(interrupt), arena(), part, seconds=60)
    file.write_text(file.read_text() + '{"operation": {"is": "Poi')  # as a machine that stops leaves it
    timer = Counting()
    with keeping(file, OF) as part:
        assert len(part.measured) == 24
        assert measure(plan, timer, arena(), part, seconds=60)
    assert len(timer.made) == 36
    assert [one.operation for one in part.measured] == plan
    with keeping(file, OF) as part:
        assert [one.operation for one in part.measured] == plan
        assert part.measured[0].times_us == (3.0, 3.1)
        assert part.measured[0].needed_bytes == 64


def test_operators_among_which_a_gpu_failed_are_not_tried_again(tmp_path: Path) -> None:
    file, plan = tmp_path / "a.parquet.part", operators(30)

    def fail() -> None:
        raise RunEnded("the GPU failed")

    with pytest.raises(RunEnded), keeping(file, OF) as part:
        measure(plan, Counting(fail), arena(), part, seconds=60)
    with keeping(file, OF) as part:
        assert measure(plan, Counting(), arena(), part, seconds=60)
    assert [one.operation for one in part.refused] == plan[:24]
    assert {one.why for one in part.refused} == {"the GPU failed at one of 24 operators, of which it is one"}
    assert [one.operation for one in part.measured] == plan[24:]


def test_time_that_earlier_commands_have_spent_counts(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet.part"
    file.write_text(f"{json.dumps(OF)}\n" + json.dumps({"spent_s": 50.0}) + "\n")
    timer = Counting()
    with keeping(file, OF) as part:
        assert not measure(operators(3), timer, arena(), part, seconds=50)
    assert timer.made == []


def test_part_file_of_another_device_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet.part"
    with keeping(file, OF):
        pass
    with pytest.raises(ScenarioError) as error, keeping(file, {**OF, "device": "another"}):
        pass
    assert str(error.value) == (
        f"{file}: device = 'a CPU': expected 'another', as this command measures; remove the file to begin anew"
    )


@pytest.mark.parametrize("text", ["", "no JSON\n", '{"device": "a CPU", "torch": "2"}\n{"operation": 3}\n', "[1]\n"])
def test_a_file_that_is_no_measurement_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet.part"
    file.write_text(text)
    with pytest.raises(ScenarioError) as error, keeping(file, OF):
        pass
    assert str(error.value) == f"{file}: expected a measurement that was interrupted; remove the file"


def test_core_measures_a_plan() -> None:
    part = PartialMeasurement()
    assert measure(operators(5), CpuTimer(), arena(), part, seconds=60)
    assert all(min(one.times_us) > 0 for one in part.measured)
