"""The placement of a script's tables by TorchRec, read from the running modules with the first lookups, or replaced."""

from __future__ import annotations

import gc
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor
from torch.nn import Module
from torch.nn.modules.module import register_module_module_registration_hook

from scenarios.seam.trace import PlanRow
from scenarios.workloads.script.gpu.known_values import Shadows

_FUSED = "fbgemm_gpu.split_table_batched_embeddings_ops_training"
# Bytes per element in the reported rows; the planner's estimate replaces them.
_FLOAT32_BYTES = 4


class LookUps:
    """A counter of the ids that enter modules sharded by TorchRec, from now on until `end`."""

    def __init__(self, shadows: Shadows | None) -> None:
        """Start counting; `shadows` has the known values of tensors on a simulated GPU."""
        self._shadows = shadows
        self._bags = WeakKeyDictionary[Module, dict[str, tuple[int, int]]]()  # by feature: ids, samples
        self._models = WeakKeyDictionary[Module, None]()
        self.batch_size = 0
        self._hooks = [register_module_module_registration_hook(self._watch)]

    def end(self) -> None:
        """Stop counting what is created."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def of(self, module: Module) -> dict[str, float]:
        """Return, by feature, the mean number of ids per sample that entered the module or one within it."""
        found = [bags for inner in module.modules() for bags in (self._bags.get(inner, {}),)]
        return {key: ids / max(samples, 1) for bags in found for key, (ids, samples) in bags.items()}

    @property
    def step_samples(self) -> int:
        """The samples of the one batch that entered the modules; 0 if they had several batches, or none."""
        samples = max((samples for bags in self._bags.values() for _, samples in bags.values()), default=0)
        return samples if samples == self.batch_size else 0

    @property
    def models(self) -> list[Any]:
        """The existing models under DistributedModelParallel, in order of creation."""
        return list(self._models)

    def _watch(self, parent: Module, _name: str, module: Module | None) -> None:
        types, parallel = (sys.modules.get(f"torchrec.distributed.{name}") for name in ("types", "model_parallel"))
        if types is None or parallel is None:
            return
        if isinstance(parent, parallel.DistributedModelParallel):
            self._models[parent] = None
        if isinstance(module, types.ShardedModule):
            self._hooks.append(module.register_forward_pre_hook(self._note_inputs, with_kwargs=True))

    def _note_inputs(self, module: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        kind = sys.modules["torchrec.sparse.jagged_tensor"].KeyedJaggedTensor
        with nullcontext() if self._shadows is None else self._shadows.suspend():
            for each in (*args, *kwargs.values()):
                if isinstance(each, kind):
                    self._count(module, each)

    def _count(self, module: Module, jagged: Any) -> None:
        """Count ids without computing, and so caching, anything in the script's tensor."""
        lengths, offsets = self._find_values(jagged.lengths_or_none()), self._find_values(jagged.offsets_or_none())
        if lengths is None and offsets is not None:
            lengths = offsets.diff()
        keys = jagged.keys()
        if lengths is None or not keys:
            return
        strides = [lengths.numel() // len(keys)] * len(keys)
        if jagged.variable_stride_per_key():
            strides = jagged.stride_per_key()
        self.batch_size = max(self.batch_size, *strides)
        bags = self._bags.setdefault(module, {})
        for key, stride, part in zip(keys, strides, lengths.split(strides), strict=True):
            ids, samples = bags.get(key, (0, 0))
            bags[key] = ids + int(part.sum()), samples + stride

    def _find_values(self, tensor: Tensor | None) -> Tensor | None:
        if tensor is None or self._shadows is None or not self._shadows.is_of_gpu(tensor):
            return tensor
        return self._shadows.of(tensor)


def plan_found(look_ups: LookUps) -> dict[str, Any] | None:
    """Return the tables under DistributedModelParallel, ready for JSON; None without TorchRec.

    The dict has: `rows`, those of `PlanRow` without expected times and ids; `tables`, with the dtype of elements, ids
    per sample by feature (None: unknown), whether they are pooled and weighted, the cached share of rows, the path of
    their module and their name there;
    `batch_size` per rank, 0 if unknown; `step_samples`, those of the first step if it had one batch, else 0; `ranks`,
    how many ranks share each model's tables; `optimizers`, fbgemm's names for the tables on this rank.
    """
    placed = [
        (model, path, name, parameter)
        for model in look_ups.models
        for path, tables in model.plan.plan.items()
        for name, parameter in tables.items()
    ]
    if not placed:
        return None
    fused = sys.modules[_FUSED].SplitTableBatchedEmbeddingBagsCodegen
    bags = [each for each in gc.get_objects() if issubclass(type(each), fused)]
    names = _names([(path, name) for _, path, name, _ in placed])
    return {
        "rows": [
            asdict(replace(row, table=name)) for name, each in zip(names, placed, strict=True) for row in _shards(*each)
        ],
        "tables": [{"name": name, **_table(look_ups, *each)} for name, each in zip(names, placed, strict=True)],
        "batch_size": look_ups.batch_size,
        "step_samples": look_ups.step_samples,
        "ranks": sorted({int(model._env.world_size) for model in look_ups.models}),
        "optimizers": sorted({each.optimizer.name for each in bags}),
    }


def _names(tables: list[tuple[str, str]]) -> list[str]:
    """Return unique names: duplicates get their module's name, and across models a number."""
    count = Counter(name for _, name in tables)
    found = [name if count[name] == 1 else f"{path}.{name}" for path, name in tables]
    return [
        name if name not in found[:at] else f"{name} ({found[:at].count(name) + 1})" for at, name in enumerate(found)
    ]


def _table(look_ups: LookUps, model: Any, path: str, table: str, parameter: Any) -> dict[str, Any]:
    """Return the properties of a table other than its placement."""
    cache = parameter.cache_params
    own = {"load_factor": None if cache is None else cache.load_factor}
    own |= {"path": path, "table": table}
    usual: dict[str, Any] = {"dtype": None, "features": {}, "is_pooled": True, "is_weighted": False}
    try:
        module = model.module.get_submodule(path)
    except AttributeError:  # a user's own module, with another path in the model
        return {**usual, **own}
    ids = look_ups.of(module)
    for inner in module.modules():
        for kind in ("_embedding_bag_configs", "_embedding_configs"):
            for config in getattr(inner, kind, ()):
                if config.name == table:
                    return {
                        **own,
                        "dtype": config.data_type.value,
                        "features": {name: ids.get(name) for name in config.feature_names},
                        "is_pooled": kind == "_embedding_bag_configs",
                        "is_weighted": bool(getattr(inner, "_is_weighted", False)),
                    }
    return {**usual, **own}


def _shards(model: Any, path: str, table: str, parameter: Any) -> Iterator[PlanRow]:
    spec = parameter.sharding_spec
    if spec is not None:
        places = [(shard.placement.rank(), *shard.shard_offsets, *shard.shard_sizes) for shard in spec.shards]
    else:  # a copy on each rank
        rows, columns = _sizes(model, path, table)
        places = [(rank, 0, 0, rows, columns) for rank in parameter.ranks or ()]
    for number, (rank, row, column, rows, columns) in enumerate(places):
        yield PlanRow(
            table=table,
            sharding_type=parameter.sharding_type,
            compute_kernel=parameter.compute_kernel,
            shard=number,
            rank=rank,
            row_offset=row,
            column_offset=column,
            rows=rows,
            columns=columns,
            storage_bytes=rows * columns * _FLOAT32_BYTES,
            perf_ms=0.0,
            ids_per_step=0.0,
        )


def _sizes(model: Any, path: str, table: str) -> tuple[int, int]:
    """Return the numbers of rows and columns of a whole table."""
    state, within = model.state_dict(), f".{path}." if path else "."
    names = [name for name in state if within in f".{name}" and name.endswith(f".{table}.weight")]
    if not names:
        return 0, 0
    rows, columns = state[min(names, key=len)].shape  # a longer name is of a module inside another
    return int(rows), int(columns)


def use_plan(file: Path) -> None:
    """Make each DistributedModelParallel shard its tables by the plan of a file, in place of its own.

    A table that two modules of the file have is taken from its own module; options that no plan file has, such as
    bounds checks, stay as the script's own plan has them.

    Raises:
        ImportError: there is no TorchRec.
    """
    parallel, types, spec = (
        import_module(name)
        for name in (
            "torchrec.distributed.model_parallel",
            "torchrec.distributed.types",
            "torch.distributed._shard.sharding_spec",
        )
    )
    given = json.loads(file.read_text(encoding="utf-8"))
    by_name = {name: fields for tables in given.values() for name, fields in tables.items()}
    shard = parallel.DistributedModelParallel._init_dmp

    def placed(path: str, name: str, own: Any) -> Any:
        fields = given.get(path, {}).get(name) or by_name.get(name)
        if fields is None:
            raise ValueError(f"script.plan = '{file}': expected table {name!r}, which module {path!r} has")
        shards = (fields.get("sharding_spec") or {}).get("shards")
        cache = fields.get("cache_params")
        return replace(
            own,
            sharding_type=fields["sharding_type"],
            compute_kernel=fields["compute_kernel"],
            ranks=fields.get("ranks"),
            sharding_spec=shards and spec.EnumerableShardingSpec([spec.ShardMetadata(**each) for each in shards]),
            cache_params=types.CacheParams(load_factor=cache["load_factor"]) if cache else own.cache_params,
        )

    def shard_as_given(self: Any, module: Any) -> Any:
        modules = {
            path: type(tables)({name: placed(path, name, own) for name, own in tables.items()})
            if isinstance(tables, dict)
            else tables
            for path, tables in self._plan.plan.items()
        }
        self._plan = replace(self._plan, plan=modules)
        return shard(self, module)

    parallel.DistributedModelParallel._init_dmp = shard_as_given
