"""What a script's ranks share: libraries loaded once, ahead of the fork, which know nothing of any rank."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import count
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scenarios.config.gpu import DEVICES
from scenarios.workloads.script import forking
from scenarios.workloads.script.forking import CHECKPOINTS, LATE, MODULES, SHARED, _leave, shared_modules, start_loading
from scenarios.workloads.script.process.subprocess_player import main

# Notes what a package asks of the environment and of torch.cuda while it is imported, and by which file.
_WATCHING = """
import importlib, os, sys, traceback
import torch, torch._dynamo
asked, get = set(), os._Environ.__getitem__
def noted(name, plain):
    def called(*args):
        frames = [each.filename for each in traceback.extract_stack() if "importlib" not in each.filename]
        asked.add((args[1] if name == "environ" else name, frames[-2]))
        return plain(*args)
    return called
os._Environ.__getitem__ = noted("environ", get)
for name in ("is_available", "device_count", "current_device", "get_device_capability"):
    setattr(torch.cuda, name, noted(name, getattr(torch.cuda, name)))
importlib.import_module(sys.argv[1])
ranks = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "CUDA_VISIBLE_DEVICES"}
of_gpus = {"is_available", "device_count", "current_device", "get_device_capability"}
for what, file in sorted(asked):
    # fbgemm_gpu asks for GPUs of AMD alone.
    if what in ranks or what in of_gpus and not (file.endswith("fbgemm_gpu/__init__.py") and not torch.version.hip):
        print(what, file)
"""


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted({*SHARED, *LATE.values(), *CHECKPOINTS}))
def test_a_shared_package_asks_for_no_rank_and_no_gpu_while_it_is_imported(package: str) -> None:
    if find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"{package} is not installed")
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _WATCHING, package], capture_output=True, text=True, check=True
    )
    assert found.stdout == ""


def test_modules_of_shared_packages_are_found_in_a_script_and_in_the_files_beside_it(tmp_path: Path) -> None:
    tmp_path.joinpath("train.py").write_text(
        "import os\nimport torch.nn as nn\nfrom pandas import DataFrame\nimport model\nfrom data.tables import rows\n"
        "def late():\n    import torchrec\n"
    )
    tmp_path.joinpath("model.py").write_text("from torchrec.models.dlrm import DLRM\nimport train\n")
    tmp_path.joinpath("data").mkdir()
    tmp_path.joinpath("data", "tables.py").write_text("import numpy, sklearn\nfrom . import other\n")
    found = shared_modules(tmp_path / "train.py")
    assert sorted(found) == ["numpy", "pandas", "torch.nn", "torchrec.models.dlrm"]


def test_a_package_beside_the_script_is_not_taken_for_the_installed_one(tmp_path: Path) -> None:
    tmp_path.joinpath("train.py").write_text("import torchrec.sparse\nimport pandas\nimport numpy\n")
    tmp_path.joinpath("pandas.py").write_text("import torch.nn\n")
    for name in ("torchrec", "numpy"):
        tmp_path.joinpath(name).mkdir()
    tmp_path.joinpath("torchrec", "__init__.py").write_text("")
    assert sorted(shared_modules(tmp_path / "train.py")) == ["numpy", "torch.nn"]


@pytest.mark.parametrize("text", ["import torch, (", "\0", ""])
def test_a_script_with_mistakes_shares_nothing(tmp_path: Path, text: str) -> None:
    tmp_path.joinpath("train.py").write_text(text)
    assert shared_modules(tmp_path / "train.py") == []
    assert shared_modules(tmp_path / "missing.py") == []


def test_ranks_with_gpus_start_from_a_server_that_has_loaded_what_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Server(forkserver.ForkServer):
        """A server whose processes are numbers."""

        _forkserver_pid: int | None
        numbers = count(1)

        def ensure_running(self) -> None:
            if self._forkserver_pid is None:
                self._forkserver_pid, self._forkserver_alive_fd = next(self.numbers), os.open(os.devnull, os.O_RDONLY)

    server: Any = Server()
    monkeypatch.setattr(forkserver, "_forkserver", server)
    monkeypatch.setattr(forkserver, "ensure_running", server.ensure_running)
    monkeypatch.setattr(forking, "_WITH_GPUS", set())
    script: Any = SimpleNamespace(path=tmp_path / "train.py")
    pids: list[int] = []
    for kind in ("cpu", "cuda", "cuda", "cpu"):
        gpu = SimpleNamespace(device=DEVICES[kind])
        scenario: Any = SimpleNamespace(cluster=SimpleNamespace(host=SimpleNamespace(gpu=gpu)))
        start_loading(scenario, script)
        pids.append(server._forkserver_pid)
    assert pids == [1, 2, 2, 2]
    _leave(server)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_modules_that_ranks_run_are_loaded_ahead(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script: Any = SimpleNamespace(path=tmp_path / "train.py")
    gpu = SimpleNamespace(device=DEVICES[kind])
    scenario: Any = SimpleNamespace(cluster=SimpleNamespace(host=SimpleNamespace(gpu=gpu)))
    named: list[str] = []
    monkeypatch.setattr(forking, "_WITH_GPUS", {vars(forkserver._forkserver)["_forkserver_pid"]})
    monkeypatch.setattr(forkserver, "ensure_running", lambda: named.extend(os.environ[MODULES].split()))
    start_loading(scenario, script)
    assert [name for name in named if find_spec(name) is None] == []
    assert main.__module__ in named


def test_modules_that_cannot_be_preloaded_are_skipped() -> None:
    code = "import sys, scenarios.workloads.script.process.loaded as loaded; print('colorsys' in sys.modules)"
    given = {**os.environ, MODULES: "no_such_module colorsys"}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=given)
    assert found.stdout == "True\n"
