"""Simulates one point in a worker: the entry point of a worker's process, which therefore knows both sim and
reports.
"""

from __future__ import annotations

import io
import tarfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Literal

from distributed import get_worker

from reports.errors import NoStepError
from reports.run import Run
from reports.store import run_folder
from reports.study.measures import estimated_measures, measures_of, speeds_of, with_draws
from reports.writer import write
from scenarios.config.scenario import Recommender
from scenarios.config.warnings import note_of_compression
from scenarios.owned_folder import scratch_folder
from scenarios.seam.errors import Note, ProgramError, ScenarioError, tell_error
from scenarios.seam.program import Program
from scenarios.seam.trace import Recording, Span
from scenarios.workloads.build import build
from scenarios.workloads.dlrm.ids.id_cache import DRAWN
from sim.draws import Digest, further_draws
from sim.run import play
from sim.span_filter import Keeping
from twinstep.jobs.job_prediction import job_measures
from twinstep.jobs.options import own_job
from twinstep.plan_choice import build_planned
from twinstep.plan_choice.evaluated_plan import SearchStoppedError
from twinstep.studies.kept_plan import places
from twinstep.studies.task import ESTIMATE, Result, Task

# A worker of several threads runs one point at a time: torch's settings and traces are the whole process's.
_ONE = threading.Lock()
# Drawing ids takes up to half of a point's time, and points that differ in hardware or plan have the same ids.
_DRAWN_BYTES = 5 << 27  # ids of some 800,000 samples of 214 ids


class _TimedOutError(Exception):
    """A point that took longer than its time limit."""


def play_point(task: Task) -> Result:
    """Simulate a point to its end or its mistake; errors become results."""
    with _ONE, warnings.catch_warnings(), DRAWN.up_to(_DRAWN_BYTES):
        warnings.simplefilter("ignore", Note)
        # Behind the lock: a point's seconds must not count its wait for another one.
        began_s = time.monotonic()
        try:
            result = _estimate(task) if task.fidelity == ESTIMATE else _play(task, began_s)
        except ScenarioError as error:
            result = Result(status="scenario error", sentence=str(error))
        except (ProgramError, NoStepError) as error:
            result = Result(status="program error", sentence=str(error))
        except _TimedOutError as error:
            result = Result(status="timed out", sentence=str(error))
        except SearchStoppedError:
            sentence = f"{task.scenario.path}: expected a plan and a prediction with it within {task.timeout_s:g} s"
            result = Result(status="timed out", sentence=sentence)
        # A point's error must not end its worker: it becomes the point's row.
        except Exception as error:
            result = Result(status="error", sentence=tell_error(error))
        return replace(result, seconds=time.monotonic() - began_s, worker=_worker())


def _worker() -> str:
    """Return the address of this worker; "" outside of workers."""
    try:
        return str(get_worker().address)
    except ValueError:
        return ""


def _estimate(task: Task) -> Result:
    scenario = task.scenario
    if isinstance(scenario.workload, Recommender):
        scenario = scenario.with_workload(planner=replace(scenario.workload.planner, choose="estimated"))
    program = build(scenario)
    shards = [(row.rank, row.perf_ms) for row in program.plan]
    if not shards:
        raise ScenarioError(
            f"{task.scenario.path}: program = '{task.scenario.program}': expected one with tables to place, as an"
            " estimate is the planner's"
        )
    cluster = task.scenario.cluster
    measures = estimated_measures(
        shards,
        program.memory,
        samples=task.scenario.run.batch_size * cluster.world_size,
        gpus=cluster.world_size,
        prices={} if cluster.cost is None else asdict(cluster.cost),
    )
    return Result(status="done", measures=measures)


def _play(task: Task, began_s: float) -> Result:
    fidelity: Literal["flows", "links"] = "links" if task.fidelity == "links" else "flows"
    scenario = task.scenario.with_run(fidelity=fidelity)
    is_over = _stop_after(task.timeout_s, began_s)
    if (program := task.program) is None:
        try:
            scenario, program = build_planned(scenario, stop=partial(is_over, None))
        except SearchStoppedError:
            raise _TimedOutError(
                f"{scenario.path}: expected to end within {task.timeout_s:g} s with its plan"
            ) from None
    spans, first = list[Span](), Digest()

    def take(each: list[Span]) -> None:
        spans.extend(each)
        first.add(each)

    def look(_: object) -> None:
        if is_over(_):
            raise _TimedOutError(f"{scenario.path}: expected to end within {task.timeout_s:g} s with all of its draws")

    recording = play(scenario, program, take, rewrite=task.rewrite, stop=is_over)
    if not recording.info.complete:
        raise _TimedOutError(f"{scenario.path}: expected to end within {task.timeout_s:g} s; {recording.info.error}")
    recording.spans = spans
    measures = measures_of(run := Run.of(recording))
    draws = further_draws(scenario, program, task.draws, first, look=look, rewrite=task.rewrite)
    runs = [run, *map(Run.of, draws)]
    if task.draws and not task.measures_draw_0:
        measures = with_draws(measures, runs)
    if (job := own_job(scenario)) is not None:
        measures |= job_measures(scenario, job, program, run)
    return Result(
        status="done",
        sentence=note_of_compression(scenario),
        measures=measures,
        folder=_folder(task, program, recording),
        speeds=speeds_of(runs),
        places=places(recording.plan),
    )


def _stop_after(timeout_s: float, began_s: float) -> Callable[[object], bool]:
    return lambda _: time.monotonic() - began_s > timeout_s


def _folder(task: Task, program: Program, recording: Recording) -> bytes:
    """Return the point's run folder as a tar archive, with the spans that `keep` selects; empty for "rows"."""
    if task.keep == "rows":
        return b""
    with scratch_folder() as base:
        folder = base / "run"
        if task.keep == "spans":
            write(recording, folder)
        else:
            # The points of a study would fill a disk with all spans: without `keep` = "spans" only steps' spans stay.
            keeping = Keeping(frozenset())
            steps = list(keeping.of(recording.spans))
            run_folder.write(
                replace(recording, spans=steps, info=replace(recording.info, thinned=keeping.as_thinned)), folder
            )
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            archive.add(folder, ".")
        return content.getvalue()
