"""Sparse tensors (COO) on a simulated GPU: gradients of embeddings with `sparse=True`, as optimizers use them, and
matrices of graphs, as products use them.

A GPU's sparse tensor is a sparse meta tensor; operators on it run on its indices and values, as torch does on CUDA
(aten/src/ATen/native/sparse/cuda), where one kernel may do the work of two here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from scenarios.workloads.script.gpu.known_values import META, Shadows

_aten = torch.ops.aten
_MAKES = _aten._sparse_coo_tensor_with_dims_and_tensors.default
_BAGS_BACK = _aten._embedding_bag_backward.default
# The index of `sparse` among the arguments of embedding bags' backward pass.
_IS_SPARSE = 9
# Operators that read metadata, without a kernel.
_READ = {"_nnz", "sparse_dim", "dense_dim", "is_coalesced", "_coalesced_", "_dimI", "_dimV", "is_same_size"}
# Operators on each value; the tensor is coalesced first where they are not linear.
_BY_VALUE = {"mul", "div", "neg", "pow", "sqrt", "abs", "mul_", "div_", "neg_", "pow_", "sqrt_", "abs_", "_to_copy"}
_OF_ALL = {"norm", "linalg_vector_norm", "sum", "isnan", "isinf"}
_PARTS = {
    **dict.fromkeys(("_indices", "indices"), _aten._indices.default),
    **dict.fromkeys(("_values", "values"), _aten._values.default),
}
_OWN = {
    "clone": "_clone",
    "detach": "_detach",
    "alias": "_detach",
    "_coalesce": "_coalesce",
    "add": "_add",
    "add_": "_add_in_place",
    "sparse_mask": "_mask",
    "_to_dense": "_to_dense",
    "zero_": "_zero",
    "copy_": "_copy",
    **dict.fromkeys(("mm", "_sparse_mm"), "_product"),
    **dict.fromkeys(("addmm", "_sparse_addmm"), "_add_product"),
    "mv": "_vector_product",
    "t": "_transposed",
    "transpose": "_transposed",
}


def move_arguments(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return `torch.sparse_coo_tensor`'s positional arguments with indices and values moved to the requested device.

    The argument `device` is removed from `kwargs`.
    """
    device = kwargs.pop("device")
    for name in kwargs.keys() & {"indices", "values"}:
        kwargs[name] = torch.as_tensor(kwargs[name], device=device)
    return tuple(torch.as_tensor(each, device=device) if place < 2 else each for place, each in enumerate(args))


