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
    _seed(lambda: indexed("cuda").index)


def _seed(current: Callable[[], int]) -> None:
    """Have torch.cuda's functions seed the generators; torch.manual_seed calls that for all GPUs."""
    cuda: Any = torch.cuda

    def seed_all(seed: int | None = None) -> None:
        for each in cuda.default_generators:
            each.seed() if seed is None else each.manual_seed(int(seed))

    cuda.manual_seed = lambda seed: _nothing(cuda.default_generators[current()].manual_seed(int(seed)))
    cuda.seed = lambda: _nothing(cuda.default_generators[current()].seed())
    cuda.manual_seed_all, cuda.seed_all = seed_all, seed_all


def _nothing(_: Any) -> None:
    """Return nothing, as torch.cuda's functions do."""
