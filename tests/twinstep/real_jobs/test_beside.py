"""A measured job beside its prediction: causes add up in the table, in JSON, and a restart has its replacement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from real.job.elastic import ElasticJob
from real.job.timeline import JobTimes, JournalSpan, Killed
from reports.errors import ReportError
from reports.job.folder import write_content
from reports.job.load import load as load_job
from reports.job.real_job import REAL_JOB, REAL_JOB_SUMMARY, RealJob, content
from reports.terminal.present import print_report
from scenarios.config.load import load
from tests.twinstep.real_jobs.test_predicted import TEXT, job_of
from twinstep.__main__ import main
from twinstep.jobs.job_steps import given_steps
from twinstep.real_jobs.measured import beside
from twinstep.real_jobs.predicted import predict


def test_lost_time_is_shown_by_cause_measured_and_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.toml"
    path.write_text(TEXT)
    scenario = load(path)
    given = job_of(scenario)
    real = ElasticJob(scenario=scenario, folder=tmp_path, interval_steps=4, sizes=((250,) * 4,), restarts=1)
    lost = {"checkpoint": 2.5, "rework": 1.0, "detection": 0.5, "replacement": 2.0, "restart": 1.5, "restore": 0.5}
    measured = JobTimes(seconds=28.0, lost_s=lost, again=2)
    measured.kills.append(Killed(at_s=7.6, target="host1", kind="host", loses_host=True))
    measured.spans.append(JournalSpan(7.6, 8.1, "detection", "host1"))
    found = beside(
        scenario, real, "emulated hosts", measured, predict(scenario, given, given_steps(scenario, given), [])
    )
    told = content(found)
    assert told["lost"]["restart"] == {"measured_s": 3.5, "predicted_s": 0.0}
    assert (told["measured"]["lost_s"], told["predicted"]["lost_s"]) == (8.0, pytest.approx(3.0))
    assert told["error"] == pytest.approx(3 / 8 - 1)
    assert told["kills"] == ["host1 at 7.60 s"]
    assert told["spans"] == [{"begin_s": 7.6, "end_s": 8.1, "what": "detection", "why": "host1"}]
    print_report(REAL_JOB_SUMMARY, found)
    printed = " ".join(capsys.readouterr().out.split())
    assert "a checkpoint every 4 steps; killed: host1 at 7.60 s" in printed
    assert "lost in all 8.000 3.000 -5.000 -62.5%" in printed
    print_report(REAL_JOB, found, as_json=True)
    assert json.loads(capsys.readouterr().out)["lost"] == told["lost"]
    write_content(told, tmp_path)
    again = load_job(tmp_path)
    assert isinstance(again, RealJob)
    assert content(again) == told
    assert main(["report", str(tmp_path)]) == 0
    assert "lost in all 8.000 3.000 -5.000 -62.5%" in " ".join(capsys.readouterr().out.split())
    assert "What happened" in (tmp_path / "report.html").read_text()
    write_content({**told, "kills": [3]}, tmp_path)
    with pytest.raises(ReportError, match=r"job\.json: kills\[0\] = 3: expected text"):
        load_job(tmp_path)
