"""Carries plans between TorchRec and scenarios with the two functions of docs/reference/planner.md, on real TorchRec.

    python -m benchmarks.torchrec_plan [FILE]

TorchRec's planner places tables of all sharding types on 2 hosts of 2 GPUs; the plan goes into a file, from there into
a scenario's plan, from there into a second file, and back into TorchRec, whose plan must be the one it began with. FILE
keeps the first file: tests/data/plans/torchrec_1_8.json is one. TorchRec is installed as benchmarks/partition.py says.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from scenarios.config.load import load
from scenarios.planner.plan import plan_tables
from scenarios.planner.plan_file import plan_json

ROOT = Path(__file__).parent.parent
MODULE = "sparse_arch.embedding_bag_collection"
TYPES = (
    "data_parallel", "table_wise", "row_wise", "table_row_wise", "column_wise", "table_column_wise", "grid_shard",
)  # fmt: skip
ROWS, DIM = 1001, 256  # rows that no number of ranks divides; columns enough for two shards
SCENARIO = """
program = "dlrm"
[cluster]
profile = "dgx_h100"
hosts = 2
gpus_per_host = 2
[run]
batch_size = 64
[sharding]
plan = "plan.json"
[model]
dense_features = 4
bottom = [256]
top = [1]
interaction = {{ kind = "cat" }}
embedding_dim = {dim}
tables = [{tables}]
"""


def main(arguments: list[str]) -> int:
    """0 if the plan comes back as it was."""
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/reference/planner.md").read_text(), re.DOTALL):
        exec(block, namespace)
    plan = torchrec_plan()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        namespace["save_plan"](plan, folder / "plan.json")
        text = (folder / "plan.json").read_text()
        rewrite(folder)
        found = namespace["load_plan"](folder / "ours.json")
    wanted, found = fields_of(plan), fields_of(found)
    for table in wanted:
        print(f"{table:<20} {'same' if found.get(table) == wanted[table] else found.get(table)}")
    if arguments:
        Path(arguments[0]).write_text(text)
    return int(found != wanted)


def torchrec_plan() -> Any:
    """TorchRec's own plan of a table of each sharding type."""
    torchrec = import_module("torchrec")
    planning, types = import_module("torchrec.distributed.planner"), import_module("torchrec.distributed.planner.types")
    sharding = import_module("torchrec.distributed.embeddingbag")
    tables = [
        torchrec.EmbeddingBagConfig(
            name=f"t_{kind}", num_embeddings=ROWS, embedding_dim=DIM, feature_names=[f"f_{kind}"]
        )
        for kind in TYPES
    ]
    model = torch.nn.Module()
    model.sparse_arch = torch.nn.Module()
    model.sparse_arch.embedding_bag_collection = torchrec.EmbeddingBagCollection(
        tables=tables, device=torch.device("meta")
    )
    planner = planning.EmbeddingShardingPlanner(
        topology=planning.Topology(world_size=4, local_world_size=2, compute_device="cuda"),
        batch_size=64,
        constraints={
            f"t_{kind}": types.ParameterConstraints(
                sharding_types=[kind], compute_kernels=["dense" if kind == "data_parallel" else "fused"]
            )
            for kind in TYPES
        },
    )
    return planner.plan(model, [sharding.EmbeddingBagCollectionSharder()])


def rewrite(folder: Path) -> None:
    """A scenario that takes plan.json, and its plan as ours.json."""
    tables = ", ".join(f'{{ name = "t_{kind}", rows = {ROWS}, ids_per_sample = 3 }}' for kind in TYPES)
    (folder / "s.toml").write_text(SCENARIO.format(dim=DIM, tables=tables))
    scenario = load(folder / "s.toml")
    (folder / "ours.json").write_text(plan_json(plan_tables(scenario), scenario.cluster.host.gpus, "cuda", MODULE))


def fields_of(plan: Any) -> dict[str, Any]:
    """All that a plan says of its tables, comparable."""
    tables = {f"{module}.{name}": asdict(each) for module, of in plan.plan.items() for name, each in of.items()}
    found: dict[str, Any] = json.loads(json.dumps(tables, default=str, sort_keys=True))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
