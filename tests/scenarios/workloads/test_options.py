"""A program's own section: a dataclass or a pydantic model of the user's, checked like ours."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from scenarios.config.load import load
from scenarios.workloads.build import build
from sim.run import simulate
from tests.scenarios.workloads.own import sentences, train, write_scenario

ABOVE = """
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal
from pydantic import BaseModel, field_validator
from scenarios.config.toml.section import Section
from scenarios.config.toml.values import Duration, Size
ELEMENTS = 4

class Mode(Enum):
    FAST = "fast"
    SLOW = "slow"
"""
FIELDS = """
class Layer{base}:
    width: int
    mode: Mode = Mode.FAST

{decorator}
class Settings{base}:
    layers: list[Layer]
    bucket: Size = "2 MiB"
    warm: Duration | None = None
    kind: Literal["a", "b"] = "a"
    shape: tuple[int, ...] = (1, 2)
    rate: float | str = 0.5
"""
KINDS = {
    "dataclass": ABOVE + "\n@dataclass" + FIELDS.format(base="", decorator="@dataclass(frozen=True)"),
    "pydantic": ABOVE + FIELDS.format(base="(BaseModel)", decorator=""),
    "section": ABOVE + FIELDS.format(base="(Section)", decorator=""),
}
BODY = 'Options = Settings\nsection = "train"'
SOUND = """
[train]
warm = "3 ms"
shape = [3, 4]
[[train.layers]]
width = 8
mode = "slow"
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_section_of_the_users_own_class_and_name(tmp_path: Path, kind: str) -> None:
    scenario = load(write_scenario(tmp_path, train(KINDS[kind], BODY), further=SOUND))
    options = scenario.options
    assert type(options).__name__ == "Settings"
    assert (options.bucket, options.warm, options.shape, options.kind) == (2 << 20, 3_000_000, (3, 4), "a")
    assert [(layer.width, layer.mode.value) for layer in options.layers] == [(8, "slow")]
    assert len(simulate(scenario, build(scenario)).spans) == 8  # a step and an all-reduce, of two steps and ranks
    as_dict = scenario.as_dict()["options"]
    assert as_dict["layers"] == [{"width": 8, "mode": "slow"}]
    assert as_dict["shape"] == [3, 4]
    copy = pickle.loads(pickle.dumps(scenario))
    assert copy.options == options
    assert type(copy.options) is type(options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("bucket = 7", "train.bucket = 7: expected a size such as '80 GiB'"),
        ("kind = 'c'", "train.kind = 'c': expected 'a' or 'b'"),
        ("shape = ['x']", "train.shape[0] = 'x': expected a valid integer"),
        ("shape = 3", "train.shape = 3: expected an array"),
        ("rate = []", "train.rate = []: expected a valid number or a valid string"),
        ("layers = [{width = '8'}]", "train.layers[0].width = '8': expected a valid integer"),
        ("layers = [{width = 8, mode = 'on'}]", "train.layers[0].mode = 'on': expected 'fast' or 'slow'"),
        ("layers = [{width = 8, with = 1}]", "train.layers[0].with = 1: unknown key; expected one of width, mode"),
        ("layers = [{}]", "train.layers[0].width: missing; expected a value"),
        ("layers = [3]", "train.layers[0] = 3: expected a table"),
    ],
)
def test_a_wrong_value_is_a_sentence(tmp_path: Path, kind: str, line: str, sentence: str) -> None:
    further = f"[train]\n{line}\n" + ("" if line.startswith("layers") else "layers = []\n")
    assert sentences(write_scenario(tmp_path, train(KINDS[kind], BODY), further=further)) == [sentence]


def test_without_a_required_key_an_item_that_is_no_table_is_found_too(tmp_path: Path) -> None:
    above = (
        ABOVE + "\n@dataclass\nclass S:\n    rounds: int\n    layers: list['L']\n@dataclass\nclass L:\n    width: int"
    )
    assert sentences(write_scenario(tmp_path, train(above, "Options = S"), further="[options]\nlayers = [3]")) == [
        "options.layers[0] = 3: expected a table",
        "options.rounds: missing; expected a value",
    ]


def test_messages_of_a_classs_own_checks_follow_the_word_expected(tmp_path: Path) -> None:
    checked = (
        ABOVE
        + """
@dataclass
class Settings:
    rounds: int = 1
    def __post_init__(self):
        if self.rounds > 8:
            raise ValueError("at most 8 rounds")
"""
    )
    path = write_scenario(tmp_path, train(checked, "Options = Settings"), further="[options]\nrounds = 9")
    assert sentences(path) == ["options = {rounds = 9}: expected at most 8 rounds"]


RAISES = """
    def __post_init__(self):
        if self.rounds == 1:
            raise ValueError("more than one round")
        self.share = 1 / self.rounds
"""


