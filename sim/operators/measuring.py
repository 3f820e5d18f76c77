"""Says what measured rows hold beside the kernel: added to a law's time before the two are compared."""

from __future__ import annotations

# Two CUDA events around one operator: an H200's linears of 4 us and more against a CUDA graph's (aiconfigurator-core).
EVENTS_S = 3.2e-6
# What NeuSight's labels hold beside the kernel, by the shortest of an H100.
NEUSIGHT_S = 16e-6
