"""`python -m benchmarks.script_calls`: whether scripts call in the simulator what they call on gloo, byte for byte.

    python -m benchmarks.script_calls                                   # those of examples/scripts
    python -m benchmarks.script_calls --clones DIR --only installation  # others' too, from clones in DIR

Each script runs under plain torchrun, without anything of ours in its way: torch's profiler writes down which
collectives were called in which order (but for those that a hook's callbacks call), and which of how many elements
gloo has played. Then the simulator plays the same script, with the same arguments. Others' scripts are named by
repository, commit and hash, as their text stays theirs. TorchRec's need `make .venv-benchmarks/.installed` and that
environment's Python.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from reports.store import run_folder as store
from scenarios.seam.kernel import ELEMENT_BYTES

ROOT = Path(__file__).parents[1]
# Where rank r leaves what it has called: this and r.
FOUND = "TWINSTEP_CALLS"
STEPS = 4
_LONGEST_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script, and how it is run; of others' the repository, the commit and the SHA-256 of the file."""

    path: str
    args: Sequence[str] = ()
    ranks: int = 2
    hosts: int = 2
    needs: str = "torch"
    repository: str = ""
    commit: str = ""
    sha256: str = ""
    alone: bool = False  # from a folder of its own: beside it stands what it should find installed

    @property
    def name(self) -> str:
        """The file and its arguments."""
        return " ".join([Path(self.path).name, *self.args])


_OWN = ("--steps", str(STEPS))
_TORCHREC: dict[str, Any] = {
    "repository": "pytorch/torchrec",
    "commit": "a48cef79ebc333da92af1311c04b041ee21a8e75",
    "needs": "torchrec",
}
_DLRM = "examples/scripts/torchrec_dlrm.py"
SCRIPTS = (
    Script(path="examples/scripts/transformer_ddp.py", args=_OWN),
    Script(path=_DLRM, args=_OWN, ranks=4, needs="torchrec"),
    Script(path=_DLRM, args=("--pipeline", *_OWN), ranks=4, needs="torchrec"),
    Script(path=_DLRM, args=("--sharding", "mixed", *_OWN), ranks=4, needs="torchrec"),
    # After descriptions in PyTorch's examples and tutorials.
    Script(path="tests/data/scripts/ddp.py", args=("fp16",)),
    Script(path="examples/scripts/transformer_fsdp2.py", args=_OWN),
    Script(path="examples/scripts/transformer_fsdp2.py", args=("--hybrid", *_OWN), ranks=4),
    Script(path="examples/scripts/tensor_parallel.py", args=_OWN, ranks=4),
    Script(path="examples/scripts/pipeline_parallel.py", args=_OWN),
    Script(path="examples/scripts/zero.py", args=_OWN),
    Script(path="examples/scripts/local_sgd.py", args=("--steps", "8"), ranks=4),
    Script(path="examples/scripts/ring.py", args=_OWN, ranks=4, hosts=4),
    # TorchRec's own, as it is.
    Script(
        path="test_installation.py",
        args=("--cpu_only",),
        sha256="dd1201f360076854e43fdd2aa90634b59e00a041280dd6b83a7b12e9c9b8a9d3",
        alone=True,
        **_TORCHREC,
    ),
)

# A collective of torch's dispatcher as a verb of ours, of several tensors as of one: torch names both alike.
_VERBS = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce_coalesced",
    "broadcast_": "broadcast",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather_coalesced",
    "_allgather_base_": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced_": "all_gather_into_tensor",
    "reduce_": "reduce",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter_tensor",
    "alltoall_base_": "all_to_all_single",
    "alltoall_": "all_to_all",
    "gather_": "gather",
    "scatter_": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv_": "recv",
}


