"""fbgemm's operators that lack kernels or gradients outside of GPUs, composed of other operators and values on the CPU.

Semantics are those of fbgemm 1.8 (docs.pytorch.org/FBGEMM, "Jagged Tensor Operators", and the fake kernels of
fbgemm_gpu/sparse_ops.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_FBGEMM = torch.ops.fbgemm
_libraries: list[Any] = []  # kept alive, as a deleted library unregisters its operators


def complete_fbgemm() -> None:
    """Register the operators, after fbgemm's own."""
    library = torch.library.Library("fbgemm", "FRAGMENT")
    _libraries.append(library)
    for schema, (of_values, of_shapes) in _OF_GPUS.items():
        name = schema.partition("(")[0]
        if not hasattr(_FBGEMM, name):
            library.define(schema)
            library.impl(name, of_values, "CPU")
            library.impl(name, of_shapes, "Meta")
    for kernels, key in ((_WITH_GRADIENTS, "AutogradMeta"), (_OF_VALUES, "CPU")):
        for name, run in kernels.items():
            if hasattr(_FBGEMM, name):  # builds of fbgemm differ
                library.impl(name, run, key)


def _to_padded(values: Tensor, offsets: list[Tensor], max_lengths: list[int], padding_value: float = 0.0) -> Tensor:
    found: Tensor = _FBGEMM.jagged_to_padded_dense_forward(values, offsets, max_lengths, padding_value)
    return found


def _add(x_values: Tensor, x_offsets: list[Tensor], y: Tensor) -> Tensor:
    return y + _to_padded(x_values, x_offsets, list(y.shape[1:-1]))


def _select(input: Tensor, indices: Tensor, *_: Any, **__: Any) -> Tensor:
    return input.index_select(0, indices)


def _select_in_group(input_group: Sequence[Tensor], indices_group: Sequence[Tensor]) -> list[Tensor]:
    return [_select(*each) for each in zip(input_group, indices_group, strict=True)]


def _select_in_batch(
    inputs: Tensor,
    indices: Tensor,
    input_num_indices: Sequence[int],
    input_rows: Sequence[int],
    input_columns: Sequence[int],
    permute_output_dim_0_1: bool = False,
) -> Tensor:
    """Select rows of tables stored flat in `inputs`, one after the other.

    A row of the result has the selected rows of all tables side by side, if `permute_output_dim_0_1`.
    """
    sizes = [rows * columns for rows, columns in zip(input_rows, input_columns, strict=True)]
    tables = zip(inputs.split_with_sizes(sizes), indices.split_with_sizes(list(input_num_indices)), strict=True)
    found = [
        table.view(-1, columns).index_select(0, own)
        for (table, own), columns in zip(tables, input_columns, strict=True)
    ]
    if permute_output_dim_0_1:
        return torch.cat(found, 1).view(-1)
    return torch.cat([each.view(-1) for each in found])


def _regroup(
    pooled_embs: Sequence[Tensor], keys: list[list[str]], lengths: list[list[int]], groups: list[list[str]]
) -> list[Tensor]:
    """Gather the columns of keys by groups."""
    columns = {
        key: part
        for embeddings, own_keys, own_lengths in zip(pooled_embs, keys, lengths, strict=True)
        for key, part in zip(own_keys, embeddings.split_with_sizes(own_lengths, 1), strict=True)
    }
    return [torch.cat([columns[key] for key in group], 1) for group in groups]


_WITH_GRADIENTS: dict[str, Callable[..., Any]] = {
    "jagged_to_padded_dense": _to_padded,
    "jagged_dense_elementwise_add": _add,
    "index_select_dim0": _select,
    "group_index_select_dim0": _select_in_group,
    "batch_index_select_dim0": _select_in_batch,
    "regroup_keyed_tensor": _regroup,
}


def _bags(values: Tensor, lengths: Tensor, offsets: Tensor, chosen: Tensor) -> Tensor:
    """Return the ids of the chosen bags, concatenated."""
    own = lengths[chosen]
    begins = offsets[chosen] - (own.cumsum(0) - own)
    places = torch.repeat_interleave(begins, own) + torch.arange(int(own.sum()), device=values.device)
    return values[places]


def _select_bags(
    values: Tensor,
    lengths: Tensor,
    offsets: Tensor,
    indices: Tensor,
    batch_size: int,
    weights: Tensor | None = None,
    selected_lengths_sum: int | None = None,
) -> list[Tensor]:
    """Select the bags of the samples `indices` for each key; `lengths` has `batch_size` samples per key."""
    keys = lengths.numel() // batch_size if batch_size else 0
    chosen = (torch.arange(keys, device=indices.device).view(-1, 1) * batch_size + indices).view(-1)
    found = [_bags(values, lengths, offsets, chosen), lengths[chosen]]
    return found if weights is None else [*found, _bags(weights, lengths, offsets, chosen)]


