"""Points as scenario files: each is the very scenario of its point, wherever the study and its folder are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.config.load import load
from twinstep.studies.points import points_of, resolve
from twinstep.studies.search.scenario_files import Best, write_scenarios
from twinstep.studies.study_file import read_study

READY = """
scenario = "criteo_dlrm_2x4"
[set]
"model.tables[*].ids" = {zipf = 1.1, order = "by_frequency"}
[vary]
"cluster.network" = [{kind = "leaf_spine", hosts_per_leaf = 1, oversubscription = 2}]
"cluster.hosts" = [4]
"model.tables[0,9-11].sharding" = [["row_wise"], ["table_wise", "row_wise"]]
"model.tables[25].ranks" = [[3]]
"launching.cuda_graphs" = [true]
"model.optimizer.learning_rate" = [1e-3]
[[stages]]
fidelity = "links"
"""
OWN = """
scenario = "parts/mine.toml"
[vary]
run.compute_times = ["times.csv"]
cluster.profile = ["./slow.toml"]
"""
SCRIPT = """
scenario = "parts/train.py"
[vary]
"script.args" = [["--dim", "256"]]
"cluster.hosts" = [2]
"cluster.profile" = ["./slow.toml"]
run.compute_times = ["times.csv"]
"""


def plain(made: Any) -> dict[str, Any]:
    """A scenario but for where its file is."""
    return {**made.as_dict(), "name": "", "path": "", "fidelity": ""}


@pytest.mark.parametrize("text", [READY, OWN, SCRIPT], ids=["ready", "own", "script"])
def test_a_file_is_the_scenario_of_its_point(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "studies"
    (folder / "parts").mkdir(parents=True)
    (folder / "times.csv").write_text("label,time_us\nexchange,3\n")
    (folder / "slow.toml").write_text(
        (Path(load.__code__.co_filename).parents[1] / "profiles/cpu_local.toml").read_text()
    )
    (folder / "parts" / "mine.toml").write_text(
        'program = "all_to_all"\n[run]\nsteps = 1\nlibrary = "gloo"\n[cluster]\nprofile = "cpu_local"\nhosts = 2\n'
        'gpus_per_host = 1\n[exchange]\nsize = "1 MiB"\n'
    )
    (folder / "parts" / "train.py").write_text("import torch.distributed\n")
    (folder / "study.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    study = read_study("a/studies/study.toml")
    points = [resolve(study, point) for point in points_of(study)]
    best = [Best(each.point.index, "links", each.point.values, "samples/s 3") for each in points]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "front").mkdir()
    (tmp_path / "out" / "front" / "099.toml").write_text("of an earlier front")
    write_scenarios(study, best, Path("out/front"))
    assert sorted(path.name for path in Path("out/front").iterdir()) == [f"{each.index:03}.toml" for each in best]
    monkeypatch.chdir("/")
    for each in points:
        assert each.scenario is not None, each.sentence
        made = load(tmp_path / "out" / "front" / f"{each.point.index:03}.toml")
        paths = {"compute_times": None} if text != READY else {}
        assert {**plain(made), **paths} == {**plain(each.scenario), **paths}
        assert made.run.fidelity == ("links" if text == READY else each.scenario.run.fidelity)
