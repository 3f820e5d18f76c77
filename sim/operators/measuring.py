"""The overheads of measured rows, which are added to a law's time before the two are compared.

Rows of aiconfigurator-core and of HSTU's benchmark are graphs or trains of kernels with warm caches: nothing is added.
"""

from __future__ import annotations

# Two CUDA events around one operator, and its first kernel's start behind an event: an H200's linears of 4 us and more
# against a CUDA graph's (aiconfigurator-core) have 3.2 us more, its element-by-element operators of 4,096 elements 3.0
# us more than their law.
EVENTS_S = 3.1e-6
# Two CUDA events with no kernel between them: an H200's NCCL all-reduce of one rank in place.
NOTHING_S = 1.28e-6
# Gap between two kernels of one operator in such rows: measured less the sum of the kernels of three backward
# passes of fbgemm on an H200, 24 kernels each.
GAP_S = 1.1e-6
# Kernels of fbgemm's table-batched embeddings in such a row: the lookup, and the backward pass with the update.
BAGS_FORWARD_KERNELS, BAGS_BACKWARD_KERNELS = 4, 24
# Overhead in NeuSight's labels beyond the kernel: element-by-element operators of an A100 PCIe and a V100 PCIe, by
# their offset at 0 bytes, and the shortest products of an H100.
NEUSIGHT_S = 16.5e-6
