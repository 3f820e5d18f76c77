"""The text of a first scenario for a file of tables: each key with its meaning and its other values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.config.units import format_bytes
from scenarios.toml_writer import toml_value

CHECK = "CHECK"  # marks lines that are assumptions
USUAL_DIM = 128
USUAL_IDS = 1  # as TorchRec's planner assumes (`POOLING_FACTOR`)
_COMMENT = 42  # the column in which comments begin
_FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioDraft:
    """The ingredients of a first scenario; `tables` are the values of a table file's lines."""

    table_file: str
    tables: Sequence[dict[str, Any]]
    profile: str
    gpu: str
    library: str
    hosts: int
    gpus_per_host: int
    batch_size: int
    out: Path

    @property
    def ranks(self) -> int:
        """The number of GPUs."""
        return self.hosts * self.gpus_per_host

    @property
    def count(self) -> int:
        """The number of tables, with those alike that stand in one line."""
        return sum(_number(table.get("count"), 1) for table in self.tables)

    @property
    def table_bytes(self) -> int:
        """The size of all rows in float32."""
        return _FLOAT32_BYTES * sum(
            _number(table.get("count"), 1) * _number(table.get("rows"), 0) * _number(table.get("dim"), USUAL_DIM)
            for table in self.tables
        )

    @property
    def lacking_ids(self) -> int:
        """The number of lines without a number of ids, of the table or of one of its features."""
        return sum(any(map(_lacks_ids, table.get("features") or [table])) for table in self.tables)

    @property
    def lacking_dim(self) -> int:
        """The number of lines without a `dim`."""
        return sum("dim" not in table for table in self.tables)

    def text(self) -> str:
        """Return the scenario file."""
        lines = [*self._head(), *self._run(), *self._cluster(), *self._model(), *self._dense(), *self._options()]
        return "\n".join(lines) + "\n"

    def _head(self) -> Iterator[str]:
        yield "# Written by `twinstep init`. Predict it: `twinstep predict`. All keys: `twinstep keys`."
        yield f"# Lines with {CHECK} are assumptions: look at them first. Remove `# ` to use the key behind it."
        yield ""
        yield _line("program", "dlrm", "a training step of a recommender")

    def _run(self) -> Iterator[str]:
        other = '"gloo"' if self.library == "nccl" else '"nccl", for GPUs'
        yield from ("", "[run]")
        samples = f"{CHECK}: samples per GPU and step; {self.batch_size * self.ranks:,} in all"
        yield _line("batch_size", self.batch_size, samples)
        yield _line("steps", 3, "simulated steps; more show how steps vary")
        yield _line("library", self.library, f"of the collectives; or {other}")

    def _cluster(self) -> Iterator[str]:
        profile = _beside(self.profile, self.out) if self.profile.endswith(".toml") else self.profile
        yield from ("", "[cluster]")
        yield _line("profile", profile, f"{self.gpu}; others: twinstep profiles")
        yield _line("hosts", self.hosts, "number of hosts")
        yield _line("gpus_per_host", self.gpus_per_host, f"GPUs of a host; {self.ranks} ranks in all")
        yield _line("# nic.rate", "400 Gbit/s", "such keys replace the profile's figures")

    def _model(self) -> Iterator[str]:
        yield from ("", "[model]")
        tables = f"{self.count:,} tables, {format_bytes(self.table_bytes)} in float32"
        yield _line("tables", _beside(self.table_file, self.out), tables)
        if lacking := self.lacking_dim:
            about = f"{CHECK}: elements per row of tables without dim ({_lines(lacking)})"
            yield _line("embedding_dim", USUAL_DIM, about)
        if lacking := self.lacking_ids:
            about = f"{CHECK}: assumed for {_lines(lacking)} of the file, as TorchRec's planner does"
            yield _line("ids_per_sample", USUAL_IDS, about)
        yield _line("embedding_dtype", "float32", 'of rows; or "float16", "bfloat16"')
        kinds = 'of tables, row-wise; or "sgd", "adam", "lamb"'
        yield _line("optimizer", {"kind": "adagrad", "learning_rate": 0.01}, kinds)

    def _dense(self) -> Iterator[str]:
        dims = {repr(table.get("dim", USUAL_DIM)): table.get("dim", USUAL_DIM) for table in self.tables}
        equal = len(dims) == 1
        width = _number(next(iter(dims.values())), USUAL_DIM) if equal else USUAL_DIM
        other = '"cat"' if equal else '"dot" if dims are equal'
        yield _line("dense_features", 13, f"{CHECK}: dense inputs per sample")
        yield _line("bottom", [512, 256, width], f"{CHECK}: widths of the layers over dense inputs")
        about = f'{CHECK}: or {{kind="dcn", layers=3, low_rank=512}}, {other}'
        yield _line("interaction", {"kind": "dot" if equal else "cat"}, about)
        yield _line("top", [1024, 1024, 512, 256, 1], f"{CHECK}: widths of the layers over the interaction")
        yield _line("# dense", "./my_model.py:Dense", "your own module instead of these three")
        yield _line("# dense_optimizer", {"kind": "Adam", "lr": 0.001}, "of dense layers; default: as tables")
        yield _line("dtype", "float32", 'of dense layers; or "bfloat16", "float16"')
        yield _line("# tf32", True, "float32 products on tensor cores")

    def _options(self) -> Iterator[str]:
        yield from ("", "[pipeline]")
        yield f'# {CHECK}: TorchRec\'s TrainPipelineSparseDist; or "base", "prefetch_sparse_dist", "semi_sync"'
        yield _line("kind", "sparse_dist", "exchanges the next batch's ids during the step")
        yield from ("", "[sharding]")
        yield _line("reserved_share", 0.15, "share of GPU memory that tables may not use")
        yield _line("# plan", "plan.json", "your plan; default: TorchRec's planner plans")
        yield _line("# types", ["table_wise", "row_wise"], "default: the planner may choose any type")


def _line(key: str, value: object, comment: str) -> str:
    pairs = value.items() if isinstance(value, dict) else ()
    table = ", ".join(f"{name} = {toml_value(one)}" for name, one in pairs)
    text = f"{key} = {'{' + table + '}' if pairs else toml_value(value)}"
    return f"{text:<{_COMMENT}}  # {comment}"


def _lines(count: int) -> str:
    return f"{count} line{'s' * (count != 1)}"


def _number(value: object, usual: int) -> int:
    """Return a sound whole number of a table file; the others are reported when the scenario is read."""
    return value if type(value) is int and value > 0 else usual


def _lacks_ids(section: object) -> bool:
    """Return whether a table or a feature has no number of ids, nor a file of them."""
    if not isinstance(section, dict) or "ids_per_sample" in section:
        return False
    ids = section.get("ids")
    return not (isinstance(ids, dict) and "file" in ids)


def _beside(file: str, out: Path) -> str:
    """Return a file's path as the scenario has it: relative to the scenario's folder, unless it was given in full."""
    return file if os.path.isabs(file) else Path(os.path.relpath(file, out.parent)).as_posix()
