"""Generators of random numbers on simulated GPUs: as Philox's, their state is a seed and an offset alone."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch

_PLAIN: Any = torch._C.Generator
# Numbers that a GPU's Philox draws at once, of which offsets are multiples (aten/src/ATen/cuda/CUDAGeneratorImpl.h).
_AT_ONCE = 4


class _Kind(type):
    """A class whose instances are all of torch's generators, as a script finds them by `isinstance`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _PLAIN)


class GpuGenerator(_PLAIN):  # type: ignore[misc]
    """A generator of the GPU of a number; to torch's C++ it is one of the CPU, from which nothing is drawn."""

    def __new__(cls, index: int) -> Any:
        made = _PLAIN.__new__(cls, "cpu")
        _of_gpus[made._cdata] = made
        made.index, made.state = index, {"seed": _PLAIN.initial_seed(made), "offset": 0}
        return made

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.index)

    def manual_seed(self, seed: int) -> Any:
        super().manual_seed(seed)  # which refuses what is no seed
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
        """Move behind as many numbers that are drawn."""
        self.state["offset"] += -(-count // _AT_ONCE) * _AT_ONCE

    def here(self) -> int:
        """Return a seed for what is drawn next: 32 bits, as the CPU's generator takes no more of a seed."""
        return zlib.crc32(f"{self.initial_seed()} {self.get_offset()}".encode())

    def get_state(self) -> torch.Tensor:
        """Return seed and offset as 16 bytes, as a GPU's generator does."""
        words = [_signed(self.initial_seed()), self.get_offset()]
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
        """Share the state of another one from now on, as a GPU's generators do."""
        self.state = other.state
        return self

    def __reduce__(self) -> Any:
        return _with_state, (self.device, self.get_state())


# By the address in C++, by which torch gives operators other objects of Python for them.
_of_gpus = WeakValueDictionary[int, GpuGenerator]()


def of_gpu(generator: Any) -> GpuGenerator | None:
    """Return the GPU's generator that an operator was given, None for one of the CPU."""
    return _of_gpus.get(generator._cdata)


def make_generators(indexed: Callable[[Any], Any], count: int) -> None:
    """Have `torch.Generator("cuda")` and `torch.cuda.default_generators`; values that are computed are drawn from them.

    `indexed` gives "cuda" the number of the device that is meant, and there are `count` GPUs.
    """

    class Generator(metaclass=_Kind):
        """A generator of the CPU or of a GPU."""

        def __new__(cls, device: Any = "cpu") -> Any:
            found = indexed(device)
            return GpuGenerator(found.index) if found.type == "cuda" else _PLAIN(found)

    torch.Generator = Generator  # type: ignore[misc]
    torch.cuda.default_generators = tuple(GpuGenerator(index) for index in range(count))


def _signed(number: int) -> int:
    """Return the 64 bits of a seed as torch's int64 has them."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _with_state(device: torch.device, state: torch.Tensor) -> Any:
    return torch.Generator(device).set_state(state)
