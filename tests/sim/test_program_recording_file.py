"""Recordings of programs as files: their content, the commands that simulate them, and refusals."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports.store import run_folder as store
from scenarios.config.faults import Fault
from scenarios.config.load import load
from scenarios.seam.errors import CollectiveError, ProgramError, ScenarioError
from scenarios.seam.rank import Rank
from scenarios.workloads.build import build
from scenarios.workloads.recording.file import NAME, read
from scenarios.workloads.recording.recorder import ProgramRecorder
from scenarios.workloads.script.command import load_given
from tests.commands import command
from tests.sim.test_program_recording import RECOMMENDERS, ROOT, again, check, play_program, tensor
from tests.small import Play, change, scenario
from twinstep.prediction import main

# What a file has


def test_equal_ranks_and_steps_are_written_once(tmp_path: Path) -> None:
    made = load("powersgd_16x1_10g", {"cluster.hosts": 4, "steps": 4, "fidelity": "links", "ranks": "each"})
    few = read(check(tmp_path, made), "program")
    assert (len(few.sequences), few.ranks) == (1, [0] * 4)
    size, lines = (tmp_path / NAME).stat().st_size, len(few.lines)
    many = read(check(tmp_path, change(made, steps=9)), "program")
    assert len(many.lines) == lines + 5 * (1 + 5)  # each step's begin, and the numbers of its tasks
    assert (tmp_path / NAME).stat().st_size < 2 * size


CORES = "cpu_local"
TOML = """program = "recording"
cluster = {{profile = "{profile}", hosts = 2, gpus_per_host = 2}}
recording.file = "first"
"""


def test_the_command_records_and_plays_the_recording(tmp_path: Path) -> None:
    """`twinstep predict` simulates a recording from its run folder, or from a scenario that names the folder."""
    done = command("sim", "criteo_small_2x2", "--record", "--quiet", "--out", tmp_path / "first")
    assert (done.returncode, done.stderr) == (0, "")
    again_file = tmp_path / "again.toml"
    again_file.write_text(TOML.format(profile=CORES) + "run.steps = 4\n")
    spans = store.load(tmp_path / "first").spans
    for number, source in enumerate((tmp_path / "first", again_file)):
        out = tmp_path / f"again {number}"
        done = command("sim", source, "--record", "--quiet", "--out", out)
        assert (done.returncode, done.stderr) == (0, "")
        assert store.load(out).spans.equals(spans)
        recorded, first = (read(each / NAME, "program") for each in (out, tmp_path / "first"))
        same: dict[str, Any] = {"program": "", "script": "", "sha256": "", "keys": {}}
        assert replace(recorded, **same) == replace(first, **same)


@pytest.mark.parametrize("name", ["powersgd_4x2_3g", "all_reduce_4x1_200mbit"])
def test_a_folder_keeps_the_keys_of_the_recorded_run(name: str, tmp_path: Path) -> None:
    slow = [{"host": 1, "gpu": 0, "speed": 0.5}]
    asked = {"ranks": "each", "steps": 2, "seed": 5, "cluster.nic.latency": "70 us", "cluster.faults": slow}
    made = load(name, asked)
    spans, recording = play_program(made, build(made), ProgramRecorder(made))
    (tmp_path / NAME).write_bytes(recording.kept[NAME])
    replayed = load_given(tmp_path, {})
    run = replace(made.run, batch_size=1, payload="sizes", folded_by="")
    assert (replayed.cluster, replayed.run) == (made.cluster, run)
    assert play_program(replayed, build(replayed))[0] == spans
    slower, also_slower = load(name, {**asked, "cluster.nic.latency": "2 ms"}), {"cluster.nic.latency": "2 ms"}
    assert load_given(tmp_path, also_slower).cluster == slower.cluster
    profiles = (
        ("dgx_h100", "v100_tcp_10g") if made.cluster.host.gpu.kind == "cuda" else ("cpu_local", "emulated_200mbit")
    )
    (profile, *_) = [each for each in profiles if each != made.cluster.profile]
    other = load_given(tmp_path, {"profile": profile}).cluster
    assert (other.hosts, other.host.gpus, other.faults) == (made.cluster.hosts, made.cluster.host.gpus, ())
    assert other.host.nics.link != made.cluster.host.nics.link


def test_a_folder_keeps_a_profile_of_a_file(tmp_path: Path) -> None:
    profile = ROOT / "scenarios" / "profiles" / "dgx_h100.toml"
    (tmp_path / "own.toml").write_text(profile.read_text() + "\n[[cluster.faults]]\nhost = 0\ngpu = 1\nspeed = 0.5\n")
    path = tmp_path / "scenario.toml"
    path.write_text(
        'program = "collective"\ncluster = {profile = "own.toml", hosts = 2, gpus_per_host = 2}\n'
        '[collective]\nop = "all_reduce"\nsize = "1 MB"\n'
    )
    made = load(path, {"cluster.faults[0].speed": 0.25})  # an item of an array of the profile
    assert [one.speed for one in made.cluster.faults if isinstance(one, Fault)] == [0.25]
    (tmp_path / NAME).write_bytes(play_program(made, build(made), ProgramRecorder(made))[1].kept[NAME])
    assert load_given(tmp_path, {}).cluster == made.cluster


def test_a_run_without_the_option_keeps_no_recording(tmp_path: Path) -> None:
    assert command("sim", "twrw_2x2", "--quiet", "--out", tmp_path / "run").returncode == 0
    assert not (tmp_path / "run" / NAME).exists()


def test_changes_are_not_added_to_a_run_that_was_not_recorded_as_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.toml").write_text(RECOMMENDERS["table_wise"])
    words = [str(tmp_path / "one.toml"), "--what-if", "--quiet", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert main([*words, "--record"]) == 2
    assert (
        capsys.readouterr().err
        == f"{tmp_path / 'run'}: exists already; nothing is ever overwritten, give another folder\n"
    )


# What is refused


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("of a program") / "first"
    folder.mkdir()
    check(folder, load("twrw_2x2"))
    return folder


@pytest.mark.parametrize(
    ("keys", "profile", "sentence"),
    [
        ("run.steps = 7", CORES, "run.steps = 7: expected 2, all that the recording has"),
        ("", CORES, "run: missing; expected steps = 2, all that the recording has"),
        ("run.seed = 1", CORES, "run.steps: missing; expected 2, all that the recording has"),
        (
            "run.payload = 'values'",
            CORES,
            "run.payload = 'values': expected 'sizes', because a recording has no values",
        ),
        (
            "run = {ranks = 'alike', fidelity = 'links', library = 'nccl'}",
            "dgx_h100",
            "run.ranks = 'alike': expected 'each', because a recording has the calls of each",
        ),
        ("launching.fusion = true", CORES, "launching.fusion = true: expected no fusion with program = 'recording'"),
        (
            "",
            "dgx_h100",
            "recording.file = 'first': expected a recording on GPUs, as the cluster has, but it was made on",
        ),
        ("cluster.hosts = 4", CORES, "cluster.hosts = 4: expected 2, as in the recording"),
    ],
    ids=str,
)
def test_keys_that_do_not_fit_a_recording_are_named(first: Path, keys: str, profile: str, sentence: str) -> None:
    path = first.parent / "scenario.toml"
    text = TOML.format(profile=profile)
    path.write_text(text.replace("hosts = 2", "hosts = 4") if "hosts" in keys else f"{text}{keys}\n")
    with pytest.raises(ScenarioError) as caught:
        load(path)
    assert any(one.startswith(f"{path}: {sentence}") for one in caught.value.sentences), caught.value.sentences


def test_hosts_that_stand_for_others_are_not_recorded(tmp_path: Path) -> None:
    alike = ("--ranks", "alike", "--fidelity", "links")
    done = command("sim", "powersgd_4x2_3g", *alike, "--record", "--quiet", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr.endswith("run.ranks = 'alike': expected 'each', to record every rank\n")


@pytest.mark.parametrize(
    "refused",
    [
        lambda rank: rank.all_reduce(tensor(rank, 4)[::2]),
        lambda rank: rank.new_group([0, 99]),
        lambda rank: rank.stream("main"),
    ],
    ids=["call", "group", "stream"],
)
def test_a_program_that_goes_on_after_a_refused_call_is_not_recorded(refused: Any, tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        with pytest.raises((CollectiveError, ProgramError, ValueError)):
            refused(rank)

    with pytest.raises(ProgramError, match=r"expected a program whose calls all succeed, to record it$"):
        check(tmp_path, scenario(options=None), program=Play(program))


def damage(file: Path, change: Any) -> Path:
    content = json.loads(gzip.decompress(file.read_bytes()))
    change(content)
    made = file.with_name("changed.json.gz")
    made.write_bytes(gzip.compress(json.dumps(content).encode()))
    return made


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["task", 999], "a task below "),
        (["spawn", 9], "a stream below "),
        (["work", "await", 0, 99999], "one of "),
        (["group", 0, [7]], "ranks below 4"),
        (["step"], "a step that has begun"),
        (["issue", "all_reduce", 99, "", 0, [], [], {}, False, ""], "a group below "),
        (["issue", "spawn", 0, "", 0, [], [], {}, False, ""], "a collective"),
        (["wait", 0, 0], "a request of a program"),
    ],
    ids=str,
)
def test_an_event_that_does_not_fit_is_named_with_its_place(first: Path, line: list[Any], expected: str) -> None:
    def change(content: dict[str, Any]) -> None:
        for sequence in content["sequences"]:
            sequence.append(len(content["lines"]))
        content["lines"].append(line)

    path, made = first.parent / "wrong.toml", damage(first / NAME, change)
    path.write_text(TOML.format(profile=CORES).replace('"first"', f'"{made}"') + "run.steps = 2\n")
    place = len(json.loads(gzip.decompress(made.read_bytes()))["sequences"][0]) - 1
    with pytest.raises(
        ScenarioError, match=rf"damaged: sequences\[0\]\[{place}\], lines\[\d+\], '{line[0]}': expected {expected}"
    ):
        build(load(path))


def test_tensors_that_do_not_fit_end_in_a_sentence(first: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        for line in content["lines"]:
            if line[0] == "issue":
                line[5] = [[[3], "no dtype", False]]

    made = again(load("twrw_2x2"), damage(first / NAME, change))
    with pytest.raises(ScenarioError, match=r"damaged: lines\[\d+\], 'issue': .*: dtype 'no dtype' is none of torch$"):
        build(made)


def test_arguments_that_do_not_fit_are_named_with_file_and_line(first: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        for line in content["lines"]:
            if line[:2] == ["issue", "all_reduce"]:
                line[7] = {"op": "none"}

    file = damage(first / NAME, change)
    made = again(load("twrw_2x2"), file)
    expected = rf"^{file}: rank \d: lines\[\d+\]: expected an event that fits those before, as it was written: .*none"
    with pytest.raises(ProgramError, match=expected):
        play_program(made, build(made))


@pytest.fixture(scope="module")
def reduction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record ranks that reduce once, each with a sequence of its own."""

    async def program(rank: Rank) -> None:
        with rank.step(0):
            await rank.all_reduce(tensor(rank, 4), label="sum")

    made = scenario(options=None)
    folder = tmp_path_factory.mktemp("reduction")
    (folder / NAME).write_bytes(play_program(made, Play(program), ProgramRecorder(made))[1].kept[NAME])
    return folder


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (
            "ends early",
            r"^deadlock at .*'sum' .*, which rank 1 never entered; {}: lines\[\d+\] of rank 0.*: expected waits",
        ),
        ("other size", r"^{}: rank \d: lines\[\d+\]: expected an event that fits .*'sum'"),
        (
            "never awaited",
            r"recording.file = '{}': .* sequences\[0\], lines\[\d+\], 'issue': expected a wait for it",
        ),
    ],
)
def test_ranks_that_do_not_meet_are_named_with_file_and_line(reduction: Path, kind: str, sentence: str) -> None:
    def change(content: dict[str, Any]) -> None:
        lines, (own, *_) = content["lines"], content["sequences"]
        calls = [number for number in own if lines[number][0] == "issue"]
        other = list(own)
        if kind == "ends early":
            other = [number for number in own if lines[number][0] not in ("issue", "work")]
        elif kind == "other size":
            lines.append([*lines[calls[0]][:5], [[[5], *lines[calls[0]][5][0][1:]]], *lines[calls[0]][6:]])
            other[own.index(calls[0])] = len(lines) - 1
        else:
            own.insert(own.index(calls[0]), calls[0])
        content["sequences"].append(other)
        content["compiled"].append([])
        content["ranks"][1] = len(content["sequences"]) - 1

    file = damage(reduction / NAME, change)
    made = again(scenario(options=None), file)
    with pytest.raises((ProgramError, ScenarioError), match=sentence.format(file)):
        play_program(made, build(made))


def test_recordings_of_scripts_and_programs_are_told_apart(first: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is one of program 'dlrm' \(recording.file\)$"):
        read(first / NAME)
    made = damage(first / NAME, lambda content: [content.pop(key) for key in ("program", "uses_host_path")])
    with pytest.raises(ValueError, match=r"is one of program 'script' \(script.recording\)$"):
        read(made, "program")
