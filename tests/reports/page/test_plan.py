"""The plan as a picture: the height of a table's block is what it costs its rank."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree as Xml

import pytest

from reports.page import theme
from reports.page.blocks import Picture
from reports.page.run.plan import plan
from reports.run import Run
from reports.sections.run.subject import RunView
from scenarios.seam.trace import Recording
from scenarios.sharding_kind import ShardingKind
from tests.reports.analysis.test_table_costs import two_ranks


def picture(recording: Recording) -> Picture:
    (found,) = plan(RunView.of(Run.of(recording)))
    return found


def blocks(found: Picture) -> dict[str, float]:
    """Return the height (px) of each block by what it says under the mouse."""
    rects = Xml.fromstring(found.svg).iter("rect")
    return {said: float(one.attrib["height"]) for one in rects if (said := one.findtext("title"))}


def words(found: Picture) -> list[str]:
    return [str(one.text) for one in Xml.fromstring(found.svg).iter("text")]


def test_blocks_are_as_high_as_what_tables_cost_in_the_step() -> None:
    found = picture(two_ranks())
    expected = {
        "rank 1: a, column_wise: 70 ns (look-up 50 ns, update 10 ns, exchange 10 ns)": 260,
        "rank 0: a, column_wise: 42 ns (look-up 30 ns, update 5 ns, exchange 8 ns)": 260 * 42.5 / 70,
        "rank 0: b, column_wise: 18 ns (look-up 10 ns, update 5 ns, exchange 2 ns)": 260 * 17.5 / 70,
    }
    assert blocks(found) == pytest.approx(expected, abs=0.01)
    assert found.caption == "Slowest: rank 1, 70 ns, 1.08 times the mean rank's 65 ns (dashed)."
    assert "slowest: 1" in words(found)
    assert found.legend == [(theme.SHARDINGS["column_wise"], "column_wise: 2 tables, 100.0 % of the time")]


def test_every_sharding_type_has_a_colour_of_its_own() -> None:
    assert set(theme.SHARDINGS) == set(ShardingKind)
    assert len({*theme.SHARDINGS.values()}) == len(theme.SHARDINGS)


def test_the_planners_times_take_the_place_of_an_unknown_step() -> None:
    found = picture(dataclasses.replace(two_ranks(), spans=[]))
    assert found.title == "The plan: what tables cost on each rank, by the planner"
    assert blocks(found) == {
        "rank 0: a, column_wise: 6.00 ms": 156,
        "rank 0: b, column_wise: 4.00 ms": 104,
        "rank 1: a, column_wise: 6.00 ms": 156,
    }


def test_many_ranks_are_sampled_from_the_slowest_to_the_fastest_and_small_tables_are_one_block() -> None:
    recording = dataclasses.replace(two_ranks(), spans=[])
    row = dataclasses.replace(recording.plan[0], table="large")
    plan = [dataclasses.replace(row, rank=rank, perf_ms=100.0 + rank) for rank in range(200)]
    plan += [dataclasses.replace(row, table=f"small_{at}", rank=199, perf_ms=0.5) for at in range(3)]
    found = picture(dataclasses.replace(recording, plan=plan))
    assert "48 of 200 ranks, from the slowest to the fastest" in found.note
    said = list(blocks(found))
    assert [one.split(":")[0] for one in (said[0], said[1], said[-1])] == ["rank 199", "rank 199", "rank 0"]
    assert said[1] == "rank 199: 3 smaller tables, 1.50 ms"
    assert len(said) == 48 + 1


def test_without_costs_there_is_no_picture() -> None:
    recording = dataclasses.replace(two_ranks(), spans=[])
    free = [dataclasses.replace(row, perf_ms=0.0) for row in recording.plan]
    assert plan(RunView.of(Run.of(dataclasses.replace(recording, plan=free)))) == []