def test_what_a_class_raises_is_a_sentence_with_values_and_without_a_section(tmp_path: Path) -> None:
    code = train(ABOVE + "\n@dataclass\nclass Settings:\n    rounds: int = 1" + RAISES, "Options = Settings")
    reason = "a table, because the defaults of Settings are not more than one round"
    assert sentences(write_scenario(tmp_path, code)) == [f"options: missing; expected {reason}"]
    (sentence,) = sentences(write_scenario(tmp_path, code, further="[options]\nrounds = 0"))
    raised = "values that Settings takes, but it raised ZeroDivisionError: division by zero"
    assert sentence.startswith(f"options = {{rounds = 0}}: expected {raised} (at {tmp_path / 'train_step.py'}:")


def test_a_dataclass_of_pydantic_keeps_a_default_that_is_not_of_its_type(tmp_path: Path) -> None:
    fields = "    names: list[str] = None\n    declared_by: int = 1"
    above = f"{ABOVE}\nimport pydantic\n@pydantic.dataclasses.dataclass\nclass Settings:\n{fields}"
    options: Any = load(write_scenario(tmp_path, train(above, BODY), further="[train]\ndeclared_by = 2")).options
    assert (options.names, options.declared_by) == (None, 2)
    with_size = "@pydantic.dataclasses.dataclass\nclass Settings:\n    bucket: Size = '2 MiB'"
    path = write_scenario(
        tmp_path, train(f"{ABOVE}\nimport pydantic\n{with_size}", BODY), further="[train]\nbucket = '1 B'"
    )
    assert sentences(path) == ["train = {bucket = '1 B'}: expected a size such as '80 GiB'"]


def test_defaults_are_there_without_a_section(tmp_path: Path) -> None:
    fields = "    bucket: Size = '2 MiB'\n    names: list[str] = field(default_factory=list)"
    above = f"{ABOVE}\n@dataclass\nclass Settings:\n{fields}"
    options: Any = load(write_scenario(tmp_path, train(above, BODY))).options
    assert (options.bucket, options.names) == (2 << 20, [])


@pytest.mark.parametrize(
    ("above", "body", "expected"),
    [
        ("@dataclass\nclass S:\n    rounds: int = 'x'", "Options = S", "S.rounds = 'x': expected a valid integer"),
        (
            "@dataclass\nclass S:\n    at: object = None\n    on: Train = None",
            "Options = S",
            "name 'Train' is not defined",
        ),
        ("class T: pass\n@dataclass\nclass S:\n    on: T = None", "Options = S", "but S cannot be read: Unable to"),
        ("class S(BaseModel):\n    on: 'T' = None", "Options = S", "but S cannot be read: name 'T' is not defined"),
        ("", "reads = None", "some of 'buckets', 'compression', 'run.batch_size', but those of"),
        ("class S:\n    pass", "Options = S", "a dataclass or a pydantic model, but S is neither"),
        ("", "Options = 7", "a dataclass or a pydantic model, but those of ./train_step.py:Train are 7"),
        ("", "section = 'run'", "a section of a name that is not taken, but Train.section is 'run'"),
        ("", "section = 'model'", "a section of a name that is not taken, but Train.section is 'model'"),
        ("", "section = 'my section'", "a section that is a name, but Train.section is 'my section'"),
        ("", "reads = ('bucket',)", "some of 'buckets', 'compression', 'run.batch_size', but those of"),
    ],
)
def test_a_wrong_declaration_is_a_sentence(tmp_path: Path, above: str, body: str, expected: str) -> None:
    (sentence,) = sentences(write_scenario(tmp_path, train(ABOVE + above, body)))
    assert expected in sentence
    assert sentence.startswith("program = './train_step.py:Train': expected ")


def test_an_unknown_program_does_not_make_its_section_unknown(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, further="[train]\nx = 1")
    assert sentences(path) == [
        f"program = './train_step.py:Train': expected a file of Python that is there, but there is no"
        f" {tmp_path / 'train_step.py'}"
    ]


def test_a_program_reads_our_tables_too(tmp_path: Path) -> None:
    code = train(body='reads = ("buckets", "compression", "run.batch_size")')
    further = "[buckets]\nfirst = '4 MiB'\n[compression]\nkind = 'batched_powersgd'"
    scenario = load(write_scenario(tmp_path, code, further=further, run=", batch_size = 32"))
    assert (scenario.workload.buckets.first_bytes, scenario.workload.compression.kind) == (4 << 20, "batched_powersgd")
    assert scenario.run.batch_size == 32
    assert sentences(write_scenario(tmp_path, code)) == [
        "run.batch_size: missing; expected a whole number of at least 1"
    ]
    assert "unknown key" in sentences(write_scenario(tmp_path, train(), further=further))[0]
