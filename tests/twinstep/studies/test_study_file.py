from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scenarios.seam.errors import ScenarioError
from twinstep.studies.points import check, points_of, resolve
from twinstep.studies.ranges import values_of
from twinstep.studies.study_file import Study, StudyStage, read_study

Write = Callable[[str], Path]
# Lines of [vary], and behind > how the sentence about them begins.
BAD = Path(__file__).parents[2] / "data" / "bad_studies.txt"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> Path:
        Path("study.toml").write_text(text)
        return Path("study.toml")

    return write


def values(study: Study) -> list[dict[str, object]]:
    return [dict(point.values) for point in points_of(study)]


def sentences(path: Path) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        check(read_study(path))
    return list(caught.value.sentences)


def test_axes_are_combined_and_the_baseline_comes_first(write: Write) -> None:
    study = read_study(
        write(
            'scenario = "criteo_dlrm_2x4"\n[vary]\n"run.batch_size" = [1024, 2048]\n'
            "cluster.hosts = {from = 1, to = 4, times = 2}\n"
        )
    )
    assert values(study) == [
        {},
        *({"run.batch_size": batch, "cluster.hosts": hosts} for batch in (1024, 2048) for hosts in (1, 2, 4)),
    ]
    assert [point.index for point in points_of(study)] == list(range(7))


def test_keys_that_go_together_are_one_axis(write: Write) -> None:
    study = read_study(
        write(
            'scenario = "criteo_dlrm_2x4"\nbaseline = false\n[vary]\nrun.seed = [1, 2]\n'
            '[[vary.together]]\n"cluster.hosts" = [2, 4]\nrun.batch_size = {from = 2048, to = 4096, step = 2048}\n'
        )
    )
    assert values(study) == [
        {"run.seed": seed, "cluster.hosts": hosts, "run.batch_size": batch}
        for seed in (1, 2)
        for hosts, batch in ((2, 2048), (4, 4096))
    ]


def test_a_key_is_varied_only_where_its_condition_holds_and_points_are_skipped(write: Write) -> None:
    study = read_study(
        write(
            """
scenario = "criteo_dlrm_2x4"
baseline = false
[vary]
"compression.kind" = ["none", "batched_powersgd"]
"compression.matrix_approximation_rank" = {values = [1, 4], only_if = {"compression.kind" = "batched_powersgd"}}
cluster.hosts = [1, 2, 4]
[[skip]]
"cluster.hosts" = {above = 1, below = 4}
[[skip]]
cluster.hosts = {not = [1, 2]}
compression.matrix_approximation_rank = [4, 8]
"""
        )
    )
    kind, rank, hosts = "compression.kind", "compression.matrix_approximation_rank", "cluster.hosts"
    assert values(study) == [
        {kind: "none", hosts: 1},
        {kind: "none", hosts: 4},
        {kind: "batched_powersgd", rank: 1, hosts: 1},
        {kind: "batched_powersgd", rank: 1, hosts: 4},
        {kind: "batched_powersgd", rank: 4, hosts: 1},
    ]


def test_conditions_compare_quantities_as_what_they_are(write: Write) -> None:
    study = read_study(
        write(
            """
scenario = "all_to_all_4x2"
baseline = false
[vary]
"cluster.nic.rate" = ["90 GB/s", "100 Gbit/s", "400 Gbit/s", "0.8 Tbit/s"]
"exchange.size" = ["1 MiB", "2 MiB"]
[[skip]]
"cluster.nic.rate" = {above = "400 Gbit/s"}
[[skip]]
"cluster.nic.rate" = "50 GB/s"
"exchange.size" = "1024 KiB"
"""
        )
    )
    rate, size = "cluster.nic.rate", "exchange.size"
    assert values(study) == [
        {rate: "100 Gbit/s", size: "1 MiB"},
        {rate: "100 Gbit/s", size: "2 MiB"},
        {rate: "400 Gbit/s", size: "2 MiB"},
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([3, 1], (3, 1)),
        ({"from": 1, "to": 8, "step": 3}, (1, 4, 7)),
        ({"from": 1, "to": 64, "times": 4}, (1, 4, 16, 64)),
        ({"from": 0.1, "to": 0.3, "step": 0.1}, (0.1, 0.2, 0.3)),
        ({"from": "100 Gbit/s", "to": "400 Gbit/s", "times": 2}, ("100 Gbit/s", "200 Gbit/s", "400 Gbit/s")),
        ({"from": "0.5 MiB", "to": "1.5 MiB", "step": "0.5 MiB"}, ("0.5 MiB", "1 MiB", "1.5 MiB")),
        ({"from": "2097152 B", "to": "4194304 B", "times": 2}, ("2097152 B", "4194304 B")),
    ],
)
def test_range_includes_its_ends_and_keeps_its_unit(given: object, expected: tuple[object, ...]) -> None:
    assert values_of(given) == expected
    assert list(map(type, values_of(given))) == list(map(type, expected))