class Sparse:
    """Operators on sparse tensors of the GPU; `run()` returns a context in which operators run on the GPU."""

    def __init__(self, shadows: Shadows, run: Callable[[], Any]) -> None:
        self._shadows, self._run = shadows, run

    def takes(self, func: Any, args: tuple[Any, ...], given: Sequence[Tensor]) -> bool:
        """Return whether an operator creates a sparse tensor, or has one among its tensors `given`.

        Raises:
            RuntimeError: a tensor has another sparse layout than COO.
        """
        for each in given:
            if each.layout not in (torch.strided, torch.sparse_coo, torch.jagged):
                raise RuntimeError(f"a tensor in layout {each.layout} on a simulated GPU: expected torch.sparse_coo")
        if func is _MAKES or (func is _BAGS_BACK and args[_IS_SPARSE]):
            return True
        return any(each.layout is torch.sparse_coo for each in given)

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator and return its result.

        Raises:
            RuntimeError: the operator is not simulated; the message names it.
        """
        name = func.overloadpacket.__name__
        if func is _MAKES:
            made = func(*args, **{**kwargs, "device": META})
            self._shadows.adopt([_values(made)])
            return made
        if name in _READ:
            return func(*args, **kwargs)
        if name in _PARTS:
            found = _PARTS[name](args[0])
            self._shadows.adopt([found])
            # Autograd turns this into a view, but only once.
            return found if name.startswith("_") else _aten.alias.default(found)
        with self._run():
            if func is _BAGS_BACK:
                return self._bags_back(*args)
            own = getattr(self, _OWN.get(name, ""), None)
            if own is not None:
                return own(*args, **kwargs)
            if name in _BY_VALUE or name in _OF_ALL:
                return self._by_value(func, name, args, kwargs)
        raise RuntimeError(f"{func.name()} of sparse tensors has no price on simulated GPUs: expected sparse=False")

    def _clone(self, sparse: Tensor, **_: Any) -> Tensor:
        return _make_like(sparse, _indices(sparse).clone(), _values(sparse).clone())

    def _detach(self, sparse: Tensor) -> Tensor:
        return _make_like(sparse, _indices(sparse), _values(sparse))

    def _coalesce(self, sparse: Tensor) -> Tensor:
        """Sum the values of repeated indices."""
        values, places = _values(sparse), _places(sparse)
        try:
            different, inverse = torch.unique(places, return_inverse=True)
        except RuntimeError:  # unknown indices are assumed to be distinct
            order = torch.sort(places).indices
            return _make_like(sparse, _indices(sparse).index_select(1, order), values.index_select(0, order), True)
        added = values.new_zeros(different.numel(), *values.shape[1:]).index_add_(0, inverse, values)
        return _make_like(sparse, _unravel(different, sparse), added, True)

    def _add_in_place(self, one: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
        if one.layout != torch.sparse_coo:
            _rows(one, other).index_add_(0, _places(other), _values(other), alpha=alpha)
            return one
        return self._become(one, self._add(one, other, alpha=alpha))

    def _add(self, one: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
        dense, sparse = (one, other) if other.layout == torch.sparse_coo else (other, one)
        if dense.layout != torch.sparse_coo:
            return self._add_in_place(dense.clone(), sparse, alpha=alpha)
        values = _values(other) if alpha == 1 else _values(other) * alpha
        return _make_like(one, torch.cat([_indices(one), _indices(other)], 1), torch.cat([_values(one), values]))

    def _mask(self, dense: Tensor, mask: Tensor) -> Tensor:
        return _make_like(mask, _indices(mask), _rows(dense, mask).index_select(0, _places(mask)), mask.is_coalesced())

    def _to_dense(self, sparse: Tensor, *_: Any, **__: Any) -> Tensor:
        return self._add_in_place(_values(sparse).new_zeros(sparse.shape), sparse)

    def _zero(self, sparse: Tensor) -> Tensor:
        return self._become(sparse, _make_like(sparse, _indices(sparse)[:, :0], _values(sparse)[:0]))

    def _copy(self, target: Tensor, source: Tensor, *_: Any) -> Tensor:
        return self._become(target, self._clone(source))

    def _product(self, sparse: Tensor, dense: Tensor) -> Tensor:
        """Return the product of a sparse matrix and a dense one: rows of the latter, weighted and added up."""
        if not _is_sparse(sparse) or _is_sparse(dense):
            raise RuntimeError(
                "products with a sparse right operand have no price on simulated GPUs: expected a dense one"
            )
        if not sparse.is_coalesced():  # as after each transposition, such as a backward pass's
            sparse = self._coalesce(sparse)
        rows, columns = _indices(sparse)
        picked = dense.index_select(0, columns) * _values(sparse).unsqueeze(1)
        return dense.new_zeros(sparse.shape[0], dense.shape[1]).index_add_(0, rows, picked)

    def _add_product(
        self, added: Tensor, sparse: Tensor, dense: Tensor, *, beta: float = 1, alpha: float = 1
    ) -> Tensor:
        product = self._product(sparse, dense)
        return torch.add(added if beta == 1 else added * beta, product, alpha=alpha) if beta else product * alpha

    def _vector_product(self, sparse: Tensor, dense: Tensor) -> Tensor:
        return self._product(sparse, dense.unsqueeze(1)).squeeze(1)

    def _transposed(self, sparse: Tensor, *_: Any) -> Tensor:
        return _make(sparse.shape[::-1], _indices(sparse).flip(0), _values(sparse))

    def _become(self, tensor: Tensor, value: Tensor) -> Tensor:
        """Replace the contents of a sparse tensor by those of another one."""
        base: Any = torch._C.TensorBase
        with self._shadows.suspend(), torch._C.DisableTorchFunction():
            base.data.__set__(tensor, value)
        return tensor

    def _by_value(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator on a sparse tensor's values, coalesced first unless the operator is linear."""
        sparse = args[0]
        if name == "_to_copy" and torch.device(kwargs.get("device") or META).type == "cpu":
            raise RuntimeError("a sparse tensor of a simulated GPU has no values for the CPU: expected sparse=False")
        if name == "_to_copy" and not self._shadows.is_of_gpu(sparse):
            indices, values = (each.to("cuda") for each in (_indices(sparse), _values(sparse)))
            sparse = _make_like(sparse, indices, values, sparse.is_coalesced())
        if name not in ("mul", "mul_", "div", "div_", "_to_copy") and not sparse.is_coalesced():
            sparse = self._coalesce(sparse)
        own = {key: value for key, value in kwargs.items() if key not in ("layout", "device")}
        others = [_values(each) if _is_sparse(each) else each for each in args[1:]]
        values = func(_values(sparse), *others, **own)
        if name in _OF_ALL:
            return values
        return args[0] if name.endswith("_") else _make_like(sparse, _indices(sparse), values, sparse.is_coalesced())

    def _bags_back(self, gradient: Tensor, indices: Tensor, *rest: Any) -> Tensor:
        """Return the sparse gradient of embedding bags: each id gets its bag's gradient."""
        rows, _, mode = rest[4:7]
        per_sample = rest[8]
        values = gradient.index_select(0, torch.zeros_like(indices.view(-1)))
        if per_sample is not None:
            values = values * per_sample.view(-1, 1)
        elif mode == 1:  # mean: divide by the bags' lengths, whose values are not needed
            values = values / values.new_ones(len(values), 1)
        made: Tensor = _make((rows, gradient.shape[1]), indices.view(1, -1), values)
        return made


