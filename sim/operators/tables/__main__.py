"""Write the measured tables of the profiles: `python -m sim.operators.tables WHEEL FOLDER`.

WHEEL is aiconfigurator-core's, as `pip download --no-deps aiconfigurator-core` brings it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from zipfile import Path as InZip

import pyarrow as pa
import pyarrow.parquet as pq

from scenarios.config.load import load_profile
from sim.operators.tables.about import QUALITY
from sim.operators.tables.making import table_of
from sim.operators.tables.wheel import DATA

# The wheel's systems and their profiles.
SYSTEMS = {
    "a100_sxm": "dgx_a100",
    "h100_sxm": "dgx_h100",
    "h200_sxm": "hgx_h200",
    "b200_sxm": "p6_b200",
    "gb200": "gb200_nvl72",
    "gb300": "gb300_nvl72",
    "b300_sxm": "hgx_b300",
    "l40s": "l40s_pcie",
}


def main(wheel: str, folder: str) -> None:
    """Write a Parquet file for each of `SYSTEMS`."""
    release = Path(wheel).name.split("-")[1]
    for system, profile in SYSTEMS.items():
        gpu = load_profile(profile).host.gpu
        table, quality = table_of(InZip(wheel, f"{DATA}/{system}/"), release, gpu)
        whole = dict.fromkeys(table.select_dtypes("int64"), "int32")
        rounded = table.astype(whole).assign(
            us=table["us"].map(lambda us: float(f"{us:.4g}")).astype("float32"),
            over_law=table["over_law"].round(3).astype("float32"),
        )
        file = Path(folder) / f"{system}.parquet"
        contents = pa.Table.from_pandas(rounded, preserve_index=False)
        about = {QUALITY: json.dumps([asdict(each) for each in quality])}
        pq.write_table(
            contents.replace_schema_metadata({**contents.schema.metadata, **about}), file, compression="zstd"
        )
        print(f"{file}: {len(table)} rows, {file.stat().st_size / 1e3:.0f} KB")
        for each in quality:
            print(
                f"    {each.operator}: {each.measured:,} shapes, law {each.law_error:.1%} off,"
                f" with the table {each.table_error:.1%}"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