def main() -> int:
    """0: all scripts call the same; 1: one does not; rows on standard output."""
    if FOUND in os.environ:
        return _record(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clones", type=Path, help="where clones of others' repositories are, by name")
    parser.add_argument("--only", default="", help="scripts whose name and arguments contain this")
    options = parser.parse_args()
    wrong = 0
    for script in SCRIPTS:
        if options.only not in script.name:
            continue
        file = _file(script, options.clones)
        if file is None or find_spec(script.needs) is None:
            print(f"{script.name}: left out", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            said = _compare(script, file, Path(folder))
        wrong += said is not None
        print(f"{script.name}: {said or 'the same'}", flush=True)
    return 1 if wrong else 0


def _file(script: Script, clones: Path | None) -> Path | None:
    if not script.repository:
        return ROOT / script.path
    file = None if clones is None else clones / script.repository.rpartition("/")[2] / script.path
    if file is None or not file.is_file():
        return None
    if hashlib.sha256(file.read_bytes()).hexdigest() != script.sha256:
        raise SystemExit(f"{file}: expected the file of commit {script.commit}")
    return file


def _compare(script: Script, file: Path, folder: Path) -> str | None:
    """Return what is not the same."""
    if script.alone:
        file = Path(shutil.copy(file, folder))
    gpus = str(script.ranks // script.hosts)
    of_all = ["--nnodes", str(script.hosts), "--nproc-per-node", gpus, "--master-port", str(_free_port())]
    torchruns = [["torch.distributed.run", *of_all, "--node-rank", str(host), __file__] for host in range(script.hosts)]
    _run(torchruns, script, file, {FOUND: str(folder / "calls")})
    of_hosts = ["--hosts", str(script.hosts), "--gpus-per-host", gpus]
    of_run = ["--profile", "emulated_200mbit", "--steps", "1000", "--timeout", "10 min", "--out", str(folder / "run")]
    _run([["sim", *of_hosts, *of_run, "--quiet"]], script, file, {})
    spans = store.load(folder / "run").spans
    calls = spans[~spans["kind"].isin(["compute", "step"])].sort_values("sequence")
    for rank in range(script.ranks):
        real = json.loads((folder / f"calls{rank}").read_text())
        own = calls[calls["rank"] == rank]
        order, kinds = (
            [_VERBS[name] for name in real["called"]],
            own["kind"].str.replace("_tensor_coalesced", "_tensor"),
        )
        if list(kinds) != order:
            both = enumerate(zip_longest(kinds, order))
            place, (one, other) = next((place, pair) for place, pair in both if pair[0] != pair[1])
            return f"DIFFERENT on rank {rank}: call {place} of {len(order)} is {one} instead of {other}"
        sizes = [size // ELEMENT_BYTES[dtype] for size, dtype in zip(_bytes(own), own["dtype"], strict=True) if size]
        if Counter(sizes) != Counter(real["played"]):
            more, less = Counter(sizes) - Counter(real["played"]), Counter(real["played"]) - Counter(sizes)
            return f"DIFFERENT on rank {rank}: elements {dict(more)} instead of {dict(less)}"
    return None


def _bytes(spans: pd.DataFrame) -> list[int]:
    """What each call sends or, of a `recv` and a broadcast of another's, gets."""
    gets = (spans["kind"] == "recv") | ((spans["kind"] == "broadcast") & (spans["bytes_in"] == 0))
    return [int(size) for size in spans["bytes_out"].where(gets, spans["bytes_in"])]


def _record(command: Sequence[str]) -> int:
    """Run the script on this rank and write down what it calls."""
    dist.destroy_process_group = lambda *_: None  # which may hang after hooks' callbacks (torch 2.13, gloo)
    path, *sys.argv[1:] = command
    sys.argv[0] = path
    sys.path.insert(0, str(Path(path).resolve().parent))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled, suppress(SystemExit):
        runpy.run_path(path, run_name="__main__")
    called, played = [], []
    for event in sorted(profiled.events() or (), key=lambda event: event.time_range.start):
        library, _, name = event.name.partition("::")
        if library == "c10d" and name in _VERBS:
            called.append(name)
        elif event.name.startswith("gloo:"):
            played += [sum(math.prod(shape) for shape in event.input_shapes)] if event.input_shapes else []
    found = {"called": called, "played": [size for size in played if size]}
    Path(f"{os.environ[FOUND]}{os.environ['RANK']}").write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


def _run(modules: Sequence[Sequence[str]], script: Script, file: Path, environment: dict[str, str]) -> None:
    """All at once."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", *module, str(file), *script.args],
            cwd=ROOT,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for module in modules
    ]
    try:
        for module, process in zip(modules, processes, strict=True):
            said, _ = process.communicate(timeout=_LONGEST_S)
            if process.returncode:
                raise SystemExit(f"{script.name}: {module[0]} ended with {process.returncode}: {said[-2000:]}")
    finally:
        for process in processes:
            process.terminate()


def _free_port() -> int:
    with socket.create_server(("localhost", 0)) as server:
        return int(server.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
