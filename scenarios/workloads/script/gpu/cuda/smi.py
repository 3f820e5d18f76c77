"""The command nvidia-smi, which scripts run for logs and to choose sizes: it lists the simulated GPUs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shlex import quote

from scenarios.workloads.script.gpu.cuda.properties import SeenGpu

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
