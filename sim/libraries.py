"""The libraries that the simulator knows, by the name that scenarios give them."""

from __future__ import annotations

from sim.gloo.library import GLOO
from sim.library import Library
from sim.nccl.library import NCCL

LIBRARIES: dict[str, Library] = {library.name: library for library in (GLOO, NCCL)}
