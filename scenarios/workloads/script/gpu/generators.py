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
                made.number = found.index
            return made

        @property
        def device(self) -> torch.device:
            return torch.device("cuda", self.number)

    torch.Generator = Generator  # type: ignore[misc]
    torch.cuda.default_generators = tuple(Generator(index) for index in range(count))