def _is_sparse(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.sparse_coo


def _indices(sparse: Tensor) -> Tensor:
    found: Tensor = _aten._indices.default(sparse)
    return found


def _values(sparse: Tensor) -> Tensor:
    found: Tensor = _aten._values.default(sparse)
    return found


def _places(sparse: Tensor) -> Tensor:
    """Return one flat number per index, as if the sparse dimensions were one."""
    indices = _indices(sparse)
    if len(indices) == 1:
        return indices.view(-1)
    found = indices[0]
    for index, size in zip(indices[1:], sparse.shape[1:], strict=False):
        found = found * size + index
    return found


def _unravel(places: Tensor, sparse: Tensor) -> Tensor:
    """Return the indices of the flat numbers that `_places` returns."""
    dims = _indices(sparse).shape[0]
    return places.view(1, -1) if dims == 1 else torch.stack(torch.unravel_index(places, sparse.shape[:dims]))


def _rows(dense: Tensor, sparse: Tensor) -> Tensor:
    dims = _indices(sparse).shape[0]
    return dense if dims == 1 else dense.view(-1, *dense.shape[dims:])


def _make_like(sparse: Tensor, indices: Tensor, values: Tensor, is_coalesced: bool = False) -> Tensor:
    return _make(sparse.shape, indices, values, is_coalesced)


def _make(size: Any, indices: Tensor, values: Tensor, is_coalesced: bool = False) -> Tensor:
    made: Tensor = _MAKES(
        len(indices),
        values.dim() - 1,
        list(size),
        indices,
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=META,
        is_coalesced=is_coalesced,
    )
    return made
