from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from scenarios.config.scenario import Exchange, Scenario, TimedCollective
from scenarios.seam.errors import ScenarioError
from scenarios.seam.program import Program
from scenarios.workloads.collective.program import CollectiveProgram
from scenarios.workloads.collective.splits import Splits, checksum, draw_values
from sim.run import simulate
from tests.small import CORE, TCP, cluster
from tests.small import scenario as a_scenario

RANKS, ELEMENTS, STEPS = 4, 240, 3


def scenario(op: str, size_bytes: int = 4 * ELEMENTS, **changes: Any) -> Scenario:
    collective = TimedCollective(op=op, size_bytes=size_bytes, **changes)  # type: ignore[arg-type]
    return a_scenario(cluster(2, 2), program="collective", collective=collective, steps=STEPS)


def make(rank: int, elements: int = ELEMENTS) -> torch.Tensor:
    return draw_values(0, rank, elements, dtype=torch.float32, device=torch.device("cpu"))[:elements]


def outputs(op: str) -> list[torch.Tensor]:
    """What each rank holds at the end of the first call."""
    whole = torch.stack([make(rank) for rank in range(RANKS)]).sum(0)
    match op:
        case "all_reduce":
            return [whole] * RANKS
        case "reduce_scatter":
            return list(whole.chunk(RANKS))
        case "all_gather":
            return [torch.cat([make(rank, ELEMENTS // RANKS) for rank in range(RANKS)])] * RANKS
        case "broadcast":
            return [make(0)] * RANKS
        case _:
            return [torch.cat([make(source).chunk(RANKS)[rank] for source in range(RANKS)]) for rank in range(RANKS)]


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"])
def test_the_first_step_says_what_each_rank_holds(op: str) -> None:
    on = scenario(op)
    program: Program = CollectiveProgram(on)
    recording = simulate(on, program)
    found = {metric.rank: metric.value for metric in recording.metrics}
    assert found == {rank: float(checksum(output)) for rank, output in enumerate(outputs(op))}
    assert {metric.step for metric in recording.metrics} == {0}
    later = [span.kind for span in recording.spans if span.step == 2 and span.rank == 0 and span.kind != "step"]
    assert len(later) == 1


def test_random_splits_are_those_of_an_exchange() -> None:
    on = scenario("all_to_all", splits="random", skew=0.5)
    splits = Splits(Exchange(size_bytes=4 * ELEMENTS, splits="random", skew=0.5), RANKS, on.run.seed)
    spans = [span for span in simulate(on, CollectiveProgram(on)).spans if span.kind == "all_to_all_single"]
    for span in spans:
        sends, receives = splits.of_rank(span.step, span.rank)
        assert (span.bytes_in, span.bytes_out) == (4 * sum(sends), 4 * sum(receives))
        assert span.bytes_sent == 4 * (sum(sends) - sends[span.rank])


@pytest.mark.parametrize("draw", [0, 1])
@pytest.mark.parametrize("on_tcp", [False, True])
def test_more_steps_change_no_step_before_the_last(draw: int, on_tcp: bool) -> None:
    """Of random splits, whose largest exchange decides how much memory the output takes."""

    def times_ns(steps: int) -> list[tuple[str, int, int, int]]:
        collective = TimedCollective(op="all_to_all", size_bytes=1 << 20, splits="random", skew=0.5)
        cluster_of = cluster(3, 1, gpu=CORE, tcp=TCP) if on_tcp else cluster(3, 1)
        on = a_scenario(cluster_of, program="collective", collective=collective, steps=steps, payload="sizes")
        spans = simulate(on, CollectiveProgram(on), draw).spans
        return [(span.kind, span.rank, span.start_ns, span.end_ns) for span in spans if 0 <= span.step < STEPS]

    assert sorted(times_ns(STEPS + 1)) == sorted(times_ns(3 * STEPS))


def test_memory_is_what_a_rank_holds() -> None:
    sizes = {(row.rank, row.part): row.size_bytes for row in CollectiveProgram(scenario("all_gather")).memory}
    assert (sizes[0, "input"], sizes[0, "output"]) == (ELEMENTS, 4 * ELEMENTS)
    in_place = {(row.rank, row.part): row.size_bytes for row in CollectiveProgram(scenario("broadcast")).memory}
    assert (in_place[3, "input"], in_place[3, "output"]) == (4 * ELEMENTS, 0)


@pytest.mark.parametrize("op", ["reduce_scatter", "all_gather"])
def test_a_size_without_equal_shares_is_refused(op: str) -> None:
    sentence = "collective.size = '968 B': expected a multiple of 16 bytes, a float32 for each of 4 ranks"
    with pytest.raises(ScenarioError, match=re.escape(sentence)):
        CollectiveProgram(scenario(op, 968))
