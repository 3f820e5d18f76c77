"""The lookup kernels of embedding tables, and where each keeps its rows; for planning, pricing and running tables."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class ComputeKernel(StrEnum):
    """A shard's lookup kernel: TorchRec's EmbeddingComputeKernel, with where its rows are stored."""

    DENSE = "dense"
    FUSED = "fused"
    FUSED_UVM = "fused_uvm"
    FUSED_UVM_CACHING = "fused_uvm_caching"
    QUANT = "quant"
    QUANT_UVM = "quant_uvm"
    QUANT_UVM_CACHING = "quant_uvm_caching"
    KEY_VALUE = "key_value"
    CUSTOMIZED_KERNEL = "customized_kernel"
    SSD_VIRTUAL_TABLE = "ssd_virtual_table"
    DRAM_VIRTUAL_TABLE = "dram_virtual_table"
    DRAM_SSD_VIRTUAL_TABLE = "dram_ssd_virtual_table"
    FUSED_TRITON = "fused_triton"

    def __repr__(self) -> str:
        """Return the name as files and sentences have it."""
        return repr(self.value)

    @property
    def is_in_host(self) -> bool:
        """Whether rows are in host memory; a cache on the device may hold some of them."""
        return "_uvm" in self

    @property
    def is_cached(self) -> bool:
        """Whether a cache on the device holds some of the rows in host memory."""
        return self.endswith("_uvm_caching")

    @property
    def reads_host(self) -> bool:
        """Whether each lookup reads its rows from host memory."""
        return self.endswith("_uvm")

    @property
    def is_on_ssd(self) -> bool:
        """Whether rows are on an SSD, with a cache on the device."""
        return self is ComputeKernel.KEY_VALUE

    @property
    def is_quantized(self) -> bool:
        """Whether rows are quantized, for inference."""
        return self.startswith("quant")

    @property
    def fbgemm_location(self) -> str:
        """fbgemm's name of the memory with the rows, for tables updated on a GPU."""
        return "MANAGED_CACHING" if self.is_cached else "MANAGED" if self.is_in_host else "DEVICE"


# Default, and the kernel of all tables of CPU processes, which have one memory.
DEFAULT_KERNEL = ComputeKernel.FUSED
COPIES_KERNEL = ComputeKernel.DENSE  # kernel of tables that every rank holds whole
# Kernels that scenarios may choose: rows in GPU memory, in host memory, or in host memory with a cache on the GPU.
SCENARIO_KERNELS = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING)
# Kernels that TorchRec's planner considers for a table without constraints.
USUAL_KERNELS = tuple(ComputeKernel)[:7]


def names_of(test: Callable[[ComputeKernel], bool]) -> str:
    """Return the kernels that scenarios may choose and that pass a test, as in 'fused' or 'fused_uvm'."""
    return " or ".join(repr(one) for one in SCENARIO_KERNELS if test(one))
