"""The tables of measured operators that a GPU may name: ready ones, installed whole ones, and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.config.catalogue import kernel_tables
from scenarios.config.load import load
from scenarios.seam.errors import ScenarioError
from tests.commands import command
from tests.mistakes import mistakes_of


def scenario(table: str) -> str:
    return (
        'program = "all_to_all"\nexchange = {size = "1 MiB"}\n'
        f'[cluster]\nprofile = "dgx_h100"\nhosts = 1\ngpu = {{kernel_table = "{table}"}}\n'
    )


def sentence(folder: Path, table: str) -> str:
    (folder / "s.toml").write_text(scenario(table))
    (only,) = mistakes_of(load, folder / "s.toml")
    return only.removeprefix(f"{folder / 's.toml'}: cluster.gpu.kernel_table = '{table}': expected ")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install an aiconfigurator-core with linear layers of two systems, and nothing of a third."""
    systems = tmp_path / "aiconfigurator_core" / "systems" / "data"
    for folder in ("slow/gemm", "fast/gemm", "none"):
        (systems / folder).mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_whole_tables_of_measured_systems_are_named_by_them(installed: Path) -> None:
    (installed / "s.toml").write_text(scenario("aiconfigurator/fast"))
    assert load(installed / "s.toml").cluster.host.gpu.kernel_tables == ("aiconfigurator/fast",)


def test_the_systems_are_listed_where_another_is_named(installed: Path) -> None:
    for name in ("none", "quick", ""):
        expected = "one of the installed tables, aiconfigurator/fast, aiconfigurator/slow"
        assert sentence(installed, f"aiconfigurator/{name}") == expected


def test_the_extra_that_brings_whole_tables_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.config.catalogue.find_spec", lambda name: None)
    expected = 'aiconfigurator-core to be installed: pip install "twinstep[tables]"'
    assert sentence(tmp_path, "aiconfigurator/h200_sxm") == expected


def test_other_tables_are_ready_ones_or_files(tmp_path: Path) -> None:
    ready = ", ".join(file.stem for file in kernel_tables())
    assert (
        sentence(tmp_path, "h20")
        == f"one of the ready tables, {ready}, or a path that ends in .parquet, .json or .json.gz"
    )
    assert sentence(tmp_path, "h20.parquet") == f"{tmp_path / 'h20.parquet'} to be a file"


def test_a_list_of_tables_names_the_one_that_is_wrong(tmp_path: Path) -> None:
    text = scenario("h100_sxm").replace('"h100_sxm"', '["h100_sxm", "mine.parquet"]')
    (tmp_path / "s.toml").write_text(text)
    file = tmp_path / "mine.parquet"
    expected = f"cluster.gpu.kernel_table[1] = 'mine.parquet': expected {file} to be a file"
    assert mistakes_of(load, tmp_path / "s.toml") == [f"{tmp_path / 's.toml'}: {expected}"]
    file.touch()
    assert load(tmp_path / "s.toml").cluster.host.gpu.kernel_tables == ("h100_sxm", str(file))


@pytest.mark.parametrize("given", ["[]", "3", '["h100_sxm", 3]', '" "'])
def test_unknown_tables_are_refused(tmp_path: Path, given: str) -> None:
    (tmp_path / "s.toml").write_text(scenario("h100_sxm").replace('"h100_sxm"', given))
    with pytest.raises(ScenarioError, match=r"expected a table's name, or a path that ends in .*, or an array of them"):
        load(tmp_path / "s.toml")


def test_measured_kernels_of_a_command_line_lie_over_the_profiles_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "s.toml").write_text(scenario("own.parquet"))
    (tmp_path / "folder" / "own.parquet").touch()
    (tmp_path / "over.parquet").touch()
    monkeypatch.chdir(tmp_path)
    tables = load("folder/s.toml", {"kernels": "over.parquet"}).cluster.host.gpu.kernel_tables
    assert tables == (str(tmp_path / "folder" / "own.parquet"), str(tmp_path / "over.parquet"))
    assert mistakes_of(load, "folder/s.toml", {"kernels": "own.parquet"}) == [
        "--kernels = 'own.parquet': expected own.parquet to be a file"
    ]


def test_profiles_are_shown_with_their_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = command("scenarios", "profiles", "hgx_h200").stdout.splitlines()[3:]
    assert shown == [
        "    46,298 measured operators of NVIDIA H200:"
        " aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0), medians over its servers",
        "        linear, 35,742 shapes: mean error 6.4% by the law alone, 1.2% between the table's shapes",
        "        prefill, 31,638 shapes: mean error 14.9% by the law alone, 1.1% between the table's shapes",
        "        encoder, 7,679 shapes: mean error 12.3% by the law alone, 1.3% between the table's shapes",
    ]
