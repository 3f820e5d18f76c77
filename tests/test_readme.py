"""What the README says is typed: every block, in its order, twice, in one shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.reports.nccl.test_fit import DGX, log, measure

pytestmark = [pytest.mark.timeout(3600), pytest.mark.slow, pytest.mark.real, pytest.mark.emulated]

ROOT = Path(__file__).parent.parent
SHELL_BLOCK = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
TOML_BLOCK = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What the test has done already, or needs what is not everywhere.
LEFT_OUT = re.compile(
    r"^(make |\. \.venv|python -m pip )" + ("" if torch.cuda.is_available() else "|--kernels --like dgx")
)
BEGIN = 'set -e\nsrun() { shift 2; "$@"; }\n'  # of a job of one node, which sets no variable
END = "\npython -m real emulate down --all\n"


def test_the_readme_can_be_typed_twice_in_one_shell(clone: Path) -> None:
    text = (clone / "README.md").read_text()
    (clone / "my.toml").write_text("".join(TOML_BLOCK.findall(text)))
    typed = "".join(_shell(text))
    assert typed.count("python -m") > 20
    said = clone.parent / "said.txt"
    with said.open("w") as output:
        done = subprocess.run(
            ["bash", "-x", "-c", BEGIN + typed + typed + END],
            cwd=clone,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(clone)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=3000,
            check=False,
        )
    assert done.returncode == 0, said.read_text()[-5000:]
    assert "Traceback" not in said.read_text()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The tree as it is, and the files of a user's own that the README names."""
    folder = tmp_path / "twinstep"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    for op, name in (("all_reduce", "all_reduce.txt"), ("all_to_all", "alltoall.txt")):
        (folder / name).write_text(log(op, measure(DGX, ops=(op,))))
    shutil.copy(ROOT / "tests/data/kineto/gpu_rank0.json", folder / "trace.json")
    shutil.copy(ROOT / "tests/data/kineto_h200/rec_base.json.gz", folder / "steps.json.gz")
    return folder


def _shell(text: str) -> Iterator[str]:
    """The indented blocks as lines of a shell; Python's are given to python."""
    for block in SHELL_BLOCK.findall(TOML_BLOCK.sub("", text)):
        lines = [line.removeprefix("    ") for line in block.splitlines()]
        if lines[0].startswith(("import ", "from ")):
            yield "python - <<'END'\n" + "\n".join(lines) + "\nEND\n"
        else:
            yield "".join(f"{line}\n" for line in lines if not LEFT_OUT.search(line))
