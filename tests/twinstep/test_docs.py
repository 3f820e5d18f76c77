"""`twinstep docs` prints, lists and finds pages, and every page that a text of ours names is there."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from scenarios.config.toml.document import editors_document
from twinstep.docs.cli import main, pages
from twinstep.studies.study_file import _StudyFile

ROOT = Path(__file__).parents[2]
GENERATED = {"docs/reference/keys.md", "docs/reference/commands.md", "docs/reference/profiles.md"}


def test_a_page_is_printed_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seam"]) == main(["contributing/seam"]) == 0
    page = (ROOT / "docs/contributing/seam.md").read_text()
    assert capsys.readouterr().out == page * 2


def test_keys_and_profiles_are_what_the_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys"]) == 0
    assert "| `batch_size` |" in capsys.readouterr().out


def test_without_a_word_every_page_is_listed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    rows = [row.split(" | ") for row in capsys.readouterr().out.splitlines() if row.startswith("| ")][1:]
    names = [name for _, name, _ in rows]
    assert len(names) == len(set(names)) == len(pages()) > 30
    assert all(title.removesuffix(" |") for *_, title in rows)


def test_pages_about_words_come_with_the_most_about_them_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chakra", "traces"]) == 0
    assert capsys.readouterr().out.splitlines()[4].startswith("| chakra | Chakra execution traces |")


def test_a_word_that_no_page_has_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quetzal"]) == 2
    assert capsys.readouterr() == ("", "quetzal: no page has it; 'twinstep docs' lists the pages\n")


def test_every_page_that_a_text_names_is_there() -> None:
    names = {page.name for page in pages()} | {"keys", "profiles"}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = {name: (ROOT / name).read_text() for name in listed if re.search(r"\.(py|toml|md|js|html|tex)$", name)}
    found = 0
    for name, text in texts.items():
        if name in ("CHANGELOG.md", "tests/twinstep/test_docs.py"):  # history, and this file
            continue
        paths = {*re.findall(r"(?<![\w/.])docs/[\w/]+\.(?:md|py)\b", text)} - GENERATED
        assert [path for path in paths if not (ROOT / path).is_file()] == [], name
        named = set(re.findall(r"twinstep docs ([a-z]\w*)", text))
        assert named <= names, name
        found += len(paths) + len(named)
    assert found > 50


def test_every_toml_block_has_keys_and_values_of_its_kind_of_file() -> None:
    blocks = [
        block for page in pages() for block in re.findall(r"^```toml\n(.*?)^```", page.text, re.DOTALL | re.MULTILINE)
    ]
    files = [tomllib.loads(block) for block in blocks]
    own = [file for file in files if "train" in file]  # a section of a user's, which workloads/test_registry.py plays
    assert len(own) == 1
    studies = [file for file in files if file.keys() & {"scenario", "stages"}]
    for file in studies:
        _StudyFile.model_validate(file)
    for file in files:
        if file not in studies + own:
            editors_document().model_validate(file)
    assert len(studies) >= 5
    assert len(files) > 15
