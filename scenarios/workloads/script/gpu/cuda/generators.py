"""Generators of random numbers on simulated GPUs: torch's of the CPU, which say that they are on "cuda"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_PLAIN: Any = torch._C.Generator


class _Kind(type(_PLAIN)):  # type: ignore[misc]
    """A class whose instances are all of torch's generators, as a script finds them by `isinstance`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _PLAIN)


def make_generators(indexed: Callable[[Any], Any], count: int) -> None:
    """Have `torch.Generator("cuda")` and `torch.cuda.default_generators`; values that are computed are drawn from them.

    `indexed` gives "cuda" the number of the device that is meant, and there are `count` GPUs.
    """

    class Generator(_PLAIN, metaclass=_Kind):  # type: ignore[misc]
        """A generator of the CPU or of a GPU."""

        def __new__(cls, device: Any = "cpu") -> Any:
            found = indexed(device)
            made = _PLAIN.__new__(cls if found.type == "cuda" else _PLAIN, "cpu" if found.type == "cuda" else found)
            if found.type == "cuda":
                made.number, made.offset = found.index, 0
            return made

        @property
        def device(self) -> torch.device:
            return torch.device("cuda", self.number)

        def manual_seed(self, seed: int) -> Any:
            self.offset = 0
            return super().manual_seed(seed)

        def get_offset(self) -> int:
            return int(self.offset)

        def set_offset(self, offset: int) -> None:
            self.offset = offset

        def get_state(self) -> torch.Tensor:
            """Return seed and offset as 16 bytes, as a GPU's generator does."""
            words = [_signed(self.initial_seed()), _signed(self.offset)]
            return torch.tensor(words, dtype=torch.int64, device="cpu").view(torch.uint8)

        def set_state(self, state: torch.Tensor) -> Any:
            if state.device.type != "cpu" or state.dtype != torch.uint8 or state.numel() not in (8, 16):
                raise RuntimeError("RNG state is wrong size: expected 8 or 16 bytes (uint8) on the CPU")
            seed, *offset = state.clone().view(torch.int64).tolist()
            self.manual_seed(seed)
            self.offset = offset[0] if offset else 0
            return self

        def clone_state(self) -> Any:
            return Generator(self.device).set_state(self.get_state())

        graphsafe_get_state = clone_state

        def graphsafe_set_state(self, other: Any) -> Any:
            return self.set_state(other.get_state())

        def __reduce__(self) -> Any:
            return _with_state, (self.device, self.get_state())

    torch.Generator = Generator  # type: ignore[misc]
    torch.cuda.default_generators = tuple(Generator(index) for index in range(count))


def _signed(number: int) -> int:
    """Return the 64 bits of a seed as torch's int64 has them."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _with_state(device: torch.device, state: torch.Tensor) -> Any:
    return torch.Generator(device).set_state(state)
