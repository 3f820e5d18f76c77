"""What a good file means: defaults, includes, overrides, ids from files, and a digest of what matters."""

from __future__ import annotations

import copy
import hashlib
import math
import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.catalogue import library_files
from scenarios.config.load import OVERRIDES, load
from scenarios.config.scenario import (
    Buckets,
    CollectiveCalls,
    Compression,
    Exchange,
    GradientReduction,
    Gradients,
    Ids,
    Optimizer,
)
from scenarios.config.toml.build import build
from scenarios.config.toml.checks import check
from scenarios.config.toml.document import editors_document, read_document
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.schema import json_schema, reference
from scenarios.config.toml.tree import Tree
from scenarios.workloads.powersgd.config import resnet50_shapes
from tests.commands import command
from tests.lanes import examples
from tests.sim.test_path_of_a_call import modules_called
from tests.small import model_of

ROOT = Path(__file__).parents[3]
LEAST = 'program = "all_to_all"\n[cluster]\nprofile = "cpu_local"\nhosts = 2\n[exchange]\nsize = "1 MiB"\n'
MODEL = """
program = "dlrm"
run = {batch_size = 4}
cluster = {profile = "cpu_local", hosts = 2}
[model]
dense_features = 4
bottom = [8, 8]
top = [8, 1]
interaction = {kind = "cat"}
embedding_dim = 8
"""
TABLE = '[[model.tables]]\nname = "a"\nrows = 10\n'


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return name


def test_a_file_that_says_little_gets_the_documented_defaults(folder: Path) -> None:
    scenario = load(write(folder, "least.toml", LEAST))
    assert (scenario.name, scenario.path, scenario.program) == ("least", Path("least.toml"), "all_to_all")
    assert (scenario.run.steps, scenario.run.seed, scenario.run.batch_size) == (3, 0, 1)
    assert (scenario.run.payload, scenario.run.fidelity, scenario.run.library) == ("sizes", "flows", "gloo")
    assert scenario.run.timeout_s == 60
    assert CollectiveCalls.of(scenario.workload) == Exchange(size_bytes=2**20)
    assert (scenario.workload.buckets, scenario.workload.compression) == (Buckets(), Compression())


def test_tables_merge_and_everything_else_is_taken_from_the_first_file_that_has_it(folder: Path) -> None:
    write(folder, "base.toml", f'name = "base"\n{MODEL}{TABLE}ids_per_sample = 1\n[buckets]\ncap = "1 MiB"\n')
    write(folder, "parts/late.toml", '[run]\nsteps = 9\nseed = 5\n[buckets]\nfirst = "2 KiB"\n')
    text = (
        'include = ["base.toml", "parts/late.toml"]\n[run]\nsteps = 7\n[model]\ntop = [4, 1]\n'
        '[[model.tables]]\nname = "other"\nrows = 3\nids_per_sample = 2\n'
    )
    scenario = load(write(folder, "top.toml", text))
    assert (scenario.name, scenario.run.steps, scenario.run.seed, scenario.run.batch_size) == ("base", 7, 5, 4)
    assert scenario.workload.buckets == Buckets(first_bytes=2048, cap_bytes=2**20)
    assert (model_of(scenario).bottom, model_of(scenario).top) == (
        (8, 8),
        (4, 1),
    )
    assert [table.name for table in scenario.workload.tables] == ["other"]


def test_of_two_included_files_the_later_wins(folder: Path) -> None:
    write(folder, "one.toml", "[run]\nsteps = 1\nseed = 1\n")
    write(folder, "two.toml", "[run]\nsteps = 2\n")
    scenario = load(write(folder, "top.toml", f'include = ["one.toml", "two.toml"]\n{LEAST}'))
    assert (scenario.run.steps, scenario.run.seed) == (2, 1)


def test_a_file_may_be_included_by_two(folder: Path) -> None:
    write(folder, "base.toml", LEAST)
    write(folder, "one.toml", 'include = "base.toml"\n[run]\nsteps = 1\n')
    write(folder, "two.toml", 'include = "base.toml"\n[run]\nseed = 2\n')
    scenario = load(write(folder, "top.toml", 'include = ["one.toml", "two.toml"]\n'))
    assert (scenario.run.steps, scenario.run.seed) == (1, 2)


def test_options_of_the_command_line_win_and_none_leaves_the_file(folder: Path) -> None:
    path = write(folder, "a.toml", MODEL + TABLE + "ids_per_sample = 1\n")
    scenario = load(path, dict.fromkeys(OVERRIDES))
    assert scenario == load(path)
    values = {"steps": 9, "seed": 8, "batch_size": 7, "payload": "values", "fidelity": "links", "timeout": "2 min"}
    changed = load(path, values)
    assert (changed.run.steps, changed.run.seed, changed.run.batch_size) == (9, 8, 7)
    assert (changed.run.payload, changed.run.fidelity, changed.run.timeout_s) == ("values", "links", 120)


