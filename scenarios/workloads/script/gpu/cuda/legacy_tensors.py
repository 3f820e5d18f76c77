"""Legacy tensor types such as torch.cuda.FloatTensor, by which older scripts create and convert GPU tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_DTYPES = {
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Short": torch.int16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Half": torch.float16,
    "Float": torch.float32,
    "Double": torch.float64,
    "Bool": torch.bool,
    "BFloat16": torch.bfloat16,
    "ComplexFloat": torch.complex64,
    "ComplexDouble": torch.complex128,
}
_NAMES = {dtype: f"{name}Tensor" for name, dtype in _DTYPES.items()}


class _TensorType(type):
    """A metaclass of GPU tensor types, one per dtype."""

    dtype: torch.dtype

    def __call__(cls, *given: Any, device: Any = "cuda") -> Tensor:
        if len(given) == 1 and not isinstance(given[0], int):
            if isinstance(given[0], torch.Size):
                return torch.empty(given[0], dtype=cls.dtype, device=device)
            return torch.as_tensor(given[0], dtype=cls.dtype).to(device)
        return torch.empty(given or 0, dtype=cls.dtype, device=device)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.is_cuda and instance.dtype == cls.dtype

    def __repr__(cls) -> str:
        return f"<class 'torch.cuda.{cls.__name__}'>"


def follow_types() -> None:
    """Provide torch.cuda's tensor types, `Tensor.type`, `Tensor.new` and torch.set_default_tensor_type."""
    tensor: Any = Tensor
    kinds = {f"{name}Tensor": _TensorType(f"{name}Tensor", (), {"dtype": dtype}) for name, dtype in _DTYPES.items()}
    for name, kind in kinds.items():
        if hasattr(torch.cuda, name):
            setattr(torch.cuda, name, kind)
    of_type, new, set_default = tensor.type, tensor.new, torch.set_default_tensor_type

    def find_type(dtype: Any) -> _TensorType | None:
        name = dtype.removeprefix("torch.cuda.") if isinstance(dtype, str) and "torch.cuda." in dtype else None
        return dtype if isinstance(dtype, _TensorType) else kinds.get(name or "")

    def convert(self: Tensor, dtype: Any = None, non_blocking: bool = False, **more: Any) -> Any:
        if dtype is None:
            return f"torch.cuda.{_NAMES[self.dtype]}" if self.is_cuda else of_type(self)
        if (kind := find_type(dtype)) is not None:
            return self.to("cuda" if not self.is_cuda else self.device, kind.dtype, non_blocking=non_blocking)
        if self.is_cuda:
            # torch itself says which dtype a name of a CPU tensor type means.
            other = dtype if isinstance(dtype, torch.dtype) else torch.empty(0, device="cpu").type(dtype).dtype
            return self.to(dtype=other) if isinstance(dtype, torch.dtype) else self.to("cpu", other)
        return of_type(self, dtype, non_blocking=non_blocking, **more)

    def make(self: Tensor, *given: Any, device: Any = None) -> Tensor:
        if not self.is_cuda:
            return new(self, *given, **({} if device is None else {"device": device}))  # type: ignore[no-any-return]
        if self.layout == torch.sparse_coo:  # of indices, values and size, as in SparseAdam
            return torch.sparse_coo_tensor(*given, check_invariants=False)
        return kinds[_NAMES[self.dtype]](*given, device=device or self.device)

    def default(kind: Any) -> None:
        found = find_type(kind)
        torch.set_default_device(None if found is None else "cuda")
        set_default(kind) if found is None else torch.set_default_dtype(found.dtype)

    tensor.type, tensor.new, torch.set_default_tensor_type = convert, make, default
