"""What a profile says of its measuring is checked and shown, and changes no scenario."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from scenarios.config.catalogue import profile_file
from scenarios.config.load import load, load_measured, load_profile
from scenarios.config.warnings import notes_of_measuring
from tests.mistakes import mistakes_of
from twinstep.scenario_files import main

SCENARIO = 'program = "all_to_all"\n[cluster]\nprofile = "mine.toml"\nhosts = 2\n[exchange]\nsize = "1 MiB"\n'
MEASURED = """
[measured]
machine = "host"
cpu = "a core"
kernel = "Linux 6"
python = "3.11"
torch = "2.13"
date = "2026-01-02T03:04:05+00:00"
command = "calibrate"
ranks = 2
duration = "30 s"
[[measured.groups]]
name = "gemm kernels"
median_error = 0.01
typical_error = 0.25
worst_error = -0.5
spread = 0.125
least = "4 KiB"
most = "16 MiB"
"""


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    file = profile_file("cpu_local")
    assert file is not None
    return Path(file).read_text()


def test_where_figures_come_from_changes_no_scenario(plain: str) -> None:
    Path("s.toml").write_text(SCENARIO)
    Path("mine.toml").write_text(plain)
    before = load("s.toml")
    assert load_measured("mine.toml") is None
    Path("mine.toml").write_text(plain + MEASURED)
    after = load("s.toml")
    assert (
        dataclasses.replace(after, measured=None, rests_on=before.rests_on, known_errors=before.known_errors) == before
    )
    assert load("s.toml").digest() == before.digest()
    assert load_profile("mine.toml") == dataclasses.replace(before.cluster, hosts=1)


def test_a_scenario_says_nothing_measured_of_its_own(plain: str) -> None:
    Path("mine.toml").write_text(plain)
    Path("s.toml").write_text(SCENARIO + "[measured]\nranks = 2\n")
    assert mistakes_of(load, "s.toml") == [
        "s.toml: measured = {ranks = 2}: expected nothing measured outside a profile"
    ]


def test_mistakes_in_it_are_named_by_profiles_and_by_scenarios_that_use_them(plain: str) -> None:
    Path("s.toml").write_text(SCENARIO)
    Path("mine.toml").write_text(plain + MEASURED.replace("ranks = 2", "rank = 2"))
    wrong = "mine.toml: measured.rank = 2: unknown key; expected one of machine, cpu, kernel, python, torch, date,"
    wrong += " command, ranks, duration, groups"
    assert mistakes_of(load_profile, "mine.toml") == [wrong]
    assert mistakes_of(load, "s.toml") == [wrong]


@pytest.mark.parametrize(
    ("key", "value", "hosts", "is_own", "counts"),
    [
        ("nic.rate", "400 Gbit/s", 2, False, False),
        ("nic.rate", "50 GB/s", 2, False, False),  # the profile's, in another unit
        ("nic.latency", "1500 ns", 2, False, False),
        ("gpu.efficiency.gemm", 0.8, 2, False, False),
        ("network.sharp", False, 2, False, False),  # the default, of which the profile says nothing
        ("network.sharp", True, 2, True, False),  # there or not: no figure
        ("nic.rate", "25 GB/s", 2, True, True),
        ("nic.rate", "25 GB/s", 1, True, False),  # nothing goes over it
        ("network.latency", "1 ms", 1, True, False),
        ("gpu.efficiency.gemm", 0.7, 1, True, True),
        ("gpu.launches.gemm", "3 us", 1, True, True),
    ],
)
def test_equal_values_are_equal(key: str, value: object, hosts: int, is_own: bool, counts: bool) -> None:
    made = load("criteo_dlrm_2x4", {"cluster.hosts": hosts, f"cluster.{key}": value})
    assert (f"set by the scenario: {key}" in made.rests_on) == is_own
    assert made.known_errors.sets_figures == counts
    assert made.known_errors.sets_prices == (counts and key.startswith("gpu."))


def test_missing_keys_are_named(plain: str) -> None:
    text = MEASURED.replace('machine = "host"\n', "").replace("worst_error = -0.5\n", "")
    Path("mine.toml").write_text(plain + text)
    Path("s.toml").write_text(SCENARIO)
    for action, file in ((load_profile, "mine.toml"), (load, "s.toml")):
        assert mistakes_of(action, file) == [
            "mine.toml: measured.groups[0].worst_error: missing; expected a number",
            "mine.toml: measured.machine: missing; expected a string",
        ]


def test_profiles_in_files_are_shown_with_how_they_were_measured(
    plain: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.toml").write_text(plain + MEASURED)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["profiles", "mine.toml"]) == 0
    first, *_, measured, group = capsys.readouterr().out.splitlines()
    assert first == "mine.toml"
    assert measured == "    measured on host (a core), 2026-01-02T03:04:05+00:00, by calibrate"
    assert group == (
        "        gemm kernels, 4 KiB to 16 MiB: typical error 25%, +1% in the median, -50% at worst, spread 12%"
    )


def test_keys_that_logs_lack_are_optional(
    plain: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    unknown = ("cpu", "kernel", "python", "torch", "duration", "spread")
    lines = [line for line in MEASURED.splitlines() if line.split(" = ")[0] not in unknown]
    Path("mine.toml").write_text(plain + "\n".join(lines))
    measured = load_measured("mine.toml")
    assert measured is not None
    assert (measured.cpu, measured.duration_ns, measured.groups[0].spread) == ("", 0, None)
    assert main(["profiles", "mine.toml"]) == 0
    *_, shown, group = capsys.readouterr().out.splitlines()
    assert shown == "    measured on host, 2026-01-02T03:04:05+00:00, by calibrate"
    assert group.endswith("-50% at worst")


def test_command_lines_override_the_profile(plain: str) -> None:
    Path("s.toml").write_text(SCENARIO)
    Path("mine.toml").write_text(plain)
    Path("other").mkdir()
    Path("other/faster.toml").write_text(plain + MEASURED)
    made = load("s.toml", {"profile": "other/faster.toml"})
    assert made.cluster == dataclasses.replace(load("s.toml").cluster, profile="faster")
    assert made.rests_on.startswith("profile faster: calibrated on ")
    assert mistakes_of(load, "s.toml", {"profile": "no.toml"}) == [
        "--profile = 'no.toml': expected no.toml to be a file"
    ]


def test_a_real_run_says_where_its_machine_is_not_the_predictions(plain: str) -> None:
    Path("s.toml").write_text(SCENARIO)
    Path("mine.toml").write_text(plain)
    scenario = load("s.toml")
    assert list(notes_of_measuring(scenario)) == []
    (crowded,) = notes_of_measuring(scenario, cores=1, cpu="A")
    assert "4 ranks share the 1 cores of this machine" in crowded
    (plainly,) = notes_of_measuring(scenario, cores=64, cpu="A")
    assert "never calibrated" in plainly
    Path("mine.toml").write_text(plain + MEASURED)
    calibrated = load("s.toml")
    assert calibrated.measured is not None
    assert list(notes_of_measuring(calibrated, cores=64, cpu=calibrated.measured.cpu)) == []
    (other,) = notes_of_measuring(calibrated, cores=64, cpu="A")
    assert "calibrated on another processor" in other
