"""Every mistake is one whole sentence with file, key, value and what was expected, and all are said in one go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from scenarios.config.catalogue import library_files
from scenarios.config.load import load
from scenarios.seam.errors import ScenarioError
from tests.scenarios.config.toml.bad_pieces import DLRM, GOOD, OTHER_FILES, UTMOST, WHOLE, bad_files, edit

BAD = bad_files()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "parts").mkdir()
    for name, text in OTHER_FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sentences(path: str, overrides: Mapping[str, object] | None = None) -> list[str]:
    with pytest.raises(ScenarioError) as error:
        load(path, overrides)
    assert str(error.value) == "\n".join(error.value.sentences)
    return list(error.value.sentences)


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_described_by_exactly_these_sentences(case: str, folder: Path) -> None:
    text, wanted = BAD[case]
    (folder / "bad.toml").write_text(text)
    assert sentences("bad.toml") == wanted


@pytest.mark.parametrize("text", [*filter(None, GOOD.values()), *UTMOST.values()])
def test_the_base_of_the_bad_files_is_valid(text: str, folder: Path) -> None:
    (folder / "good.toml").write_text(text)
    assert load("good.toml").name == "good"


def test_a_missing_file_is_named_as_the_user_gave_it(folder: Path) -> None:
    assert sentences("./no/such.toml") == ["./no/such.toml: no such file; expected a scenario in TOML"]
    assert sentences(str(folder / "parts")) == [f"{folder / 'parts'}: Is a directory; expected a scenario in TOML"]


def test_a_word_that_names_neither_a_file_nor_a_ready_scenario_is_told_what_does(folder: Path) -> None:
    near = "no such file; expected a scenario in TOML, or a ready one such as"
    (said,) = sentences("criteo_smal_2x2")
    assert said.startswith(f"criteo_smal_2x2: {near} criteo_small_2x2")
    (said,) = sentences("twrw_2x2.toml")
    assert said == f"twrw_2x2.toml: {near} twrw_2x2, twrw_2048x8"
    names = ", ".join(path.stem for path in library_files())
    assert sentences("zzz") == [
        f"zzz: no such file; expected a scenario in TOML, or one of the ready ones: {names}",
    ]
    assert sentences("no.toml") == ["no.toml: no such file; expected a scenario in TOML"]


def test_a_key_that_cannot_be_overridden_is_a_mistake_like_any_other(folder: Path) -> None:
    (folder / "good.toml").write_text(DLRM)
    known = "steps, seed, batch_size, payload, fidelity, ranks, library, timeout, compute_times, profile, kernels"
    assert sentences("good.toml", {"hosts": 8, "steps": 0}) == [
        f"hosts = 8: cannot be overridden; expected one of {known}, or a key's path, such as cluster.hosts or"
        " model.tables[3].rows",
        "--steps = 0: expected a whole number of at least 1",
    ]


def test_a_file_that_is_no_text_is_refused(folder: Path) -> None:
    (folder / "bad.toml").write_bytes(b"name = '\xff'")
    assert sentences("bad.toml") == ["bad.toml: byte 8: expected UTF-8 text"]
    (folder / "bad.toml").write_text("steps = 3", encoding="utf-16")
    assert sentences("bad.toml") == ["bad.toml: expected UTF-8 text, not UTF-16; save it as UTF-8"]
    (folder / "bad.toml").write_bytes(b"steps = 3\0")
    nul = "expected UTF-8 text, without NUL bytes such as byte 9; if it is UTF-16, save it as UTF-8"
    assert sentences("bad.toml") == [f"bad.toml: {nul}"]


def test_mistakes_of_the_command_line_are_named_by_their_option(folder: Path) -> None:
    (folder / "bad.toml").write_text(edit(DLRM, "hosts = 2", "hosts = 0"))
    overrides = {
        "steps": 0,
        "batch_size": -1,
        "payload": "full",
        "fidelity": None,
        "library": "nccl",
        "timeout": "1 GiB",
    }
    assert sentences("bad.toml", overrides) == [
        f"--batch-size = -1: expected {WHOLE}",
        f"--steps = 0: expected {WHOLE}",
        "--payload = 'full': expected 'values' or 'sizes'",
        "--library = 'nccl': expected 'gloo', because cluster.gpu.kind = 'cpu'",
        "--timeout = '1 GiB': expected a time such as '3 us'",
        f"bad.toml: cluster.hosts = 0: expected {WHOLE}",
    ]


def test_there_are_bad_files_enough() -> None:
    assert len(BAD) >= 180
    assert sum(len(wanted) > 1 for _, wanted in BAD.values()) >= 10
