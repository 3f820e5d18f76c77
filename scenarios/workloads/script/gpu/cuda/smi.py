"""The command nvidia-smi, which scripts run for their logs and to choose sizes: it says which GPUs are simulated."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from scenarios.workloads.script.gpu.cuda.properties import SeenGpu

_MIB = 2**20
_DRIVER = "580.95.05"  # the first production branch with CUDA 13.0 (NVIDIA's release notes of CUDA 13.0)
# Runs on the standard library alone; as nvidia-smi does, says "[N/A]" of a column that it does not know.
_COMMAND = """#!{python}
import sys
rows = [{row} | {{"index": str(place)}} for place in range({count})]
given = dict(word.partition("=")[::2] for word in sys.argv[1:])
shown = [name.strip() for name in given.get("--query-gpu", "").split(",") if name.strip()]
units = {{"memory.total": " MiB", "memory.free": " MiB", "memory.used": " MiB"}}
layout = given.get("--format", "").split(",")
if shown and "noheader" not in layout:
    print(", ".join(name + (" [MiB]" if name in units else "") for name in shown))
for row in rows:
    if shown:
        cells = [row.get(name, "[N/A]") + ("" if "nounits" in layout else units.get(name, "")) for name in shown]
        print(", ".join(cells))
    else:
        print(f"GPU {{row['index']}}: {{row['name']}} (simulated), {{row['memory.total']}} MiB")
"""


def install_smi(folder: Path, gpu: SeenGpu) -> None:
    """Have the commands that this process runs find an nvidia-smi in `folder`, which is made, that lists the host's
    simulated GPUs, or what `--query-gpu` asks of them.
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
    command = folder / "nvidia-smi"
    command.write_text(_COMMAND.format(python=f"{sys.executable} -S", row=row, count=gpu.count))
    command.chmod(0o755)
    os.environ["PATH"] = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