def test_tables_take_what_they_do_not_say_from_model_and_sharding(folder: Path) -> None:
    text = MODEL + TABLE + 'ids_per_sample = {mean = 2.5}\nids = {zipf = 1.1}\n[sharding]\ntypes = ["row_wise"]\n'
    text += '[[model.tables]]\nname = "b"\nrows = 4\ndim = 2\nids_per_sample = 3\nsharding = ["table_wise"]\n'
    model = model_of(load(write(folder, "a.toml", text)))
    assert model is not None
    first, second = model.tables
    assert (first.dim, first.sharding, first.ids) == (8, ("row_wise",), Ids(kind="zipf", exponent=1.1))
    assert (first.ids_per_sample, first.ids_per_sample_kind) == (2.5, "poisson")
    assert (second.dim, second.sharding, second.ids) == (2, ("table_wise",), Ids())
    assert (second.ids_per_sample, second.ids_per_sample_kind) == (3, "fixed")
    assert (model.dtype, model.optimizer) == ("float32", Optimizer())


@pytest.mark.parametrize(("content", "mean", "kind"), [("0 9\n\n3\n4\n", 1, "poisson"), ("1 2\n3 4", 2, "fixed")])
def test_ids_from_a_file_bring_their_number_and_their_hash(folder: Path, content: str, mean: float, kind: str) -> None:
    write(folder, "parts/ids.csv", content)
    write(folder, "parts/base.toml", MODEL + TABLE + 'ids = {file = "ids.csv"}\n')
    model = model_of(load(write(folder, "top.toml", 'include = "parts/base.toml"\n')))
    assert model is not None
    (table,) = model.tables
    assert (table.ids_per_sample, table.ids_per_sample_kind) == (mean, kind)
    sha256 = hashlib.sha256(content.encode()).hexdigest()
    assert table.ids == Ids(kind="file", path=Path("parts/ids.csv"), sha256=sha256)


def test_the_digest_knows_what_is_computed_and_not_how_it_is_played(folder: Path) -> None:
    write(folder, "ids.csv", "1\n")
    text = MODEL + TABLE + 'ids = {file = "ids.csv"}\n'
    path = write(folder, "a.toml", text)
    digest = load(path).digest()
    for values in ({"payload": "values"}, {"fidelity": "links"}, {"timeout": "5 s"}):
        assert load(path, values).digest() == digest
    for changed in ({"seed": 1}, {"steps": 4}, {"batch_size": 5}):
        assert load(path, changed).digest() != digest
    assert load(write(folder, "a.toml", text.replace("rows = 10", "rows = 11"))).digest() != digest
    write(folder, "a.toml", text)
    write(folder, "ids.csv", "2\n")
    assert load(path).digest() != digest


def test_options_of_compression_that_is_off_change_nothing(folder: Path) -> None:
    options = '[compression]\nkind = "none"\nmatrix_approximation_rank = 4\n'
    head = (
        'program = "powersgd"\ncluster = {profile = "v100_tcp_10g", hosts = 2}\ngradients = {shapes = [[2], [3, 3]]}\n'
    )
    scenario = load(write(folder, "a.toml", head + options))
    assert scenario.workload.compression == Compression()
    assert GradientReduction.of(scenario.workload) == Gradients(shapes=((2,), (3, 3)))
    assert scenario.run.library == "nccl"
    on = load(
        write(folder, "a.toml", head + options.replace("none", "layerwise_powersgd") + "start_powerSGD_iter = 2\n")
    )
    assert on.workload.compression == Compression(
        kind="layerwise_powersgd", matrix_approximation_rank=4, start_powerSGD_iter=2
    )


def test_resnet50_has_its_161_tensors_of_25557032_elements() -> None:
    shapes = resnet50_shapes()
    assert len(shapes) == 161
    assert sum(math.prod(shape) for shape in shapes) == 25_557_032
    assert shapes[:3] == ((64, 3, 7, 7), (64,), (64,))
    assert shapes[-2:] == ((1000, 2048), (1000,))


LIBRARY = {path.stem: tomllib.loads(path.read_text()) for path in library_files()}
TOML_VALUES = st.recursive(
    st.one_of(
        st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["3 us", "1 GB/s", "dot"])
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)


