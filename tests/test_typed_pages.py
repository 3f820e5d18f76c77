"""What README, tutorial and how-tos say is typed: every block, in its order, in one shell for each page."""

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

ROOT = Path(__file__).parent.parent
SHELL_BLOCK = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# tests/test_examples.py has the first; the others need a GPU, the package index, or Slurm.
LEFT_OUT_PAGES = ("own_program", "measure_one_gpu", "index", "install", "sweep_on_slurm")
HOW_TO = [path for path in sorted((ROOT / "docs/how_to").glob("*.md")) if path.stem not in LEFT_OUT_PAGES]
PAGES = ["README.md", "docs/tutorial/index.md", *(str(path.relative_to(ROOT)) for path in HOW_TO)]
# Other lines set up the clone, or are output.
COMMAND = re.compile(r"^(twinstep |python |torchrun |srun |new=)")
NEEDS_GPU = re.compile("--kernels --like dgx")
BEGIN = 'set -e\nsrun() { shift 2; "$@"; }\n'  # of a job of one node, which sets no variable
END = "\ntwinstep emulate down --all\n"


@pytest.mark.timeout(3600)
@pytest.mark.slow
@pytest.mark.real
@pytest.mark.emulated
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_typed_in_one_shell(page: str, clone: Path) -> None:
    text = (clone / page).read_text()
    typed = "".join(_shell(text))
    assert COMMAND.search(typed) or "<<'END'" in typed
    said = clone.parent / "said.txt"
    path = f"{clone.parent}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    times = 2 if page == "README.md" else 1  # nothing that it writes is in the way of itself
    with said.open("w") as output:
        done = subprocess.run(
            ["bash", "-x", "-c", BEGIN + times * typed + END],
            cwd=clone,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(clone)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=3000,
            check=False,
        )
    assert done.returncode == 0, said.read_text()[-5000:]
    assert "Traceback" not in said.read_text()


def test_the_tutorial_has_at_most_twelve_commands() -> None:
    text = (ROOT / "docs/tutorial/index.md").read_text()
    lines = [line for block in SHELL_BLOCK.findall(text) for line in block.splitlines()]
    assert len(lines) == 12
    assert sum("twinstep predict job.toml" in line for line in lines[:6]) == 1, "a first answer"


def test_the_readme_fits_one_screen() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert [line.split("#")[0].strip() for line in lines[2:5]] == ["make run", "make test", "make check"]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The tree as it is, with the files of a user's own that the pages name, and `twinstep` as a command beside it."""
    folder = tmp_path / "twinstep"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(lambda name: name and (ROOT / name).exists(), names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    for op, name in (("all_reduce", "all_reduce.txt"), ("all_to_all", "alltoall.txt")):
        (folder / name).write_text(log(op, measure(DGX, ops=(op,))))
    shutil.copy(ROOT / "tests/data/kineto_h200/rec_base.json.gz", folder / "gpu_trace.json.gz")
    for name in ("twinstep", "python"):
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        module = " -m twinstep" if name == "twinstep" else ""
        command.write_text(f'#!/bin/sh\nexec {sys.executable}{module} "$@"\n')
        command.chmod(0o755)
    return folder


def _here(line: str) -> bool:
    return torch.cuda.is_available() or not NEEDS_GPU.search(line)


def _shell(text: str) -> Iterator[str]:
    """Yield blocks as lines of a shell: fenced ones that begin with a file's name are written, Python is run."""
    at = {found.start(): found for found in (*FENCED.finditer(text), *SHELL_BLOCK.finditer(text))}
    inside = [range(*found.span()) for found in FENCED.finditer(text)]
    for start, found in sorted(at.items()):
        if found.re is FENCED:
            name = re.match(r"# (\S+\.\w+)\n", found[2])
            if name:
                yield f"cat > {name[1]} <<'END'\n{found[2]}END\n"
            elif found[1] == "python":
                yield f"python - <<'END'\n{found[2]}END\n"
        elif not any(start in span for span in inside):
            lines = [line.removeprefix("    ") for line in found[0].splitlines()]
            if lines[0].startswith(("import ", "from ")):
                yield "python - <<'END'\n" + "\n".join(lines) + "\nEND\n"
            else:
                yield "".join(f"{line}\n" for line in lines if COMMAND.search(line) and _here(line))
