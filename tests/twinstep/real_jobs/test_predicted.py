"""A job with given kills is predicted by arithmetic done by hand; a calibration's file says what it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from real.job.elastic import ElasticJob
from real.job.kills import Kill, parse_kill
from real.job.timeline import JobTimes, Killed
from scenarios.config.load import load
from scenarios.config.scenario import Scenario, TrainingJob
from sim.job.play import Played
from twinstep.jobs.job_steps import given_steps
from twinstep.measurement import main
from twinstep.real_jobs.calibration import text_of
from twinstep.real_jobs.predicted import predict, shares

TEXT = """
[cluster]
profile = "cpu_local"
hosts = 2
gpus_per_host = 2
[run]
library = "gloo"
steps = 20
[job]
step = "1 s"
[job.checkpoint]
interval_steps = 4
size = "1 GB"
store_rate = "2 GB/s"
host_rate = "2 GB/s"
overhead = "0.1 s"
restore_rate = "4 GB/s"
[job.recovery]
detection = "0.5 s"
schedule = "1 s"
start = "0.2 s"
setup = "0.2 s"
setup_per_rank = "0.15 s"
replacement = "3 s"
[[job.failures.kinds]]
name = "host"
detection = "2 s"
loses_host = true
"""
WRITE_S, RESTORE_S, RESTART_S = 0.6, 0.35, 2.0


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    path = tmp_path_factory.mktemp("job") / "job.toml"
    path.write_text(TEXT)
    return load(path)


def played(scenario: Scenario, *kills: str) -> Played:
    given = job_of(scenario)
    asked: Sequence[Kill] = [parse_kill(text, scenario.cluster, scenario.run.steps) for text in kills]
    return predict(scenario, given, given_steps(scenario, given), asked).play()


def job_of(scenario: Scenario) -> TrainingJob:
    assert scenario.job is not None
    return scenario.job


def test_a_rank_that_is_killed_in_a_step_costs_what_was_done_since_the_checkpoint(scenario: Scenario) -> None:
    found = played(scenario, "step7:rank3")
    lost = {cause: seconds for cause, seconds in found.lost_s.items() if seconds}
    assert lost == pytest.approx(
        {"checkpoint": 5 * WRITE_S, "rework": 3.0, "detection": 0.5, "restart": RESTART_S, "restore": RESTORE_S}
    )
    assert found.seconds == pytest.approx(20 + sum(lost.values()))
    # The same moment in seconds: seven steps and a checkpoint.
    assert played(scenario, "7.6s:rank3").lost_s == pytest.approx(found.lost_s)


def test_kills_at_steps_count_the_time_of_earlier_kills(scenario: Scenario) -> None:
    # A step that follows a checkpoint begins after it: nothing is done again.
    found = played(scenario, "step16:host1", "step7:rank3")
    assert found.counts == {"rank": 1, "host": 1}
    assert found.lost_s["rework"] == pytest.approx(3.0)
    assert found.lost_s["detection"] == pytest.approx(0.5 + 2.0)
    assert found.lost_s["replacement"] == pytest.approx(3.0)
    assert found.lost_s["restart"] == pytest.approx(2 * RESTART_S)
    assert played(scenario, "step0:rank0").lost_s["rework"] == 0.0


def test_each_rank_saves_its_part_or_the_first_one_all(scenario: Scenario) -> None:
    given = job_of(scenario)
    assert shares(scenario, given, given_steps(scenario, given)) == (250_000_000,) * 4
    first = replace(given, checkpoint=replace(given.checkpoint, shards="rank0"))
    assert shares(scenario, first, given_steps(scenario, first)) == (10**9, 1, 1, 1)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("kind", "async", "'async': expected 'blocking' on real ranks"),
        ("full_every", "4", "4: expected 1 on real ranks"),
    ],
)
def test_a_job_that_real_ranks_cannot_do_is_a_sentence(
    key: str, value: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["job", "criteo_small_2x2", "--set", f"job.checkpoint.{key}={value}"]) == 2
    assert capsys.readouterr().err.endswith(f"criteo_small_2x2.toml: job.checkpoint.{key} = {sentence}\n")


def test_kills_that_cannot_be_are_sentences(scenario: Scenario, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", str(scenario.path), "--kill", "step7:rank3", "--kill", "1 h:rank0"]) == 2
    seconds = played(scenario, "step7:rank3").seconds
    sentence = f"expected a moment before the job's end, predicted after {seconds:.1f} s"
    assert capsys.readouterr().err == f"--kill = '1 h:rank0': {sentence}\n"
    assert main(["job", "twrw_2x2"]) == 2
    assert "job: missing; expected a table [job], whose checkpoints are written\n" in capsys.readouterr().err


def test_a_calibration_is_read_as_it_was_measured(scenario: Scenario, tmp_path: Path) -> None:
    """Its file, included, gives what a job of these costs takes: 0.1 s a checkpoint, 2 and 4 GB/s."""
    sizes = ((10**8,) * 4, (10**9,) * 4)
    real = ElasticJob(scenario=scenario, folder=tmp_path, interval_steps=4, sizes=sizes, restarts=9)
    times = JobTimes(seconds=1.0, checkpoint_s={4: 0.3, 8: 2.1, 12: 0.3, 16: 2.1})
    for step in (6, 10, 14, 18, 22, 26):
        is_host = step in (14, 18, 26)
        loaded = 10**8 if step in (6, 14, 22) else 10**9
        times.kills.append(Killed(at_s=1.0 * step, target="x", kind="x", loses_host=is_host))
        parts = {"detection": 2.0, "formed": 4.0} if is_host else {"detection": 0.5, "formed": 1.0}
        times.parts.append({**parts, "start": 0.2, "setup": 0.8, "restore": 0.1 + loaded / 1e9})
    (tmp_path / "here.toml").write_text(text_of(times, real))
    path = tmp_path / "with.toml"
    path.write_text('include = "here.toml"\n' + TEXT.partition("store_rate")[0])
    made = load(path)
    given = job_of(made)
    assert (given.recovery.detection_ns, given.failures.kinds[1].detection_ns) == (500_000_000, 2_000_000_000)
    assert given.recovery.restart_ns(4) == 2_000_000_000
    assert given.recovery.replacement_ns == 3_000_000_000
    writing = predict(made, given, given_steps(made, given), []).model.writing  # of 1 GB
    assert writing.blocks_s == pytest.approx((0.6,))
    assert writing.restore_s == pytest.approx((0.35,))