@pytest.mark.parametrize("case", BAD.read_text().rstrip().split("\n\n"))
def test_mistakes_are_a_sentence_with_file_key_and_value(write: Write, case: str) -> None:
    line, _, sentence = case.rpartition("> ")
    said = sentences(write(f'scenario = "criteo_dlrm_2x4"\n[vary]\n{line}'))
    assert any(one.startswith(f"study.toml: {sentence}") for one in said), said


def test_a_scenario_that_is_not_there_and_a_file_that_is_none(write: Write) -> None:
    (said,) = sentences(write('scenario = "criteo_dlm_2x4"\n[vary]\nrun.seed = [1]'))
    assert said.startswith(
        "study.toml: scenario = 'criteo_dlm_2x4': expected criteo_dlm_2x4 to be there, a scenario in"
    )
    assert "criteo_dlrm_2x4" in said
    assert sentences(write("[vary]\nrun.seed = [1]")) == [
        "study.toml: scenario: missing; expected a scenario's path or a ready one's name"
    ]
    assert sentences(Path("none.toml")) == ["none.toml: no such file; expected a study in TOML"]


def test_a_key_that_no_scenario_has_is_refused_before_anything_is_played(write: Write) -> None:
    said = sentences(write('scenario = "criteo_dlrm_2x4"\n[vary]\ncluster.hots = [1, 2]\nrun.steps = [0, 1]'))
    assert len(said) == 1
    assert said[0].startswith("study.toml: cluster.hots = 1: unknown key; expected one of profile, hosts,")
    said = sentences(write('scenario = "criteo_dlrm_2x4"\n[set]\nrun.steps = 0\n[vary]\ncluster.hosts = [1, 2]'))
    assert said == ["study.toml: run.steps = 0: expected a whole number of at least 1"]


def test_a_scenario_lies_beside_the_study_and_so_do_files_that_values_name(tmp_path: Path, write: Write) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "times.csv").write_text("label,time_us\ndense,3\n")
    (folder / "mine.toml").write_text('include = "base.toml"')
    (folder / "base.toml").write_text(
        'program = "all_to_all"\n[run]\nsteps = 1\nlibrary = "gloo"\n[cluster]\nprofile = "cpu_local"\nhosts = 2\n'
        'gpus_per_host = 1\n[exchange]\nsize = "1 MiB"\n'
    )
    (folder / "study.toml").write_text('scenario = "mine.toml"\n[vary]\nrun.compute_times = ["times.csv", "no.csv"]')
    study = read_study("sub/study.toml")
    baseline, first, second = (resolve(study, point) for point in points_of(study))
    assert baseline.scenario is not None
    assert first.scenario is not None
    assert second.sentence == "sub/study.toml: run.compute_times = 'no.csv': expected sub/no.csv to be a file"


def test_equal_scenarios_have_equal_digests(write: Write) -> None:
    study = read_study(
        write(
            'scenario = "criteo_dlrm_2x4"\n[vary]\n'
            'cluster.nic.rate = ["400 Gbit/s", "50 GB/s", "0.4 Tbit/s", "200 Gbit/s"]\nrun.batch_size = [8192]'
        )
    )
    digests = [resolve(study, point).digest for point in points_of(study)]
    assert len(set(digests[:4])) == 1
    assert digests[4] != digests[0]


def test_stages_are_in_the_order_of_the_file(write: Write) -> None:
    study = read_study(
        write(
            'scenario = "criteo_dlrm_2x4"\ngoals = ["step_ns", "world_size"]\n'
            'timeout = "2 min"\nkeep = "rows"\n[vary]\nrun.seed = [1]\n'
            '[[stages]]\nfidelity = "estimate"\nkeep = 0.25\n[[stages]]\nfidelity = "flows"\n'
        )
    )
    assert study.stages == (StudyStage("estimate", 0.25), StudyStage("flows"))
    assert (study.goals, study.timeout_s, study.keep) == (("step_ns", "world_size"), 120.0, "rows")
