"""A job of real ranks survives a killed rank and a killed host, and ends with all of its steps; so does its journal."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from real.job import journal, launcher
from real.job.elastic import ElasticJob
from real.job.kills import parse_kill
from real.job.timeline import times_of
from real.launch.launcher import Hosts, RunEnded
from scenarios.config.load import load

pytestmark = pytest.mark.real
STEPS, INTERVAL, STEP_S = 12, 4, 0.05
TEXT = """
[cluster]
profile = "cpu_local"
hosts = 2
gpus_per_host = 1
[run]
library = "gloo"
timeout = "30 s"
steps = 12
[job]
step = "50 ms"
"""


def job(folder: Path) -> ElasticJob:
    path = folder / "killed.toml"
    path.write_text(TEXT)
    scenario = load(path).with_run(payload="values", ranks="each")
    return ElasticJob(scenario=scenario, folder=folder / "job", interval_steps=INTERVAL, sizes=((9, 1000),), restarts=3)


def test_a_killed_rank_and_a_killed_host_cost_what_the_journal_says(tmp_path: Path) -> None:
    made = job(tmp_path)
    kills = [parse_kill(text, made.scenario.cluster, STEPS) for text in ("step6:rank1", "step10:host0")]
    assert launcher.run(made, kills, Hosts()) == []
    events = journal.read(made.folder)
    times = times_of(events, 2)
    assert [kill.target for kill in times.kills] == ["rank1", "host0"]
    # From the checkpoints after four and eight steps; all steps count once, however often they were done.
    assert sorted({event["step"] for event in events if event["what"] == "restored"}) == [0, 4, 8]
    assert len(times.step_s) == STEPS
    assert min(times.step_s) >= STEP_S
    assert sorted(times.checkpoint_s) == [4, 8, 12]
    assert times.again >= 2
    assert times.lost_s["rework"] >= 4 * STEP_S  # two steps were done since each checkpoint
    assert all(times.lost_s[cause] > 0 for cause in times.lost_s)
    # What is neither lost nor a step is the time between steps.
    assert times.seconds >= sum(times.lost_s.values()) + sum(times.step_s) - 1e-6
    assert not [event for event in events if event["what"] == "started" and _is_alive(event["pid"])]


def test_ctrl_c_kills_all_ranks_and_leaves_the_journal(tmp_path: Path) -> None:
    made = job(tmp_path)

    def interrupt_in_a_step() -> None:
        while not any(event["what"] == "step" for event in journal.read(made.folder)):
            if over.wait(0.01):
                return
        os.kill(os.getpid(), signal.SIGINT)

    over = threading.Event()
    thread = threading.Thread(target=interrupt_in_a_step)
    thread.start()
    with pytest.raises(RunEnded) as ended:
        launcher.run(made, [], Hosts())
    over.set()
    thread.join()
    assert (ended.value.code, str(ended.value)) == (130, "the job was interrupted by SIGINT; its journal is kept")
    events = journal.read(made.folder)
    assert events[-1]["what"] == "ended early"
    assert not [event for event in events if event["what"] in ("started", "up") and _is_alive(event["pid"])]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
