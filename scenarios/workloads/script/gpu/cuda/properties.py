"""Properties of a simulated GPU for scripts: the profile's values, and those that its compute capability implies; and
the command nvidia-smi, which scripts run for logs and to choose sizes.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

_KIB = 1024
_MIB = 2**20
_DRIVER = "580.95.05"  # the first production branch with CUDA 13.0 (NVIDIA's release notes of CUDA 13.0)
# Needs only the standard library; prints "[N/A]" for unknown columns, as nvidia-smi does.
_PROGRAM = """import signal
import sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as other commands end where nobody reads on, behind `| head -1` say
rows = [{row} | {{"index": str(place)}} for place in range({count})]
given, words = {{}}, sys.argv[1:]
while words:
    name, _, value = words.pop(0).partition("=")
    name = {{"-i": "--id", "-L": "--list-gpus"}}.get(name, name)
    given[name] = value or (words.pop(0) if name in ("--id", "--format") and words else "")
known = ("--id", "--format", "--list-gpus", "--query-gpu", "--query-compute-apps")
unknown = [name for name in given if name not in known]
if unknown:
    sys.exit(f"nvidia-smi {{unknown[0]}}: expected one of {{', '.join(known)}} on simulated GPUs")
if "--id" in given:
    wanted = [each.strip() for each in given["--id"].split(",")]
    missing = [each for each in wanted if each not in [row["index"] for row in rows]]
    if missing:
        sys.exit(f"nvidia-smi --id={{given['--id']}}: expected numbers of GPUs from 0 to {{len(rows) - 1}}")
    rows = [row for row in rows if row["index"] in wanted]
runs = given.get("--query-compute-apps")
asked = given.get("--query-gpu") if runs is None else runs
shown = [name.strip() for name in (asked or "").split(",") if name.strip()]
units = dict.fromkeys(("memory.total", "memory.free", "memory.used", "used_memory", "used_gpu_memory"), " MiB")
layout = [word.strip() for word in given.get("--format", "").split(",")]
lines = []
if shown and "noheader" not in layout:
    lines.append(", ".join(name + (" [MiB]" if name in units else "") for name in shown))
for row in rows if runs is None else ():
    if shown:
        cells = [row.get(name, "[N/A]") + ("" if "nounits" in layout else units.get(name, "")) for name in shown]
        lines.append(", ".join(cells))
    else:
        lines.append(f"GPU {{row['index']}}: {{row['name']}} (simulated), {{row['memory.total']}} MiB")
if lines:
    print("\\n".join(lines))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGpu:
    """A host's GPUs as a script sees them.

    Attributes:
        count: the number of GPUs.
        l2_bytes: the part of L2 that caches one kernel's data.
        l2_total_bytes: the size of L2.
        has_values: whether tensors are computed.
        capability: the compute capability.
        multiprocessors: the number of multiprocessors; None if the profile does not say.
    """

    count: int
    name: str
    memory_bytes: int
    l2_bytes: float
    l2_total_bytes: int
    has_values: bool
    capability: tuple[int, int]
    multiprocessors: int | None


# By compute capability: threads and bytes of shared memory per multiprocessor (CUDA C++ Programming Guide, table
# "Technical Specifications per Compute Capability").
_OF_MULTIPROCESSOR = {
    (7, 0): (2048, 96 * _KIB),
    (7, 5): (1024, 64 * _KIB),
    (8, 0): (2048, 164 * _KIB),
    (8, 6): (1536, 100 * _KIB),
    (8, 9): (1536, 100 * _KIB),
    (9, 0): (2048, 228 * _KIB),
    (10, 0): (2048, 228 * _KIB),
    (10, 3): (2048, 228 * _KIB),
    (12, 0): (1536, 100 * _KIB),
}
# CUDA reserves 1 KiB of a block's shared memory since compute capability 8.0 (the same guide).
_KEPT_BYTES = _KIB


class Properties:
    """The result of `torch.cuda.get_device_properties` for a simulated GPU.

    Raises:
        AttributeError: neither profile nor compute capability gives the value; the message is one sentence.
    """

    def __init__(self, gpu: SeenGpu) -> None:
        major, minor = gpu.capability
        threads, shared_bytes = _OF_MULTIPROCESSOR[gpu.capability]
        self.name, self.total_memory = gpu.name, gpu.memory_bytes
        self.major, self.minor = major, minor
        self.is_integrated = self.is_multi_gpu_board = 0
        # These rows of the guide's table are equal for all of these compute capabilities.
        self.warp_size, self.max_threads_per_block, self.regs_per_multiprocessor = 32, 1024, 65_536
        self.shared_memory_per_block = 48 * _KIB
        self.max_threads_per_multi_processor = threads
        self.shared_memory_per_multiprocessor = shared_bytes
        self.shared_memory_per_block_optin = shared_bytes - (_KEPT_BYTES if major >= 8 else 0)
        if gpu.multiprocessors is not None:
            self.multi_processor_count = gpu.multiprocessors
        if gpu.l2_total_bytes:
            self.L2_cache_size = gpu.l2_total_bytes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        key = {"multi_processor_count": "multiprocessors", "L2_cache_size": "l2"}.get(name)
        expected = "" if key is None else f": expected cluster.gpu.{key}"
        raise AttributeError(f"torch.cuda.get_device_properties: {name} is not in the profile of {self.name}{expected}")

    def __repr__(self) -> str:
        return f"_CudaDeviceProperties({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def install_smi(folder: Path, gpu: SeenGpu) -> None:
    """Create an nvidia-smi in `folder`, and put the folder first on this process's PATH.

    The command lists the host's simulated GPUs, answers `--query-gpu`, and reports no processes for
    `--query-compute-apps`. `--id` and `--format` work; other options are errors.
    """
    total_mib = str(gpu.memory_bytes // _MIB)
    row = {
        "name": gpu.name,
        "count": str(gpu.count),
        "memory.total": total_mib,
        "memory.free": total_mib,
        "memory.used": "0",
        "driver_version": _DRIVER,
        "compute_cap": ".".join(map(str, gpu.capability)),
    }
    folder.mkdir(exist_ok=True)
    command, program = folder / "nvidia-smi", folder / "nvidia-smi.py"
    program.write_text(_PROGRAM.format(row=row, count=gpu.count))
    # A "#!" line allows no blanks in the path of Python, so a shell script calls it.
    command.write_text(f'#!/bin/sh\nexec {quote(sys.executable)} -S {quote(str(program.absolute()))} "$@"\n')
    command.chmod(0o755)
    os.environ["PATH"] = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
