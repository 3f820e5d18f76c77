"""`twinstep plan`: its sentence says what predictions with these plans say, and it never takes a slower plan."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import twinstep
from reports.analysis.step_breakdown import step_time_ns, typical_step
from reports.errors import ReportError
from reports.sections.plans import BEST, PLANNERS, YOURS, PlansView, _place, verdict
from reports.terminal import text
from scenarios.config.load import load
from scenarios.config.scenario import Scenario
from scenarios.progress_line import ProgressLine
from tests.commands import command
from tests.twinstep.plan_choice.test_choice import file_of
from twinstep.plan_choice.comparison import Compared, TimeLimit, compare_plans
from twinstep.plan_choice.evaluated_plan import STEPS
from twinstep.plan_choice.scenario_job import ScenarioJob, kept_ranks

STEPS_OF_ANSWER = 5


def few_of(folder: Path, more: str = "") -> Path:
    """Write tables of which it does not matter how long a search takes."""
    return file_of(folder, more, tables=12, gpus=2)


def planners_plan(folder: Path) -> Path:
    """Write the planner's plan of `file_of`'s tables, with those of its bottleneck rank on a rank beside it."""
    done = command("scenarios", "plan", folder / "model.toml", "--out", folder / "own.json")
    assert done.returncode == 0, done.stderr
    words = (folder / "own.json").read_text()
    words = words.replace('"ranks": [6]', '"ranks": [5]').replace("rank:6/cuda:2", "rank:5/cuda:1")
    (folder / "own.json").write_text(words)
    return folder / "own.json"


def compare(scenario: Scenario, times: Iterator[float], seconds: float = 60.0) -> Compared:
    limit = TimeLimit(seconds, ProgressLine(quiet=True), lambda: next(times))
    return compare_plans(job_of(scenario), limit)


def job_of(scenario: Scenario) -> ScenarioJob:
    return ScenarioJob(scenario.path, {"run.steps": scenario.run.steps}, None)


@pytest.mark.parametrize(
    ("kind", "ranks", "said"),
    [
        ("table_row_wise", range(8, 16), "TWRW 8-15"),
        ("row_wise", range(16), "RW all"),
        ("column_wise", [0, 7], "CW 0, 7"),
        ("column_wise", [1, 4, 9], "CW 3 ranks"),
        ("data_parallel", range(16), "DP all"),
    ],
)
def test_ranks_of_a_table_are_named_if_few_words_do(kind: str, ranks: Iterable[int], said: str) -> None:
    plan = pd.DataFrame({"table": "a", "sharding_type": kind, "rank": list(ranks)})
    placed = SimpleNamespace(plan=plan, info=SimpleNamespace(world_size=16))
    assert _place(SimpleNamespace(placed=placed), "a") == said  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return a file of tables, with own.json and best.json beside it, and what `twinstep plan` says of the plans."""
    folder = tmp_path_factory.mktemp("plan")
    file = file_of(folder)
    words = ("--against", planners_plan(folder), "--steps", STEPS_OF_ANSWER, "--seconds", 600, "--json")
    done = command("twinstep", "plan", file, *words, "--out", folder / "best.json")
    assert done.returncode == 0, done.stderr
    return file, json.loads(done.stdout)


def test_the_sentence_is_true_to_the_ns(answer: tuple[Path, dict[str, Any]]) -> None:
    file, found = answer
    yours, best = file.parent / "own.json", file.parent / "best.json"
    steps_ns = {row["plan"]: row["step_ns"] for row in found["plans"]}
    assert list(steps_ns) == [YOURS, PLANNERS, BEST]
    for name, more in ((YOURS, {"sharding.plan": yours}), (PLANNERS, {}), (BEST, {"sharding.plan": best})):
        given = {key: str(value) for key, value in more.items()}
        assert steps_ns[name] == step_time_ns(twinstep.predict(file, steps=STEPS_OF_ANSWER, **given))
        assert f"{name} {text.duration(steps_ns[name])}" in found["verdict"]
    assert steps_ns[BEST] < min(steps_ns[YOURS], steps_ns[PLANNERS])
    assert f"({100 * (steps_ns[BEST] / steps_ns[YOURS] - 1):+.0f} %): table" in found["verdict"]
    assert found["verdict"].endswith("on rank 5")
    assert {"tables: rows", "tables: ids and rows of exchanges (KJT)"} <= {row["part"] for row in found["memory"]}
    planned = {
        name: (own["sharding_type"], own["compute_kernel"], own["ranks"])
        for tables in json.loads(best.read_text()).values()
        for name, own in tables.items()
    }
    assert planned == {
        row["table"]: (row["sharding_type"], row["compute_kernel"], row["ranks"]) for row in found["tables"]
    }


