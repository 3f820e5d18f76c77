"""The kernels that look rows of tables up: where the rows of each lie, for all who place, price or run tables."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

# Those that a scenario's tables may have: rows in the GPU's memory, in the host's, or there with a cache in the GPU's.
LookUpKernel = Literal["fused", "fused_uvm", "fused_uvm_caching"]


class ComputeKernel(StrEnum):
    """Which lookup kernel serves a shard: TorchRec's EmbeddingComputeKernel, with where its rows lie."""

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

    @property
    def is_in_host(self) -> bool:
        """Whether rows lie in the host's memory; a cache on the device may hold some of them."""
        return "_uvm" in self

    @property
    def is_cached(self) -> bool:
        """Whether a cache on the device holds rows of those in the host's memory."""
        return self.endswith("_uvm_caching")

    @property
    def reads_host(self) -> bool:
        """Whether each look-up reads its rows from the host's memory."""
        return self.endswith("_uvm")

    @property
    def is_on_ssd(self) -> bool:
        """Whether rows lie on an SSD, with a cache on the device."""
        return self is ComputeKernel.KEY_VALUE

    @property
    def is_quantized(self) -> bool:
        """Whether rows are quantized, for inference."""
        return self.startswith("quant")

    @property
    def fbgemm_location(self) -> str:
        """fbgemm's name of where rows lie that it updates on a GPU."""
        return "MANAGED_CACHING" if self.is_cached else "MANAGED" if self.is_in_host else "DEVICE"


# Where nothing is said of a table, and of all tables of CPU processes, which have one memory.
DEFAULT_KERNEL = ComputeKernel.FUSED
COPIES_KERNEL = ComputeKernel.DENSE  # of tables that every rank holds whole
SCENARIO_KERNELS = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING)
# What TorchRec's planner looks at for a table whose constraints name none.
USUAL_KERNELS = tuple(ComputeKernel)[:7]
