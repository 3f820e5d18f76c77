"""However strange a file is, it gives a scenario or whole sentences, and it gives them soon."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from scenarios.config.load import load, load_profile
from scenarios.workloads.dlrm.ids.file import read_bags
from tests.mistakes import mistakes_of
from tests.scenarios.config.toml.bad_pieces import CLUSTER, DLRM, EXCHANGE, INLINE, PROFILES, edit
from tests.small import model_of

TOP_KEYS = (
    "name, description, include, set, measured, program, run, job, cluster, model, sharding, buckets,"
    " compression, pipeline, data, launching, qcomms, replication, dense_parallel, exchange, collective, gradients,"
    " script, recording, chakra"
)
DEEP = "expected tables and arrays nested at most 32 deep"
FROM_FILE = edit(DLRM, "ids_per_sample = 1", "ids = {file = 'ids.csv'}")


def sentences(text: str, **others: str) -> list[str]:
    """Return what is said of odd.toml, beside which `others` stand as NAME.toml."""
    for name, content in {"odd": text, **others}.items():
        Path(f"{name}.toml").write_text(content)
    return mistakes_of(load, "odd.toml")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "place", "known"),
    [
        ('"<foo>" = 3\n' + EXCHANGE, "'<foo>' = 3", TOP_KEYS),
        ('"<zipf>" = 3\n' + EXCHANGE, "'<zipf>' = 3", TOP_KEYS),
        (EXCHANGE + '["<foo>"]\n', "'<foo>' = {}", TOP_KEYS),
        (EXCHANGE + '"<foo>" = 3\n', "exchange.'<foo>' = 3", "size, splits, skew, dtype"),
        (
            EXCHANGE + '[run]\n"<number>" = 3\n',
            "run.'<number>' = 3",
            "steps, seed, batch_size, payload, fidelity, ranks, library, timeout, compute_times, balanced",
        ),
        (DLRM + 'ids = {zipf = 1, "<zipf>" = 3}\n', "model.tables[0].ids.'<zipf>' = 3", "zipf, order, bags"),
        (DLRM + "ids = {zipf = 1, word = 3}\n", "model.tables[0].ids.word = 3", "zipf, order, bags"),
        (edit(DLRM, "ids_per_sample = 1", "ids_per_sample = {mean = 1, table = 2}"), "", "mean"),
        (EXCHANGE + f"{'k' * 80} = 3\n", f"exchange.{'k' * 57}... = 3", "size, splits, skew, dtype"),
    ],
)
def test_any_unknown_key_is_named_by_itself(text: str, place: str, known: str) -> None:
    place = place or "model.tables[0].ids_per_sample.table = 2"
    assert sentences(text) == [f"odd.toml: {place}: unknown key; expected one of {known}"]


@pytest.mark.usefixtures("folder")
def test_a_file_that_is_included_on_many_ways_is_read_once_and_its_mistake_said_once() -> None:
    levels = {f"d{level}": f'include = ["d{level + 1}.toml", "./d{level + 1}.toml"]\n' for level in range(40)}
    start = time.process_time()
    assert sentences('include = ["d0.toml", "d20.toml"]\n', **levels, d40="a = \n") == [
        "d40.toml: line 1, column 5: expected valid TOML, found: Invalid value"
    ]
    assert time.process_time() - start < 5
    Path("d40.toml").write_text(EXCHANGE)
    assert load("odd.toml").program == "all_to_all"


@pytest.mark.usefixtures("folder")
def test_includes_end_at_64_files() -> None:
    levels = {f"c{level}": f'include = "c{level + 1}.toml"\n' for level in range(600)}
    assert sentences('include = "c0.toml"\n', **levels, c600=EXCHANGE) == [
        "c62.toml: include = 'c63.toml': expected at most 64 files, each included by the one before"
    ]
    Path("c62.toml").write_text(EXCHANGE)
    assert load("odd.toml").program == "all_to_all"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"a = {'[' * 3000}{']' * 3000}\n", DEEP),
        (f"a = {'{a = ' * 2000}1{'}' * 2000}\n", DEEP),
        (f"b = 1\na{'.a' * 2999} = 1\n", f"a: {DEEP}"),
        (f"[a{'.a' * 2999}]\n", f"a: {DEEP}"),
        (f"a = {'[' * 33}{']' * 33}\n", f"a: {DEEP}"),
    ],
)
def test_values_nest_32_deep_at_most(text: str, sentence: str) -> None:
    assert sentences(text) == [f"odd.toml: {sentence}"]


@pytest.mark.usefixtures("folder")
def test_values_that_nest_32_deep_are_read() -> None:
    shown = f"{'[' * 31}{']' * 26}..."
    assert sentences(f"{EXCHANGE}a = {'[' * 31}{']' * 31}\n") == [
        f"odd.toml: exchange.a = {shown}: unknown key; expected one of size, splits, skew, dtype"
    ]


@pytest.mark.usefixtures("folder")
def test_integers_may_be_of_any_length() -> None:
    whole = "expected a whole number of at most 1048576"
    assert sentences(edit(EXCHANGE, "hosts = 2", f"hosts = 0x{'f' * 5000}")) == [
        f"odd.toml: cluster.hosts = 0x{'f' * 55}...: {whole}"
    ]
    assert sentences(edit(EXCHANGE, "hosts = 2", f"hosts = {'7' * 300}")) == [
        f"odd.toml: cluster.hosts = {'7' * 57}...: {whole}"
    ]
    assert sentences(f"# {'7' * 4000}\n\n" + edit(EXCHANGE, "hosts = 2", f"hosts = {'7_' * 4999}7")) == [
        "odd.toml: line 6, column 9: expected valid TOML, found: A number of 5000 digits"
    ]


@pytest.mark.usefixtures("folder")
def test_a_byte_order_mark_is_no_mistake() -> None:
    Path("odd.toml").write_text("\ufeff" + FROM_FILE)
    Path("ids.csv").write_text("\ufeff1 2\n")
    model = model_of(load("odd.toml"))
    assert model is not None
    assert model.tables[0].ids_per_sample == 2


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("cluster", "profile", "wanted"),
    [
        ('profile = "p.toml"', "cluster = 3\n", ["p.toml: cluster = 3: expected a table"]),
        (
            'profile = "p.toml"',
            "cluster = \n",
            ["p.toml: line 1, column 11: expected valid TOML, found: Invalid value"],
        ),
        (
            'profile = "p.toml"',
            'program = "dlrm"\n[cluster]\nprofile = "dgx_h100"\n',
            [
                "p.toml: program = 'dlrm': unknown key; expected one of description, cluster, measured",
                "p.toml: cluster.profile = 'dgx_h100': expected no profile within a profile",
            ],
        ),
        ('profile = "p.toml"', 'include = "q.toml"\n', ["p.toml: include = 'q.toml': expected q.toml to be a file"]),
        ('profile = "odd.toml"', "", ["odd.toml: cluster.profile = 'odd.toml': expected a file other than this one"]),
        ("profile = 3", "", ["odd.toml: cluster.profile = 3: expected a profile's name, or a path that ends in .toml"]),
        (
            'profile = ""',
            "",
            ["odd.toml: cluster.profile = '': expected a profile's name, or a path that ends in .toml"],
        ),
        (
            'profile = "tpu"',
            "",
            [f"odd.toml: cluster.profile = 'tpu': expected one of {PROFILES}, or a path that ends in .toml"],
        ),
        (
            'profile = "a\\u0000\\nb.toml"',
            "",
            [r"odd.toml: cluster.profile = 'a\x00\nb.toml': expected 'a\x00\nb.toml' to be a file"],
        ),
    ],
)
def test_keys_of_an_invalid_profile_are_not_reported_missing(cluster: str, profile: str, wanted: list[str]) -> None:
    text = f'program = "all_to_all"\n[cluster]\n{cluster}\n[exchange]\n'
    missing = "odd.toml: exchange.size: missing; expected a size such as '80 GiB'"
    assert sorted(sentences(text, p=profile)) == sorted([*wanted, missing])


@pytest.mark.usefixtures("folder")
def test_a_profile_alone_is_said_to_be_no_table_once() -> None:
    Path("p.toml").write_text("cluster = 3\n")
    assert mistakes_of(load_profile, "p.toml") == ["p.toml: cluster = 3: expected a table"]


@pytest.mark.usefixtures("folder")
def test_a_profile_may_be_a_part_of_the_scenario() -> None:
    Path("p.toml").write_text(INLINE)
    Path("odd.toml").write_text('include = "p.toml"\n' + edit(EXCHANGE, "cpu_local", "p.toml"))
    assert load("odd.toml").cluster.profile == "p"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("pipe", "expected pipe to be a file"),
        ("/dev/zero", "expected /dev/zero to be a file"),
        (".", "expected . to be a file"),
        (r"a\u0000b", r"expected 'a\x00b' to be a file"),
        ("", "expected a path relative to this file"),
    ],
)
def test_ids_come_from_a_file_and_nothing_else(name: str, wanted: str) -> None:
    os.mkfifo("pipe")
    text = edit(FROM_FILE, "'ids.csv'", f'"{name}"')
    shown = name.replace("u0000", "x00")
    assert sentences(text) == [f"odd.toml: model.tables[0].ids.file = '{shown}': {wanted}"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("program", "key", "what"),
    [
        ("program = 'script'\nscript.path = 'code.py'", "script.path = 'code.py'", "a script"),
        ("program = './code.py:Train'", "program = './code.py:Train'", "a file of Python"),
    ],
    ids=["script", "program"],
)
def test_python_that_is_no_file_is_named(program: str, key: str, what: str) -> None:
    text = f"{program}\ncluster = {{profile = 'cpu_local', hosts = 2}}\n"
    code = Path("code.py")
    for make, reason in ((os.mkfifo, "not a regular file"), (os.mkdir, "Is a directory")):
        make(code)
        file = code if what == "a script" else code.absolute()
        assert sentences(text) == [f"odd.toml: {key}: expected {what}, but {file} could not be read: {reason}"]
        code.rename(reason)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("1 \u20282\n", r"ids from 0 to 9, separated by spaces, but line 1 has '\u20282'"),
        ("1\u00a02\n", r"ids from 0 to 9, separated by spaces, but line 1 has '1\xa02'"),
        ("1\n\u0663\n", "ids from 0 to 9, separated by spaces, but line 2 has '\u0663'"),
        ("1\n" + "x" * 500, f"ids from 0 to 9, separated by spaces, but line 2 has '{'x' * 56}..."),
    ],
)
def test_a_wrong_id_is_shown_in_short(folder: Path, content: str, sentence: str) -> None:
    (folder / "ids.csv").write_text(content)
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared
        read_bags(folder / "ids.csv", 10)
    assert str(error.value) == sentence


def test_only_a_newline_ends_a_bag(folder: Path) -> None:
    (folder / "ids.csv").write_bytes(b"1 \x0c2\r\n\n\t3\x0b4 \n")
    assert read_bags(folder / "ids.csv", 10) == [[1, 2], [], [3, 4]]
    (folder / "ids.csv").write_bytes(b"1\n2")
    assert read_bags(folder / "ids.csv") == [[1], [2]]


@pytest.mark.usefixtures("folder")
def test_an_include_is_named_in_one_line() -> None:
    assert sentences(f'include = "a\\nb.toml"\n{CLUSTER}') == [
        r"odd.toml: include = 'a\nb.toml': expected 'a\nb.toml' to be a file"
    ]