def _unique(
    hash_size_cumsum: Tensor, hash_size_offsets: Tensor, offsets: Tensor, indices: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return lengths, offsets, ids and reverse indices of the distinct ids of each table.

    `hash_size_offsets` gives the features of each table; a table's distinct ids are spread evenly over its bags.
    """
    features = hash_size_cumsum.numel() - 1
    samples = (offsets.numel() - 1) // features
    of_feature = offsets[samples::samples].diff(prepend=offsets[:1])
    linear = indices + torch.repeat_interleave(hash_size_cumsum[:-1], of_feature)
    different, reverse = torch.unique(linear, return_inverse=True)
    owners = torch.searchsorted(hash_size_cumsum, different, right=True) - 1
    counts, bags = torch.bincount(owners, minlength=features), []
    for begin, end in zip(hash_size_offsets[:-1].tolist(), hash_size_offsets[1:].tolist(), strict=True):
        if end > begin:
            count, among = int(counts[begin:end].sum()), (end - begin) * samples
            bags.append(count // among + (torch.arange(among) < count % among).long())
    lengths = torch.cat(bags)
    return lengths, torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]), different - hash_size_cumsum[owners], reverse


_OF_VALUES: dict[str, Callable[..., Any]] = {
    "keyed_jagged_index_select_dim1": _select_bags,
    "keyed_jagged_index_select_dim1_forward": _select_bags,
    "jagged_unique_indices": _unique,
}


def _init_address_lookup(address_lookups: Tensor, buffer_offsets: Tensor, emb_sizes: Tensor) -> None:
    """Map the first ids of each buffer to one row each, while there are rows, and all other ids to the first row."""
    for begin, end, rows in zip(
        buffer_offsets[:-1].tolist(), buffer_offsets[1:].tolist(), emb_sizes.tolist(), strict=True
    ):
        ids = torch.arange(end - begin)
        address_lookups[begin:end] = torch.where(ids < rows, ids, 0)


def _prune(*given: Any) -> tuple[Tensor, Tensor, int]:
    """Prune no row, as the use of rows is unknown."""
    buffer_offsets: Tensor = given[4]
    return buffer_offsets.new_empty(0), torch.zeros_like(buffer_offsets), 0


def _remap(*given: Any) -> Tensor:
    """Map ids of features with a buffer to rows; keep ids of other features."""
    _, buffer_idx, feature_lengths, feature_offsets, values, address_lookup, _, buffer_offsets = given[:8]
    found: Tensor = values.clone()
    for buffer, begin, count in zip(
        buffer_idx.tolist(), feature_offsets.tolist(), feature_lengths.tolist(), strict=True
    ):
        own = slice(begin, begin + count)
        found[own] = address_lookup[values[own] + buffer_offsets[buffer]]
    return found


def _hash(
    input: Tensor, identities: Tensor, max_probe: int, circular_probe: bool = False, *given: Any, **named: Any
) -> Any:
    """Return the hashed slots of ids, assuming an empty table: fbgemm's CPU build inserts none.

    Only the sizes and offsets of buckets matter of `given` and `named`; the others control eviction.
    """
    local_sizes, offsets = [*given[2:4], named.get("local_sizes"), named.get("offsets")][:2]
    own = {"local_sizes": local_sizes, "offsets": offsets}
    places, _ = _FBGEMM.zero_collision_hash.default(input, identities, max_probe, circular_probe, readonly=True, **own)
    return places, places.new_empty(0)


# Operators missing in CPU builds (fbgemm_gpu/src/intraining_embedding_pruning_ops): schema, function of values on the
# CPU, and function of shapes on the meta device.
_OF_GPUS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "init_address_lookup(Tensor address_lookups, Tensor buffer_offsets, Tensor emb_sizes) -> ()": (
        _init_address_lookup,
        lambda *_: None,
    ),
    "prune_embedding_tables(int iter, int pruning_interval, Tensor address_lookups, Tensor row_utils,"
    " Tensor buffer_offsets, Tensor emb_sizes) -> (Tensor, Tensor, int)": (_prune, _prune),
    "remap_indices_update_utils(int iter, Tensor buffer_idx, Tensor feature_lengths, Tensor feature_offsets,"
    " Tensor values, Tensor address_lookup, Tensor(a!) row_util, Tensor buffer_offsets,"
    " Tensor[]? full_values_list=None, bool? update_util=None) -> Tensor": (
        _remap,
        lambda *given, **_: torch.empty_like(given[4]),
    ),
}
# Replacements of operators whose CPU kernels do less than their GPU kernels.
IN_PLACE_OF: dict[str, Callable[..., Any]] = {"fbgemm::zero_collision_hash": _hash}
