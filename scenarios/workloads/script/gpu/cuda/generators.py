"""Generators of random numbers on simulated GPUs: their state is a seed and an offset, as Philox's is."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch

_PLAIN: Any = torch._C.Generator
# Philox on a GPU draws 4 numbers at once, so offsets are multiples of 4 (aten/src/ATen/cuda/CUDAGeneratorImpl.h).
_AT_ONCE = 4


class _Kind(type):
    """A metaclass that makes `isinstance` accept all of torch's generators."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _PLAIN)


class GpuGenerator(_PLAIN):  # type: ignore[misc]
    """A generator of a GPU by number; torch's C++ sees a CPU generator, from which nothing is drawn."""

    def __new__(cls, index: int) -> Any:
        made = _PLAIN.__new__(cls, "cpu")
        _of_gpus[made._cdata] = made
        made.index, made.state = index, {"seed": _PLAIN.initial_seed(made), "offset": 0}
        return made

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.index)

    def manual_seed(self, seed: int) -> Any:
        super().manual_seed(seed)  # raises for invalid seeds
        self.state.update(seed=super().initial_seed(), offset=0)
        return self

    def seed(self) -> int:
        self.state.update(seed=super().seed(), offset=0)
        return self.initial_seed()

    def initial_seed(self) -> int:
        return int(self.state["seed"])

    def get_offset(self) -> int:
        return int(self.state["offset"])

    def set_offset(self, offset: int) -> None:
        if offset % _AT_ONCE:
            raise RuntimeError(f"offset must be a multiple of {_AT_ONCE}")
        self.state["offset"] = offset

    def advance(self, count: int) -> None:
        """Advance the offset by `count` numbers, rounded up."""
        self.state["offset"] += -(-count // _AT_ONCE) * _AT_ONCE

    def here(self) -> int:
        """Return a seed for the next draw, derived from seed and offset; 32 bits, as a CPU generator uses no more."""
        return zlib.crc32(f"{self.initial_seed()} {self.get_offset()}".encode())

    def get_state(self) -> torch.Tensor:
        """Return seed and offset as 16 bytes, as a GPU's generator does."""
        words = [_as_signed(self.initial_seed()), self.get_offset()]
        return torch.tensor(words, dtype=torch.int64, device="cpu").view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> Any:
        if state.device.type != "cpu" or state.dtype != torch.uint8 or state.numel() not in (8, 16):
            raise RuntimeError("RNG state is wrong size: expected 8 or 16 bytes (uint8) on the CPU")
        seed, *offset = state.clone().view(torch.int64).tolist()
        self.manual_seed(seed)
        self.set_offset(offset[0] if offset else 0)
        return self

    def clone_state(self) -> Any:
        return GpuGenerator(self.index).set_state(self.get_state())

    def graphsafe_get_state(self) -> Any:
        return GpuGenerator(self.index).graphsafe_set_state(self)

    def graphsafe_set_state(self, other: Any) -> Any:
        """Share the state of another generator from now on, as a GPU's generators do."""
        self.state = other.state
        return self

    def __reduce__(self) -> Any:
        return _with_state, (self.device, self.get_state())


# The key is the C++ address, as torch passes operators other Python objects for the same generator.
_of_gpus = WeakValueDictionary[int, GpuGenerator]()


def of_gpu(generator: Any) -> GpuGenerator | None:
    """Return the GPU generator that an operator was given, None for a CPU generator."""
    return _of_gpus.get(generator._cdata)


def make_generators(indexed: Callable[[Any], Any], count: int) -> None:
    """Provide `torch.Generator("cuda")` and `torch.cuda.default_generators`, from which computed values are drawn.

    `indexed` adds the current GPU's number to "cuda"; `count` is the number of GPUs.
    """

    class Generator(metaclass=_Kind):
        """A factory of CPU and GPU generators."""

        def __new__(cls, device: Any = "cpu") -> Any:
            found = indexed(device)
            return GpuGenerator(found.index) if found.type == "cuda" else _PLAIN(found)

    torch.Generator = Generator  # type: ignore[misc]
    torch.cuda.default_generators = tuple(GpuGenerator(index) for index in range(count))


def _as_signed(number: int) -> int:
    """Return a seed's 64 bits as a signed integer, as torch's int64 stores them."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _with_state(device: torch.device, state: torch.Tensor) -> Any:
    return torch.Generator(device).set_state(state)