def places(values: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of everything in a tree of TOML values."""
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return [path for key, value in items for path in ((*above, key), *places(value, (*above, key)))]


@examples(200)
@given(data=st.data())
def test_whatever_stands_in_a_file_gives_a_scenario_or_sentences(data: st.DataObject) -> None:
    values = copy.deepcopy(data.draw(st.sampled_from([LIBRARY["criteo_small_2x2"], LIBRARY["powersgd_16x1_10g"]])))
    values["cluster"] |= tomllib.loads((ROOT / "scenarios/profiles/cpu_local.toml").read_text())["cluster"]
    for _ in range(data.draw(st.integers(1, 4))):
        *above, key = data.draw(st.sampled_from(places(values)))
        target: Any = values
        for step in above:
            target = target[step]
        target[key] = data.draw(TOML_VALUES)
    mistakes = Mistakes(Tree(root="any.toml", values=values))
    document, program = read_document(mistakes)
    check(document, program, mistakes)
    sentences = mistakes.sentences()
    assert all(sentence.startswith("any.toml: ") and "\n" not in sentence for sentence in sentences)
    assert len(sentences) == len(set(sentences))
    if not sentences:
        assert program is not None
        build(document, program, mistakes, Path("any.toml")).digest()


def test_loading_needs_neither_torch_nor_simpy() -> None:
    script = "import sys, scenarios.config.load as l; l.load(sys.argv[1]); print({'torch', 'simpy'} & set(sys.modules))"
    line = [sys.executable, "-c", script, str(ROOT / "scenarios/library/criteo_dlrm_2x4.toml")]
    done = subprocess.run(line, capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    assert done.stdout == "set()\n"


def test_check_says_ok_or_the_sentences_and_exits_with_2(folder: Path) -> None:
    write(folder, "good.toml", LEAST)
    write(folder, "bad.toml", LEAST.replace("hosts = 2", "hosts = 0"))
    good = command("scenarios", "check", "good.toml")
    assert (good.returncode, good.stdout, good.stderr) == (0, "good.toml: ok\n", "")
    both = command("scenarios", "check", "bad.toml", "good.toml")
    assert (both.returncode, both.stdout) == (2, "good.toml: ok\n")
    assert both.stderr == "bad.toml: cluster.hosts = 0: expected a whole number of at least 1\n"


def test_every_key_of_the_schema_is_described_and_accepts_no_null() -> None:
    schema = json_schema()
    tables = [schema, *schema["$defs"].values()]
    keys = [(name, about) for table in tables for name, about in table["properties"].items()]
    assert len(keys) > 90
    assert [name for name, about in keys if not about.get("description")] == []
    free = [schema["$defs"].pop(name) for name in ("FreeOptions", "DenseOptimizerSection")]  # of the user's own
    assert all(table["additionalProperties"] is (table in free) for table in tables)
    assert "null" not in str(schema)
    assert set(schema["properties"]) == set(editors_document().model_fields)


def test_every_number_has_a_unit_and_every_default_figure_a_source() -> None:
    cells = [
        (place, dict(zip(titles.split(" | "), row.split(" | "), strict=True)))
        for place, titles, rows in re.findall(r"### (.*)\n\n.*\n\n\| (.*) \|\n.*\n((?:\| .* \|\n)+)", reference())
        for row in rows.removesuffix(" |\n").removeprefix("| ").split(" |\n| ")
    ]
    numbers = [(place, row) for place, row in cells if re.search("number|integer|such as '", row["type"])]
    assert len(numbers) > 100
    assert {row["key"] for _, row in numbers if not row["unit"]} == {"`seed`", "`random_seed`"}
    figures = [row for place, row in numbers if place != "`run`" and re.search(r"\b(?![01]\b)\d", row["default"])]
    assert len(figures) > 20
    assert [row["key"] for row in figures if not row.get("source of the default")] == []


def test_the_scenarios_in_the_documentation_are_good(folder: Path) -> None:
    page = (ROOT / "docs/reference/scenario.md").read_text()
    pieces = [piece.split("```")[0] for piece in page.split("```toml\n")[1:]]
    pieces = [piece for piece in pieces if "train_step" not in piece]  # which workloads/test_registry.py plays
    names = [load(write(folder, f"{index}.toml", piece)).program for index, piece in enumerate(pieces)]
    assert names == ["dlrm", "all_to_all", "collective", "powersgd", "dlrm"]


def test_loading_a_recommender_enters_at_most_2000_functions_and_changes_module_at_most_500_times() -> None:
    load("criteo_dlrm_2x4")  # tables are derived from their declarations once
    _, entered = modules_called(lambda: load("criteo_dlrm_2x4"))
    assert 500 < len(entered) <= 2000
    assert sum(a != b for a, b in pairwise(entered)) <= 500
