"""The communication libraries of real ranks, by the name that scenarios give them; each makes its own at a rank."""

from __future__ import annotations

from real.libraries.gloo import Gloo
from real.libraries.nccl import Nccl

LIBRARIES: dict[str, type[Gloo | Nccl]] = {library.name: library for library in (Gloo, Nccl)}