def test_the_tables_that_the_sentence_blames_are_slow_in_spans(
    answer: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """The slowest rank has the longest updates, and the tables blamed for it were there."""
    file, found = answer
    yours = file.parent / "own.json"
    run = twinstep.predict(file, steps=STEPS_OF_ANSWER, **{"sharding.plan": str(yours)})
    updates = run.spans[(run.spans["step"] == typical_step(run)) & (run.spans["role"] == "update")]
    longest = (updates["end_ns"] - updates["start_ns"]).groupby(updates["rank"]).sum()
    (slowest,) = (row for row in found["plans"] if row["plan"] == YOURS)
    assert slowest["rank"] == longest.idxmax() == 5
    assert slowest["update_ns"] == pytest.approx(longest.max() - longest.mean())
    blamed = re.split(r"%\): tables? | costs? ", found["verdict"])[1].split(", ")
    assert {row["before"] for row in found["moves"] if row["table"] in blamed} == {"TWCW 5"}
    first, *_ = found["few_moves"]
    assert (first["moves"], first["table"], first["before"]) == (1, *blamed[:1], "TWCW 5")
    words = yours.read_text().splitlines()  # one line a table
    line = next(number for number, each in enumerate(words) if f'"{first["table"]}":' in each)
    to = int(first["after"].removeprefix("TWCW "))
    words[line] = (
        words[line].replace('"ranks": [5]', f'"ranks": [{to}]').replace("rank:5/cuda:1", f"rank:{to}/cuda:{to % 4}")
    )
    (tmp_path / "moved.json").write_text("\n".join(words))
    moved = {"sharding.plan": str(tmp_path / "moved.json")}
    moved_ns = step_time_ns(twinstep.predict(file, steps=STEPS_OF_ANSWER, **moved))
    assert moved_ns == first["step_ns"] < slowest["step_ns"]
    assert first["gain"] == 1 - first["step_ns"] / slowest["step_ns"]


def test_a_plan_that_does_not_fit_is_said_to_beside_those_that_do(tmp_path: Path) -> None:
    file = file_of(tmp_path)
    planners_plan(tmp_path)
    words = (tmp_path / "own.json").read_text()
    yours = tmp_path / "yours.json"  # two ranks' tables of 0.8 GiB each on one
    yours.write_text(words.replace('"ranks": [4]', '"ranks": [0]').replace("rank:4/cuda:0", "rank:0/cuda:0"))
    small = ("--set", "cluster.gpu.memory=3.1 GiB", "--set", "sharding.reserved_share=0.6")
    once = ("--seconds", "0.001", "--out", tmp_path / "best.json", "--json")
    done = command("twinstep", "plan", file, "--against", yours, *small, *once)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"].startswith(f"{YOURS} does not fit; {PLANNERS} ")
    assert [row["plan"] for row in found["plans"]] == [PLANNERS]
    assert found["fits"] is False
    why = found["notes"][0]
    assert "rank 0" in why
    assert why.endswith("must lie elsewhere")


def test_plans_are_compared_where_the_planners_own_does_not_fit_beside_the_dense_part(tmp_path: Path) -> None:
    """It is said to, with the share of memory with which it would, and a plan that fits is found."""
    job = ScenarioJob(file_of(tmp_path), {"cluster.gpu.memory": "2.98 GiB"}, None)
    limit = TimeLimit(60, ProgressLine(quiet=True), partial(next, count(0.0, 1.0)))
    found = compare_plans(job, limit)
    best = found.plans[-1]
    assert [plan.name for plan in found.plans] == [BEST]
    assert best.run.fits
    sentence, share = found.misfits[PLANNERS], "sharding.reserved_share = 0.75"
    assert "expected at least 3.01 GiB, which rank 0 needs" in sentence
    assert sentence.endswith(f"; with {share} the planner makes one that fits")
    reserved = load(job.tables.path, {"cluster.gpu.memory": "2.98 GiB", "sharding.reserved_share": 0.75})
    assert twinstep.predict(reserved).fits
    best_words = f"{BEST} {text.duration(best.step_ns)}, of {text.count_words(found.tried, 'plan')} simulated"
    assert verdict(view_of(found)) == f"the plan of {PLANNERS} does not fit; {best_words}"


def view_of(found: Compared) -> PlansView:
    misfits = [*found.misfits]
    return PlansView(found.plans, found.tried, found.stopped, file="", command="", reserved_share=0.15, misfits=misfits)


def test_the_scenarios_own_plan_is_the_users(tmp_path: Path) -> None:
    file, own = few_of(tmp_path), tmp_path / "own.json"
    assert command("scenarios", "plan", file, "--out", own).returncode == 0
    shown = command("twinstep", "plan", file, "--seconds", 600, "--against", own, "--out", tmp_path / "1.json").stdout
    file = few_of(tmp_path, '[sharding]\nplan = "own.json"\n')
    again = command("twinstep", "plan", file, "--seconds", 600, "--out", tmp_path / "2.json").stdout
    assert again.partition("Plan: ")[0] == shown.partition("Plan: ")[0]
    assert (tmp_path / "1.json").read_text() == (tmp_path / "2.json").read_text()
    assert (tmp_path / "1.html").read_text().count("your plan") > 1
    paths = ("html", "json", str(tmp_path))  # alone may be longer
    assert max(len(line.rstrip()) for line in shown.splitlines() if not any(path in line for path in paths)) <= 80


def test_the_plan_that_is_written_is_taken_where_tables_are_pinned(tmp_path: Path) -> None:
    file = few_of(tmp_path, '[sharding]\nchoose = "simulated"\n')
    file.write_text(file.read_text().replace('name = "t3"\n', 'name = "t3"\nranks = [1, 2]\n'))
    done = command("twinstep", "plan", file, "--out", tmp_path / "best.json")
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    values = {"sharding.plan": str(tmp_path / "best.json"), "sharding.choose": "estimated"}
    assert f"twinstep predict {file} --set sharding.plan={tmp_path}/best.json" in shown
    run = twinstep.predict(file, **values)
    assert f"{BEST} {text.duration(step_time_ns(run))}" in shown
    assert sorted(run.plan.loc[run.plan["table"] == "t3", "rank"]) == [1, 2]


def test_a_search_that_runs_out_of_time_has_the_best_plan_so_far(tmp_path: Path) -> None:
    scenario = load(few_of(tmp_path))
    times = count(0.0, 1e-6)
    whole = compare(scenario, times)
    assert (whole.stopped, len(whole.plans)) == ("", 2)
    cut = compare(scenario, count(0.0, 120 * 1e-6 / next(times)))  # half of the looks at the clock
    assert cut.stopped == "stopped after 60 s (--seconds)"
    assert 1 < cut.tried < whole.tried
    assert whole.plans[1].step_ns <= cut.plans[1].step_ns <= cut.plans[0].step_ns
    none = compare(scenario, count(0.0, 20.0))
    assert none.tried == 1
    assert none.plans[0] is none.plans[1]
    shown = verdict(view_of(none))
    assert shown == f"{PLANNERS} {text.duration(none.plans[0].step_ns)}, and no other plan was simulated"


def test_plans_of_many_steps_are_simulated_for_a_few(tmp_path: Path) -> None:
    """Only where all steps would take too much of the time."""
    scenario = load(few_of(tmp_path), {"run.steps": 6})
    assert compare(scenario, count(0.0, 1e-6)).steps == 6
    cut = compare(scenario, count(0.0, 5.0))
    assert cut.steps == STEPS
    assert cut.plans[0].step_ns == step_time_ns(twinstep.predict(scenario.with_run(steps=STEPS)))


def test_ctrl_c_keeps_the_best_plan_so_far(tmp_path: Path) -> None:
    def times() -> Iterator[float]:
        for number in count():
            if number == 200:
                limit.interrupt.requested = True
            yield number * 1e-6

    now = times()
    limit = TimeLimit(60, ProgressLine(quiet=True), lambda: next(now))
    cut = compare_plans(job_of(load(few_of(tmp_path))), limit)
    assert cut.stopped == "interrupted"
    assert cut.plans[1].step_ns <= cut.plans[0].step_ns


def test_mistakes_are_sentences(tmp_path: Path) -> None:
    file = file_of(tmp_path)
    (tmp_path / "there.json").touch()
    for words, sentence in (
        (("all_to_all_4x2",), "program = 'all_to_all': expected one with tables to place, such as 'dlrm'"),
        ((file, "--out", tmp_path / "there.json"), "exists already; nothing is ever overwritten, give another file"),
        (("train.py",), "train.py: script.path = "),
        ((file, "--seconds", "0"), "--seconds = 0: expected more than 0"),
        ((file, "--against", tmp_path / "there.json"), "--set sharding.plan = "),
    ):
        done = command("twinstep", "plan", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr


def test_a_page_that_cannot_be_written_leaves_the_plans_name_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ReportError("page.html: could not be written: No space left on device")

    file = few_of(tmp_path)
    monkeypatch.setattr("reports.page.render.write", fail)
    done = command("twinstep", "plan", file, "--steps", 3, "--seconds", 5, "--out", tmp_path / "best.json")
    assert (done.returncode, done.stderr) == (2, "page.html: could not be written: No space left on device\n")
    assert list(tmp_path.iterdir()) == [file]


def test_plans_are_simulated_on_the_ranks_that_the_scenario_chooses(tmp_path: Path) -> None:
    """With fewer sharding types a plan takes less effort, so every rank would be simulated, and times differ by it."""
    scenario = load(file_of(tmp_path))
    assert kept_ranks(scenario) == kept_ranks(scenario.with_run(ranks="alike")) == {}
    assert kept_ranks(scenario.with_run(ranks="alike", chosen="all take long")) == {"ranks": "alike"}
