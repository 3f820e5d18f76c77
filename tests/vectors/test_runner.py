"""The replay itself: every kind of file can fail, nothing is passed over, and what was replayed is counted."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.vectors.files import Replay, replays_of
from tests.vectors.formats import FORMATS
from tests.vectors.test_vectors import OWN

ROOT = Path(__file__).parents[2]
Content = dict[str, Any]

# File, and the case (the smallest of their kind) that these tests play.
CASES = {
    "partitioner.json": "P0000",
    "estimator.json": "E002",
    "bucketize.json": "B0002",
    "twrw_dist.json": "D000",
    "twrw_dist_v0.2.0.json": "O000",
    "twrw_output_dist.json": "R05",
    "all_to_all.json": "a003",
    "a2a_probes_gloo.json": "scalar_0d",
    "batched_powersgd.json": "b011",
    "layerwise_powersgd.json": "l017",
    "gloo_wire_bytes.json": "#0",
    "nccl_tuning_golden.json": "#0",
}
LISTS = ("cases", "records", "configs", "probes")


def one_case(file: str) -> Content:
    """A file with one of its cases only."""
    content: Content = json.loads((OWN / file).read_text())
    name = next(name for name in LISTS if name in content)
    cases, wanted = content[name], CASES[file]
    if isinstance(cases, dict):
        return {**content, name: {wanted: cases[wanted]}}
    return {**content, name: [case for index, case in enumerate(cases) if wanted in (case.get("id"), f"#{index}")]}


def the_case(content: Content) -> Any:
    cases = next(content[name] for name in LISTS if name in content)
    return next(iter(cases.values())) if isinstance(cases, dict) else cases[0]


def write(directory: Path, name: str, content: Content, source: str | None = None) -> None:
    """A file of this content, with the arrays of `source` (None: of the file of the same name)."""
    (directory / name).write_text(json.dumps(content))
    arrays = OWN / Path(source or name).with_suffix(".npz")
    if arrays.exists():
        shutil.copy(arrays, (directory / name).with_suffix(".npz"))


def failures(directory: Path, world: str = "sim") -> dict[str, str]:
    """What fails, and its sentence; on one world, for these tests are about the runner."""
    found = {}
    for replay in replays_of(directory, FORMATS):
        if replay.way not in {"sim", "real"} - {world}:
            sentence = failure_of(replay)
            if sentence is not None:
                found[replay.id] = sentence
    return found


def failure_of(replay: Replay) -> str | None:
    try:
        replay.check()
    except Exception as error:
        return str(error)
    return None


def add_one(value: Any, *path: Any) -> None:
    """Change one number of a record, down a path of keys."""
    *to, last = path
    for key in to:
        value = value[key]
    value[last] = value[last] + 1


# One expected number of each file.
MUTATIONS: dict[str, tuple[Any, ...]] = {
    "partitioner.json": ("expected", "devices", 0, 0),
    "estimator.json": ("shards_rle", 0, 2, 0),
    "bucketize.json": ("expected", "new_indices", 1),
    "twrw_dist.json": ("outputs", 1, "values", 2),
    "twrw_dist_v0.2.0.json": ("outputs", 1, "values", 2),
    "twrw_output_dist.json": ("outputs", 3, 2, 1),
    "all_to_all.json": ("ranks", 0, "output", 0, 0),
    "a2a_probes_gloo.json": (1, "value", 0),
    "batched_powersgd.json": ("compression_stats", 2),
    "layerwise_powersgd.json": ("steps", 2, "allreduce", 1, 2),
    "gloo_wire_bytes.json": ("tcp_bytes", 1, 0),
    "nccl_tuning_golden.json": ("golden", "times", 0, 1, 2),
}


@pytest.mark.parametrize("file", CASES)
def test_a_case_passes_and_fails_once_an_expected_number_is_changed(tmp_path: Path, file: str) -> None:
    content = one_case(file)
    write(tmp_path, file, content)
    assert failures(tmp_path) == {}
    add_one(the_case(content), *MUTATIONS[file])
    write(tmp_path, file, content)
    assert [name.split(f"{file}-{CASES[file]}")[0] for name in failures(tmp_path)] == [""]


ARRAYS = ["b011/s2/b0/out", "b011/s2/b0/p", "b011/s5/b0/q", "b011/s5/b0/err", "b011/s2/b0/draw0", "l017/s2/b0/q"]


@pytest.mark.parametrize("array", [*ARRAYS, "b011/s1/b0/momentum"])
def test_a_changed_or_unknown_array_fails(tmp_path: Path, array: str) -> None:
    file = "batched_powersgd" if array.startswith("b011") else "layerwise_powersgd"
    with np.load(OWN / f"{file}.npz") as stored:
        arrays = {name: stored[name] for name in stored if name.startswith(array[:4])}
    arrays[array] = 1.001 * arrays.get(array, np.ones(1)) + 0.001
    (tmp_path / "f.json").write_text(json.dumps(one_case(f"{file}.json")))
    np.savez(tmp_path / "f.npz", **arrays)
    assert len(failures(tmp_path)) == 1


def field_added(case: Content) -> str:
    case["colour"] = "red"
    return ".colour: unknown field"


def field_missing(case: Content) -> str:
    name = sorted(case)[-1]
    del case[name]
    return f".{name}: the field is missing"


@pytest.mark.parametrize("change", [field_added, field_missing])
@pytest.mark.parametrize("file", [file for file in CASES if file != "a2a_probes_gloo.json"])
def test_a_field_too_many_or_too_few_fails(tmp_path: Path, file: str, change: Callable[[Content], str]) -> None:
    content, other = one_case(file), one_case(file)
    cases = next(content[name] for name in LISTS if name in content)
    if "id" in cases[0]:
        cases[0]["id"] = "changed"
    expected = change(cases[0])
    cases.append(the_case(other))
    write(tmp_path, file, content)
    (sentence,) = failures(tmp_path).values()
    assert expected in sentence


UNKNOWN_VALUES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("partitioner.json", ("sort_by",), "colour"),
    ("partitioner.json", ("options", 0, "sharding_type"), "diagonal"),
    ("partitioner.json", ("options", 0, "compute_kernel"), "quick"),
    ("partitioner.json", ("options", 0, "partition_by"), "rack"),
    ("partitioner.json", ("expected", "status"), "maybe"),
    ("estimator.json", ("dtype",), "fp3"),
    ("estimator.json", ("compute_kernel",), "quick"),
    ("estimator.json", ("compute_device",), "abacus"),
    ("bucketize.json", ("index_dtype",), "int3"),
    ("bucketize.json", ("sequence",), 1),
    ("twrw_dist.json", ("index_dtype",), "int3"),
    ("twrw_dist.json", ("note",), "positions were lost"),
    ("twrw_dist_v0.2.0.json", ("need_pos",), True),
    ("twrw_output_dist.json", ("world_size",), "4"),
    ("all_to_all.json", ("dtype",), "float3"),
    ("all_to_all.json", ("trailing",), None),
    ("a2a_probes_gloo.json", (0, "ok"), "perhaps"),
    ("batched_powersgd.json", ("hook",), "noop_hook"),
    ("batched_powersgd.json", ("dtype",), "float8"),
    ("batched_powersgd.json", ("state_kwargs", "momentum"), 0.9),
    ("batched_powersgd.json", ("state_kwargs", "warm_start"), "yes"),
    ("gloo_wire_bytes.json", ("op",), ["all_shuffle", 64]),
    ("nccl_tuning_golden.json", ("vendor",), 7),
]


@pytest.mark.parametrize(("file", "path", "value"), UNKNOWN_VALUES, ids=str)
def test_an_unknown_value_fails(tmp_path: Path, file: str, path: tuple[Any, ...], value: Any) -> None:
    content = one_case(file)
    place = the_case(content)
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    write(tmp_path, file, content)
    assert failures(tmp_path)


@pytest.mark.parametrize("file", CASES)
def test_a_format_is_told_by_what_is_inside(tmp_path: Path, file: str) -> None:
    below = tmp_path / "some" / "where"
    below.mkdir(parents=True)
    write(below, "recorded-0.json", one_case(file), source=file)
    ids = [replay.id for replay in replays_of(tmp_path, FORMATS)]
    assert all(name.startswith(f"some/where/recorded-0.json-{CASES[file]}") for name in ids)
    assert len(ids) == (1 if "on" not in ways_of(file) else 2)
    assert failures(tmp_path) == {}


def ways_of(file: str) -> str:
    pure = ("estimator", "bucketize", "gloo_wire_bytes", "nccl_tuning")
    return "" if file.startswith(pure) else "on two worlds, or as two releases"


def test_unreadable_files_fail_in_one_sentence_each(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"cases": [')
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "other.json").write_text('{"format": "other/1", "cases": [{"id": "x", "answer": 42}]}')
    (tmp_path / "empty.json").write_text('{"about": "nothing", "cases": []}')
    (tmp_path / "mixed.json").write_text(
        '{"cases": [{"shards_rle": []}, {"hook": "", "state_kwargs": {}, "steps": []}]}'
    )
    (tmp_path / "bare.json").write_text(json.dumps(one_case("batched_powersgd.json")))
    np.savez(tmp_path / "orphan.npz", zeros=np.zeros(3))
    write(tmp_path, "more.json", one_case("estimator.json"), source="batched_powersgd.json")
    (tmp_path / "twice.json").write_text('{"cases": [{"id": "x", "id": "y", "shards_rle": []}]}')
    (tmp_path / "torn.json").write_text(json.dumps(one_case("batched_powersgd.json")))
    (tmp_path / "torn.npz").write_bytes((OWN / "batched_powersgd.npz").read_bytes()[:1000])
    (tmp_path / "packed.json.gz").write_bytes(b"")
    known = ", ".join(f"{form.name} ({form.cases} with {', '.join(sorted(form.signature))})" for form in FORMATS)
    found = failures(tmp_path)
    assert found.pop("broken.json").startswith("broken.json: no JSON: Expecting value")
    assert found == {
        "list.json": "list.json: holds a list, expected a record with cases",
        "other.json": (
            f"other.json: a file of format, cases, cases of answer, id: expected one of the formats {known}"
        ),
        "empty.json": "empty.json.cases is empty: expected one case or more",
        "mixed.json": "mixed.json: its cases fit estimator and powersgd, expected one format",
        "bare.json": "bare.json: a file of powersgd, expected bare.npz beside it",
        "orphan.npz": "orphan.npz: arrays, expected orphan.json beside them",
        "more.json": "more.json: more.npz stands beside it, but estimator has no arrays",
        "twice.json": "twice.json: no JSON: the key 'id' stands twice in one record",
        "torn.json": "torn.json: torn.npz cannot be read: BadZipFile: File is not a zip file",
        "packed.json.gz": "packed.json.gz: expected *.json, and *.npz for its arrays",
    }


def test_skipped_files_are_noted(tmp_path: Path) -> None:
    notes: list[str] = []
    write(tmp_path, "l.JSON", one_case("layerwise_powersgd.json"), source="layerwise_powersgd.json")
    (tmp_path / "l.npz").rename(tmp_path / "l.NPZ")
    (tmp_path / "README.md").write_text("About these files.")
    assert [replay.case for replay in replays_of(tmp_path, FORMATS, notes)] == ["l017", "l017"]
    assert notes == [
        "README.md: left alone, as it is no recording",
        "l.JSON: its arrays of l004, l011, l019, l021, l027, l029 belong to none of its cases",
    ]


def test_two_cases_of_one_id_are_no_single_case(tmp_path: Path) -> None:
    content = one_case("estimator.json")
    content["cases"] *= 3
    write(tmp_path, "e.json", content)
    assert failures(tmp_path) == {
        f"e.json-E002 again, #{index}": (
            f"e.json: cases[{index}].id = 'E002': a case before has it, expected an own one"
        )
        for index in (1, 2)
    }


def test_without_versions_every_case_says_so(tmp_path: Path) -> None:
    content = one_case("twrw_dist.json")
    del content["versions"]
    write(tmp_path, "t.json", content)
    sentence = "t.json.versions: the field is missing"
    assert failures(tmp_path) == {"t.json": sentence, "t.json-D000": sentence}


def test_an_old_release_is_only_asked_for_where_a_case_has_it(tmp_path: Path) -> None:
    content = one_case("partitioner.json")
    del content["versions"]["torchrec_old"]
    write(tmp_path, "p.json", content)
    assert failures(tmp_path) == {
        "p.json-P0000": "p.json: P0000.expected_v0_2_0: expected versions.torchrec_old beside the cases"
    }
    del the_case(content)["expected_v0_2_0"]
    write(tmp_path, "p.json", content)
    assert failures(tmp_path) == {}


def test_bytes_that_a_single_rank_sends_to_itself_are_checked(tmp_path: Path) -> None:
    content: Content = json.loads((OWN / "twrw_dist.json").read_text())
    content["cases"] = [case for case in content["cases"] if case["world_size"] == 1]
    write(tmp_path, "t.json", content)
    assert failures(tmp_path) == {}
    add_one(the_case(content), "send_splits", 0, "values", 0)
    write(tmp_path, "t.json", content)
    assert [name.split("-")[0] for name in failures(tmp_path)] == ["t.json"]


@pytest.mark.parametrize("array", ["b011/s4/b0/p", "b011/s3/b0/q", "b011/s5/b0/err", "b011/s2/b0/draw0"])
def test_a_missing_array_fails(tmp_path: Path, array: str) -> None:
    with np.load(OWN / "batched_powersgd.npz") as stored:
        arrays = {name: stored[name] for name in stored if name.startswith("b011/") and name != array}
    (tmp_path / "f.json").write_text(json.dumps(one_case("batched_powersgd.json")))
    np.savez(tmp_path / "f.npz", **arrays)
    step, bucket, name = array.split("/")[1:]
    sentence = f"rank 0, step {step[1:]}, bucket {bucket[1:]}: the array {name} is missing"
    assert failures(tmp_path) == {"f.json-b011-sim": sentence}


def test_an_unknown_word_beside_the_cases_fails_and_takes_no_case_along(tmp_path: Path) -> None:
    write(tmp_path, "estimator.json", {**one_case("estimator.json"), "scale": 2})
    sentence = "estimator.json.scale: unknown field; expected one of about"
    assert failures(tmp_path) == {"estimator.json": sentence}
    assert len(replays_of(tmp_path, FORMATS)) == 2


def test_an_unknown_probe_fails(tmp_path: Path) -> None:
    content = one_case("a2a_probes_gloo.json")
    content["probes"] = {"scalar_9d": content["probes"]["scalar_0d"]}
    write(tmp_path, "a2a_probes_gloo.json", content)
    (sentence,) = failures(tmp_path).values()
    assert sentence.startswith("a2a_probes_gloo.json: scalar_9d: an unknown probe; expected one of dtype_float16, ")


@pytest.mark.parametrize("world", ["sim", "real"])
def test_a_case_that_breaks_its_ranks_takes_no_other_along(tmp_path: Path, world: str) -> None:
    content: Content = json.loads((OWN / "twrw_output_dist.json").read_text())
    content["cases"] = [copy.deepcopy(content["cases"][0]), content["cases"][0]]
    content["cases"][0]["id"] = "broken"
    content["cases"][0]["inputs"][0].pop()  # rank 0 raises, and the others wait
    write(tmp_path, "twrw_output_dist.json", content)
    broken, sound = [replay for replay in replays_of(tmp_path, FORMATS) if replay.way == world]
    sound.check()
    with pytest.raises(Exception, match="shape"):
        broken.check()


def run(directory: Path, *arguments: str, at: Path) -> subprocess.CompletedProcess[str]:
    """pytest as a user calls it."""
    command = [sys.executable, "-m", "pytest", str(ROOT / "tests" / "vectors" / "test_vectors.py"), *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    return subprocess.run(command, cwd=at, env=environment, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.parametrize("form", ["--vectors {}", pytest.param("--vectors={}", marks=pytest.mark.slow)])
def test_cases_are_counted_by_file_also_where_one_fails(tmp_path: Path, form: str) -> None:
    content = one_case("estimator.json")
    content["cases"].append({**copy.deepcopy(the_case(content)), "id": "E999"})
    add_one(content["cases"][1], *MUTATIONS["estimator.json"])
    vectors = tmp_path / "deep" / "vectors"
    vectors.mkdir(parents=True)
    write(vectors, "e.json", content)
    write(vectors, "p.json", one_case("partitioner.json"))
    (vectors / "u.json").write_text("{}")
    # Relative to where pytest is called, not to the project.
    done = run(tmp_path, *form.format("deep/vectors").split(), at=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    counted = [line for line in done.stdout.splitlines() if ".json: " in line and line[1:].startswith(".json: ")]
    assert counted == [
        "e.json: 2 cases, 1 failed",
        "p.json: 1 case (2 replays: 1 as 1.8.0, 1 as 0.2.0)",
        "u.json: 0 cases, 1 failed",
    ]
    assert "2 failed, 3 passed" in done.stdout


def test_a_directory_without_vectors_is_an_error_of_usage(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, sentence in {
        "nowhere": "ERROR: --vectors nowhere: expected a directory",
        "empty": "ERROR: --vectors empty: expected a directory with *.json files",
    }.items():
        done = run(tmp_path, f"--vectors={name}", at=tmp_path)
        assert done.returncode == 4, done.stdout + done.stderr
        assert sentence in (done.stdout + done.stderr).splitlines()


def test_directories_that_are_links_are_entered_once(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    write(outside, "twrw_output_dist.json", one_case("twrw_output_dist.json"))
    (inside / "link").symlink_to(outside)
    (inside / "itself").symlink_to(inside)
    assert {replay.file for replay in replays_of(inside, FORMATS)} == {"link/twrw_output_dist.json"}
