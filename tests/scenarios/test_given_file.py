"""The one door for files that are handed in: what comes through, and what is refused before it takes time or memory."""

from __future__ import annotations

import gzip
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scenarios import given_file
from tests.commands import command


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe.toml"
    os.mkfifo(path)
    return path


def test_text_comes_without_its_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\r\n")
    assert given_file.text(tmp_path / "a") == "a\r\n"
    with pytest.raises(OSError, match="larger than 0 MiB"):
        given_file.content(tmp_path / "a", 3)


def test_pipes_and_devices_are_no_files(pipe: Path) -> None:
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            given_file.content(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[" * 200_000, "nested too deep"),
        (b'{"a": \xff}', "byte 6 is not UTF-8"),
        (b"{", "Expecting property name"),
    ],
    ids=["deep", "letters", "torn"],
)
def test_json_that_cannot_be_read_is_a_phrase(data: bytes, said: str) -> None:
    for given in (data, gzip.compress(data)):
        with pytest.raises(ValueError, match=said):
            given_file.parse_json(given_file.unpack(given))


def test_an_integer_beyond_all_floats_is_infinite() -> None:
    assert given_file.parse_json(b"[" + b"9" * 5000 + b", " + b"9" * 308 + b"]") == [math.inf, int("9" * 308)]


def test_damaged_and_endless_gzip_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(os.urandom(1000))
    for data in (packed[:-10], packed[:20] + bytes([packed[20] ^ 255]) + packed[21:]):
        with pytest.raises(ValueError, match="not readable as gzip"):
            given_file.unpack(data)
    monkeypatch.setattr(given_file, "_UNSUSPICIOUS", 1 << 20)
    with pytest.raises(ValueError, match="unpacks to more than 1 MiB"):
        given_file.unpack(gzip.compress(bytes(4 << 20)))


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "/"])
def test_no_command_reads_what_is_no_file(kind: str, pipe: Path, tmp_path: Path) -> None:
    given = pipe if kind == "pipe" else Path(kind)
    bare = 'program = "all_to_all"\nexchange = {size = "1 MiB"}\n'
    including, planned = tmp_path / "including.toml", tmp_path / "planned.toml"
    including.write_text(f'include = "{given}"\n{bare}')
    planned.write_text(f'include = "twrw_2x2"\nsharding = {{plan = "{given}"}}\n')
    words: list[tuple[Any, ...]] = [
        ("scenarios", "check", given),
        ("scenarios", "check", including),
        ("scenarios", "check", planned),
        ("sim", "sweep", given),
        ("reports", "kineto", given, "--out", tmp_path / "out"),
        ("reports", "published", given),
        ("reports", "show", given),
    ]
    for line in words:
        done = command(*line)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), (line, done.stderr)
        assert str(given) in done.stderr, done.stderr


@pytest.mark.parametrize("value", ["{}", "[{}]", "{groups = [{}]}"])
@pytest.mark.parametrize("key", ["include", "set", "measured"])
def test_keys_that_only_files_may_have_cannot_be_overridden(key: str, value: str) -> None:
    done = command("sim", "criteo_small_2x2", "--set", f"{key}={value}", "--quiet")
    assert done.returncode == 2
    assert done.stderr.startswith(f"{key} = {value}: cannot be overridden; expected one of ")


@pytest.mark.parametrize("module", ["scenarios", "sim", "reports", "twinstep"])
def test_a_working_directory_that_is_gone_is_one_sentence(module: str, tmp_path: Path) -> None:
    line = f"mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir {tmp_path}/gone; exec {sys.executable} -m {module} list"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "the working directory is gone; expected to be started in one that is there\n"
