"""GPU kernels that others have measured, against the roofline of the ready profile of their GPU.

    python -m benchmarks.published_kernels [FILE.csv]

A row of the file is one measurement: `kind` and `dtype` of the kernel, how many operators it `launches`, its flops and
bytes, and the time of one call in us. `overhead_us` of it is what the source gives for launching and waiting; blank:
not known, then the profile's launches come first. `use` says which rows have set something; the others are held out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from scenarios.config.gpu import Gpu
from scenarios.config.load import load_profile
from scenarios.seam.kernel import Kernel
from sim.engine.roofline import cost

FILE = Path("tests/data/published/kernels.csv")
PROFILES = {"A100": "dgx_a100", "V100": "v100_tcp_10g", "H100": "dgx_h100"}
HELD_OUT = "held out"


def predicted_us(row: pd.Series, gpu: Gpu) -> float:
    """The row's kernel alone on such a GPU, with what the source counts besides."""
    kernel = Kernel(
        kind=row["kind"],
        dtype=row["dtype"],
        launches=int(row["launches"]),
        flops=float(row["flops"]),
        bytes_read=float(row["bytes_read"]),
        bytes_written=float(row["bytes_written"]),
    )
    price = cost(kernel, gpu)
    before_us = price.launch_ns / 1e3 if pd.isna(row["overhead_us"]) else float(row["overhead_us"])
    return before_us + price.ramp_ns / 1e3 + 1e6 * max(price.arithmetic_s, price.memory_bytes / gpu.memory_bytes_per_s)


def compare(file: Path = FILE) -> pd.DataFrame:
    """The file's rows with `predicted_us` and `error`, predicted over measured less 1."""
    rows = pd.read_csv(file)
    gpus = {name: load_profile(profile).host.gpu for name, profile in PROFILES.items()}
    rows["predicted_us"] = [predicted_us(row, gpus[row["gpu"]]) for _, row in rows.iterrows()]
    rows["error"] = rows["predicted_us"] / rows["time_us"] - 1
    return rows


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """By source, kind and whether rows were held out: how many, the mean error without its sign, the worst with it."""
    held = rows["use"].eq(HELD_OUT).map({True: HELD_OUT, False: "set something"}).rename("rows")
    errors = rows.groupby(["source", "gpu", "kind", held])["error"]
    return pd.DataFrame(
        {
            "count": errors.size(),
            "mean": errors.agg(lambda error: error.abs().mean()),
            "worst": errors.agg(lambda error: error.loc[error.abs().idxmax()]),
        }
    ).reset_index()


def main(arguments: Sequence[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else list(arguments)
    rows = compare(Path(words[0]) if words else FILE)
    shown = ["gpu", "kind", "flops", "time_us", "predicted_us", "error", "use"]
    with pd.option_context("display.width", 160, "display.float_format", "{:,.3g}".format):
        print(rows[shown].to_string(index=False))
        print(summary(rows).to_string(index=False))


if __name__ == "__main__":
    main()
