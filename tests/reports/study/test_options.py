from __future__ import annotations

import shlex
from pathlib import Path

from reports.study.frame import command, option
from scenarios.config.load import load
from scenarios.config.overrides.option import parse_values
from twinstep.studies.points import points_of, resolve
from twinstep.studies.study_file import read_study

STUDY = """
scenario = "criteo_small_2x2"
[set]
run.steps = 5
run.seed = 3
[vary]
"cluster.nic.rate" = ["1 Gbit/s", "2 Gbit/s"]
"run.batch_size" = [32, 64]
"model.tables[*].sharding" = [["row_wise"], ["table_wise", "row_wise"]]
"""


def test_the_command_of_a_point_gives_its_very_scenario(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    study = read_study(tmp_path / "study.toml")
    about = {"scenario": study.scenario, "set": study.shared, "stages": [""]}
    points = list(points_of(study))
    for point in points:
        line = " ".join([command(about, "flows"), *(option(*one) for one in point.values.items())])
        twinstep, predict, path, *options = shlex.split(line)
        assert (twinstep, predict) == ("twinstep", "predict")
        assert set(options[::2]) == {"--set"}
        scenario, own = load(path, parse_values(options[1::2])), resolve(study, point).scenario
        assert own is not None
        assert scenario.as_dict() == own.as_dict()
    assert len(points) == 9


def test_arrays_and_tables_are_as_the_frame_has_them_or_as_they_are() -> None:
    assert option("a.b", '["row_wise", 1]') == option("a.b", ["row_wise", 1]) == """--set 'a.b=["row_wise", 1]'"""
    assert option("a", '{"rate": "1 Gbit/s", "on": true}') == """--set 'a={"rate" = "1 Gbit/s", "on" = true}'"""
    assert option("a[*].x", "[half") == "--set 'a[*].x=[half'"
    assert option("a", "1 Gbit/s") == "--set 'a=1 Gbit/s'"
    assert (option("a", True), option("a", 0.5)) == ("--set a=true", "--set a=0.5")


def test_of_a_study_in_stages_the_command_has_the_fidelity_of_the_last_one() -> None:
    about = {"scenario": "a b.toml", "stages": ["estimate", "links"]}
    assert command(about, "links") == "twinstep predict 'a b.toml' --set run.fidelity=links"
    assert command(about, "estimate") == "twinstep predict 'a b.toml'"
