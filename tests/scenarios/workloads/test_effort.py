"""What a simulation takes of this machine is known before it begins: what is chosen by it, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from scenarios.config.load import load
from scenarios.config.scenario import Data
from scenarios.config.warnings import notes
from scenarios.seam.errors import ScenarioError
from scenarios.seam.trace import CACHED, MemoryRow
from scenarios.workloads.build import build, build_simulation, effort_of
from scenarios.workloads.dlrm import batches
from scenarios.workloads.effort import Effort, check_memory
from sim.run import simulate
from tests.mistakes import mistakes_of
from tests.small import scenario
from twinstep.scenario_files import check_files

DLRM = """
program = "dlrm"
[run]
batch_size = {batch_size}
[cluster]
profile = "dgx_h100"
hosts = {hosts}
[model]
dense_features = 13
bottom = [64]
top = [64, 1]
embedding_dim = 64
interaction.kind = "dot"
{tables}
"""
TABLE = '[[model.tables]]\nname = "t{}"\nrows = 100000\nids_per_sample = 3\nsharding = ["{}"]\n'


def dlrm(folder: Path, *, tables: int, hosts: int, batch_size: int = 4096, sharding: str = "table_wise") -> Path:
    file = folder / "dlrm.toml"
    written = "\n".join(TABLE.format(number, sharding) for number in range(tables))
    file.write_text(DLRM.format(batch_size=batch_size, hosts=hosts, tables=written))
    return file


def test_hundreds_of_tables_on_hundreds_of_gpus_are_simulated_by_host_classes(tmp_path: Path) -> None:
    file = dlrm(tmp_path, tables=800, hosts=16)
    made = load(file)
    assert (made.run.ranks, made.run.fidelity) == ("alike", "links")
    (note,) = notes(made, build(made).host_classes)
    begin = f"{file}: run.ranks = 'alike', run.fidelity = 'links': chosen because simulating 128 ranks one by one takes"
    assert note.startswith(begin)
    assert made.digest() == load(file, {"ranks": "each"}).digest()


@pytest.mark.parametrize("asked", [{"ranks": "each"}, {"fidelity": "flows"}, {"payload": "values"}])
def test_explicit_settings_are_not_overridden(asked: dict[str, Any], tmp_path: Path) -> None:
    made = load(dlrm(tmp_path, tables=800, hosts=16), asked)
    assert made.run.ranks == "each"
    assert {key: getattr(made.run, key) for key in asked} == asked
    assert not made.run.chosen


def test_few_tables_on_few_gpus_are_simulated_rank_by_rank(tmp_path: Path) -> None:
    made = load(dlrm(tmp_path, tables=8, hosts=2))
    assert (made.run.ranks, made.run.fidelity, made.run.chosen) == ("each", "flows", "")


def test_identical_hosts_imply_links(tmp_path: Path) -> None:
    assert load(dlrm(tmp_path, tables=8, hosts=2), {"ranks": "alike"}).run.fidelity == "links"


def test_more_work_takes_more(tmp_path: Path) -> None:
    def effort(**given: Any) -> Effort:
        made = load(dlrm(tmp_path, **given), {"ranks": "each"})
        return effort_of(made, build(made))

    least = effort(tables=8, hosts=2)
    for more in (effort(tables=16, hosts=2), effort(tables=8, hosts=4), effort(tables=8, hosts=2, sharding="row_wise")):
        assert more.seconds(3) > least.seconds(3)
        assert more.size_bytes(3) > least.size_bytes(3)


def test_tensors_with_values_are_held(tmp_path: Path) -> None:
    made = load(dlrm(tmp_path, tables=2, hosts=1, batch_size=16), {"payload": "values"})
    held = effort_of(made, build(made)).step_bytes - effort_of(load(made.path), build(load(made.path))).step_bytes
    assert held > 2 * 100_000 * 64 * 4


def test_cached_memory_of_an_allocator_does_not_count(tmp_path: Path) -> None:
    made = load(dlrm(tmp_path, tables=2, hosts=1, batch_size=16), {"payload": "values"})
    program, before = build(made), effort_of(made, build(made))
    free = MemoryRow(rank=0, part="free", size_bytes=1 << 30, capacity_bytes=1 << 30, rank_count=1, phases=CACHED)
    program.memory = (*program.memory, free)
    assert effort_of(made, program) == before


@pytest.mark.parametrize(
    ("effort", "key", "takes"),
    [
        (Effort(held_bytes=64 * 2**30), "run.ranks = 'each'", "64 GiB"),
        (Effort(loaded_bytes=64 * 2**30), "data.prefetch = 7", "64 GiB, 64 GiB of it batches that are loaded ahead"),
        (Effort(operations=4), "run.steps = 4000000", "30 GiB; 1,867,199 steps fit"),
    ],
    ids=["tensors", "batches", "steps"],
)
def test_simulations_larger_than_free_memory_are_refused(effort: Effort, key: str, takes: str) -> None:
    made = scenario(path=Path("big.toml"), steps=4_000_000, data=Data(samples_per_s=1.0, prefetch=7))
    check_memory(made, Effort(held_bytes=6e9), free_bytes=8e9)
    assert mistakes_of(check_memory, made, effort, free_bytes=16 * 2**30) == [
        f"big.toml: {key}: expected a simulation that fits into this machine's 16 GiB of free memory; this one takes"
        f" about {takes}",
    ]


def test_batches_that_are_loaded_ahead_count_up_to_those_that_a_run_takes(tmp_path: Path) -> None:
    file, loaded = dlrm(tmp_path, tables=2, hosts=1), []
    ids = 8 * 4096 * 2 * (1 + 3)  # of a batch: ranks, samples, tables, a length and three ids
    for prefetch, steps in ((1, 3), (10_000, 3), (10_000, 10**6)):
        file.write_text(f"{file.read_text().split('[data]')[0]}[data]\nsamples_per_s = 1e6\nprefetch = {prefetch}\n")
        made = load(file, {"ranks": "each", "steps": steps})
        loaded.append(effort_of(made, build(made)).loaded_bytes)
    assert loaded == [8 * ids, 3 * 8 * ids, 10_000 * 8 * ids]


@pytest.mark.parametrize("ranks", ["each", "alike"])
def test_a_billion_steps_are_refused_with_the_number_that_fits(
    ranks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "long.toml"
    cluster = '{profile = "dgx_h100", hosts = 4}'
    file.write_text(
        f'program = "collective"\ncollective = {{op = "all_reduce", size = "1 MiB"}}\ncluster = {cluster}\n'
        f'run = {{steps = 1_000_000_000, ranks = "{ranks}"}}\n'
    )
    assert check_files([str(file)]) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(
        rf"{file}: run.steps = 1000000000: expected a simulation that fits into this machine's \S+ GiB of free memory;"
        r" this one takes about [\d,]+ GiB; [\d,]+ steps fit\n",
        said,
    ), said


@pytest.mark.parametrize(
    ("asked", "hosts", "options"),
    [
        ({"fidelity": "flows"}, 16, "--fidelity links"),
        ({"ranks": "each"}, 16, "--ranks alike"),
        ({"ranks": "each", "fidelity": "flows"}, 16, "--ranks alike --fidelity links"),
        ({"fidelity": "flows"}, 2, "--ranks alike --fidelity links"),  # too few to be folded unasked
        ({"payload": "values"}, 16, ""),
        ({"library": "gloo", "fidelity": "flows"}, 16, ""),
    ],
)
def test_a_refusal_names_the_options_that_help(asked: dict[str, Any], hosts: int, options: str, tmp_path: Path) -> None:
    file = dlrm(tmp_path, tables=800 if hosts > 2 else 8, hosts=hosts)
    made = load(file, asked)
    assert made.run.folded_by == options
    (sentence,) = mistakes_of(check_memory, made, Effort(held_bytes=64 * 2**30), free_bytes=16 * 2**30)
    assert (f"and {options} simulates one host of each class" in sentence) == bool(options)
    if options:
        words = options.replace("--", "").split()
        helped = load(file, {**asked, **dict(zip(words[::2], words[1::2], strict=True))})
        assert (helped.run.ranks, helped.run.fidelity) == ("alike", "links")
        assert helped.digest() == made.digest()


def test_the_check_and_the_simulator_refuse_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = load(dlrm(tmp_path, tables=800, hosts=512), {"payload": "values"})
    with pytest.raises(ScenarioError, match="of free memory"):
        build_simulation(made)
    file = tmp_path / "gather.toml"
    gather = '[collective]\nop = "all_gather"\nsize = "{}"\n[cluster]\nprofile = "dgx_h100"\nhosts = 3\n'
    for size in ("1000 B", "1 PiB"):  # no share for each of 24 ranks; more than a GPU has
        file.write_text('program = "collective"\n' + gather.format(size))
        refused = mistakes_of(build_simulation, load(file))
        assert check_files([str(file)]) == 2
        assert capsys.readouterr().err.splitlines() == refused


@pytest.mark.parametrize(
    ("sharding", "are_drawn"), [("table_wise", False), ("row_wise", True), ("data_parallel", False)]
)
def test_ids_that_nobody_reads_are_not_drawn(
    sharding: str, are_drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, draw_ids = [], batches.draw_ids

    def count(*arguments: Any) -> Any:
        drawn.append(arguments[-1])
        return draw_ids(*arguments)

    monkeypatch.setattr(batches, "draw_ids", count)
    made = load(dlrm(tmp_path, tables=2, hosts=1, batch_size=16, sharding=sharding), {"steps": 1})
    simulate(made, build(made))
    assert (sum(drawn) > 0) == are_drawn


def test_many_steps_say_how_long_they_take(tmp_path: Path) -> None:
    made = load(dlrm(tmp_path, tables=8, hosts=2), {"steps": 10**6})
    effort = effort_of(made, build(made))
    (note,) = notes(made, None, effort)
    assert (made.run.ranks, made.run.chosen) == ("each", "")
    assert note.startswith(f"{made.path}: run.steps = 1000000: simulating them takes about")
    assert list(notes(load(made.path), None, effort)) == []


@pytest.mark.parametrize(
    "table",
    [
        'program = "all_to_all"\nexchange = {size = "64 B"}',
        'program = "collective"\ncollective = {op = "all_reduce", size = "64 B"}',
    ],
    ids=["all_to_all", "collective"],
)
def test_the_operations_of_small_steps_count_too(tmp_path: Path, table: str) -> None:
    """Of ranks whose exchange is all but nothing, 600,000 steps take minutes."""
    file = tmp_path / "tiny.toml"
    file.write_text(
        f'{table}\ncluster = {{profile = "cpu_local", hosts = 1, gpus_per_host = 2}}\nrun = {{library = "gloo"}}\n'
    )
    made = load(file, {"steps": 600_000})
    (note,) = notes(made, None, effort_of(made, build(made)))
    assert re.fullmatch(f"{file}: run.steps = 600000: simulating them takes about [5-9] min and .*", note)
    assert list(notes(load(file, {"steps": 10}), None, effort_of(made, build(made)))) == []


def test_a_program_of_ones_own_that_loads_batches_ahead_has_no_key_of_ours() -> None:
    own = load(Path(__file__).parents[3] / "scenarios" / "library" / "all_to_all_4x2.toml")
    with pytest.raises(ScenarioError, match=r"run\.ranks = 'each': expected a simulation that fits"):
        check_memory(own, Effort(loaded_bytes=1e12), 16e9)
