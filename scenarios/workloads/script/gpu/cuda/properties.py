"""Properties of a simulated GPU for scripts: the profile's values, and those that its compute capability implies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGpu:
    """A host's GPUs as a script sees them.

    Attributes:
        count: the number of GPUs.
        l2_bytes: the part of L2 that caches one kernel's data.
        l2_total_bytes: the size of L2.
        has_values: whether tensors are computed.
        capability: the compute capability.
        multiprocessors: the number of multiprocessors; None if the profile does not say.
    """

    count: int
    name: str
    memory_bytes: int
    l2_bytes: float
    l2_total_bytes: int
    has_values: bool
    capability: tuple[int, int]
    multiprocessors: int | None


# By compute capability: threads and bytes of shared memory per multiprocessor (CUDA C++ Programming Guide, table
# "Technical Specifications per Compute Capability").
_OF_MULTIPROCESSOR = {
    (7, 0): (2048, 96 * _KIB),
    (7, 5): (1024, 64 * _KIB),
    (8, 0): (2048, 164 * _KIB),
    (8, 6): (1536, 100 * _KIB),
    (8, 9): (1536, 100 * _KIB),
    (9, 0): (2048, 228 * _KIB),
    (10, 0): (2048, 228 * _KIB),
    (10, 3): (2048, 228 * _KIB),
    (12, 0): (1536, 100 * _KIB),
}
# CUDA reserves 1 KiB of a block's shared memory since compute capability 8.0 (the same guide).
_KEPT_BYTES = _KIB


class Properties:
    """The result of `torch.cuda.get_device_properties` for a simulated GPU.

    Raises:
        AttributeError: neither profile nor compute capability gives the value; the message is one sentence.
    """

    def __init__(self, gpu: SeenGpu) -> None:
        major, minor = gpu.capability
        threads, shared_bytes = _OF_MULTIPROCESSOR[gpu.capability]
        self.name, self.total_memory = gpu.name, gpu.memory_bytes
        self.major, self.minor = major, minor
        self.is_integrated = self.is_multi_gpu_board = 0
        # These rows of the guide's table are equal for all of these compute capabilities.
        self.warp_size, self.max_threads_per_block, self.regs_per_multiprocessor = 32, 1024, 65_536
        self.shared_memory_per_block = 48 * _KIB
        self.max_threads_per_multi_processor = threads
        self.shared_memory_per_multiprocessor = shared_bytes
        self.shared_memory_per_block_optin = shared_bytes - (_KEPT_BYTES if major >= 8 else 0)
        if gpu.multiprocessors is not None:
            self.multi_processor_count = gpu.multiprocessors
        if gpu.l2_total_bytes:
            self.L2_cache_size = gpu.l2_total_bytes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        key = {"multi_processor_count": "multiprocessors", "L2_cache_size": "l2"}.get(name)
        expected = "" if key is None else f": expected cluster.gpu.{key}"
        raise AttributeError(f"torch.cuda.get_device_properties: {name} is not in the profile of {self.name}{expected}")

    def __repr__(self) -> str:
        return f"_CudaDeviceProperties({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
