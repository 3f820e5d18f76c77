"""How long the points of a study take, with workers killed on the way: 1,000 variations of criteo_dlrm_2x4 in six keys.

    python -m benchmarks.study_points [--points N] [--jobs N] [--kills N] [--keep rows|runs|spans]
    python -m benchmarks.study_points --points 100 --kills 0 --emulated-hosts 2     # root: a Dask worker on each

Checks that no point is missing and none has two plays, and prints wall time and core seconds for each point, and how
many each worker has played.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

import twinstep
from real.emulate.cluster import emulate_hosts
from real.emulate.fabric import EmulatedFabric, data_address
from twinstep.studies.engine import PRELOAD

SHARDING = [
    ["table_wise"],
    ["row_wise"],
    ["table_row_wise"],
    ["table_wise", "row_wise"],
    ["table_row_wise", "table_wise"],
]
# Ten batches of 100 points: `--points` takes so many batches.
STUDY = """
scenario = "criteo_dlrm_2x4"
baseline = false
keep = "{keep}"
[vary]
"model.tables[*].sharding" = {sharding}
"pipeline.kind" = ["none", "sparse_dist"]
"model.dtype" = ["float32", "float16"]
"cluster.nic.rate" = {{from = "100 Gbit/s", to = "500 Gbit/s", step = "100 Gbit/s"}}
"cluster.nic.latency" = {latencies}
"run.batch_size" = {batches}
"""
_NIC_BYTES_PER_S = 25e6
BATCHES = [1024, 2048, 4096, 8192, 16384]


def main() -> None:
    options = _options()
    whole = 5 * 2 * 2 * 5
    batches = BATCHES if options.points >= 10 * whole / 2 else BATCHES[: max(1, options.points // whole)]
    latencies = ["1 us", "2 us"] if options.points > 5 * whole else ["1 us"]
    with tempfile.TemporaryDirectory() as base:
        study, out = Path(base, "study.toml"), Path(base, "out")
        text = STUDY.format(keep=options.keep, sharding=SHARDING, latencies=latencies, batches=batches)
        study.write_text(text.replace("'", '"'))
        began_s = time.monotonic()
        command: list[str | Path] = [sys.executable, "-m", "sim", "sweep", study, "--out", out]
        command += ["--jobs", str(options.jobs), "--quiet"]
        with _workers(options.emulated_hosts) as where:
            process = subprocess.Popen([*command, *where])
            killed = _kill_workers(process, out, options.kills, whole * len(batches) * len(latencies))
            code = process.wait()
        wall_s, used = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
        frame = twinstep.study(out)
    assert code == 0, f"exit code {code}"
    points, core_s = len(frame), used.ru_utime + used.ru_stime
    expected = whole * len(batches) * len(latencies)
    assert points == expected, f"{points} of {expected} points"
    assert frame["index"].is_unique, "each point has one row"
    assert int(frame["played"].sum()) == frame["digest"].nunique(), "each digest is played once"
    print(f"{points} points ({frame['status'].value_counts().to_dict()}), {frame['digest'].nunique()} digests")
    print(f"{killed} workers killed; {options.jobs} jobs; keep = {options.keep}; load {psutil.getloadavg()[0]:.1f}")
    of_worker = frame.loc[frame["played"], "worker"].value_counts()
    print(f"played by workers: {', '.join(f'{count} {worker}' for worker, count in of_worker.items())}")
    print(f"wall {wall_s:.0f} s, {wall_s / points:.2f} s a point; {core_s / points:.2f} core seconds a point")


@contextmanager
def _workers(hosts: int) -> Iterator[list[str]]:
    """The sweep's options for a scheduler and workers of which each is on an emulated host of its own; none without."""
    if not hosts:
        yield []
        return
    scheduler = f"tcp://{data_address(0)}:8786"
    dask = [sys.executable, "-m", "dask"]
    with (
        emulate_hosts(EmulatedFabric(hosts=1 + hosts, nic_bytes_per_s=_NIC_BYTES_PER_S)) as cluster,
        ExitStack() as stack,
    ):
        for host in range(1 + hosts):
            words = ["worker", scheduler, "--nthreads", "1", "--preload", PRELOAD] if host else ["scheduler"]
            with cluster.host(host):
                process = subprocess.Popen([*dask, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        stack.enter_context(cluster.host(0))  # where the sweep is started, too
        yield ["--scheduler", scheduler]


def _kill_workers(process: subprocess.Popen[bytes], out: Path, count: int, points: int) -> int:
    """Kill a worker with SIGKILL each time that another share of the points has ended; how many were killed."""
    killed = 0
    while process.poll() is None and killed < count:
        time.sleep(0.5)
        # Files are counted up, one a row and a few more: reading them would take time from what is measured.
        ended = max((int(path.stem.removeprefix("part-")) for path in out.glob("rows/part-*.parquet")), default=0)
        if ended > (killed + 1) * points / (count + 2):
            workers = [one for one in psutil.Process(process.pid).children() if "spawn_main" in " ".join(one.cmdline())]
            busiest = max(workers, key=lambda one: one.memory_info().rss, default=None)
            if busiest is not None:
                busiest.kill()
                killed += 1
                print(f"killed worker {busiest.pid} after {ended} points", flush=True)
    return killed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the points of a study.")
    parser.add_argument("--points", type=int, default=1000, help="a multiple of 100")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--emulated-hosts", type=int, default=0, help="so many, a Dask worker on each")
    parser.add_argument("--keep", choices=("rows", "runs", "spans"), default="runs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
