"""A step beside which a checkpoint is written over the NICs of the step's messages, simulated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from reports.analysis.step_breakdown import mean_step_ns
from reports.run import Run
from sim.draws import steps_of_draw
from sim.rank.world import World
from sim.storage_traffic import StorageTraffic, StorageWrites
from twinstep.jobs.checkpoint import JobCheckpoints


def step_while_writing(times: JobCheckpoints, step_s: float) -> tuple[float, JobCheckpoints]:
    """Return the seconds of a step while a checkpoint is written, and the times of checkpoints beside such steps.

    Each host's flow meets the messages of all steps in the simulator's network, at max-min fair shares. Where
    checkpoints do not meet messages, both are as given.

    Args:
        times: the job's checkpoints, with the program that the step was simulated of.
        step_s: seconds of the step without writes.

    Raises:
        ProgramError: as `sim.run.simulate` does.
    """
    if not times.meets_messages or times.program is None:
        return step_s, times
    given, host_per_s, store_per_s = times.given, times.host_bytes_per_s, times.given.store_rate
    if given.write_ns:  # says what a store gives each host
        host_per_s = times.size().hosts_written.max() / given.write_ns * 1e9
        store_per_s = host_per_s * times.scenario.cluster.hosts
    writes = StorageWrites(
        host_bytes_per_s=host_per_s,
        store_bytes_per_s=store_per_s if given.to == "store" else None,
        by_first=given.shards == "rank0",
        step_s=step_s,
    )
    begun: list[StorageTraffic] = []

    def beside(world: World) -> Callable[[], None]:
        begun.append(StorageTraffic(world, writes))
        return begun[-1].end

    recording = steps_of_draw(times.scenario, times.program, beside=beside)[0]
    steps = [span for span in recording.spans if span.kind == "step" and span.step >= 0]
    rate = begun[-1].host_bytes_per_s(min(span.start_ns for span in steps), max(span.end_ns for span in steps))
    slowed_s = mean_step_ns(Run.of(recording)) / 1e9
    return slowed_s, dataclasses.replace(times, beside_bytes_per_s=rate)
