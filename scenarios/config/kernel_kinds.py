"""The kinds of kernels, and the tables of a profile with a value for each kind or dtype."""

from __future__ import annotations

from scenarios.config.keys import Names

# The kinds of kernels and what each does: the rows of efficiency, launches and ramps.
KERNEL_KINDS = {
    "gemm": "Matrix multiplications.",
    "embedding_lookup": "Gathering and pooling embedding rows.",
    "embedding_update": "Scattering gradients into embedding rows.",
    "bucketize": "Sorting ids into the buckets of their shards.",
    "permute": "Reordering jagged features.",
    "elementwise": "Activations, sums and copies.",
    "reduction": "Checksums.",
    "qr": "QR in PowerSGD.",
    "optimizer": "Updating dense parameters.",
}

# Kinds in traced modules: what each does, and the kind whose figures apply where it has none of its own.
TRACED_KINDS = {
    "attention": ("Fused attention.", "gemm"),
    "convolution": ("Convolutions.", "gemm"),
}

EFFICIENCY = Names(
    "Efficiency",
    "The share of the peak rates that each kind of kernel reaches; 'default' is for those not listed.",
    {
        **{kind: f"{meaning} Default: that of 'default'." for kind, meaning in KERNEL_KINDS.items()},
        **{kind: f"{meaning} Default: that of '{like}'." for kind, (meaning, like) in TRACED_KINDS.items()},
        "default": "Every kind of kernel that is not listed. Default 1.",
    },
)
LAUNCHES = Names(
    "Launches",
    "What launching one kernel of each kind costs, where that differs; a calibration writes it.",
    {
        **{kind: f"{meaning} Default: cluster.gpu.launch." for kind, meaning in KERNEL_KINDS.items()},
        **{kind: f"{meaning} Default: that of '{like}'." for kind, (meaning, like) in TRACED_KINDS.items()},
    },
)
RAMPS = Names(
    "Ramps",
    "What one kernel of each kind takes beyond its work: so small ones have a smaller efficiency.",
    {
        **{kind: f"{meaning} Default: cluster.gpu.ramp." for kind, meaning in KERNEL_KINDS.items()},
        **{kind: f"{meaning} Default: that of '{like}'." for kind, (meaning, like) in TRACED_KINDS.items()},
    },
)
FLOP_RATES = Names(
    "FlopRates",
    "Peak arithmetic by dtype, from the datasheet and without sparsity.",
    {
        "float64": "Peak of float64, such as '33.5 TFLOP/s'.",
        "float32": "Peak of float32, such as '67 TFLOP/s'; required.",
        "tf32": "Peak of products of float32 that are rounded to TF32. Default: that of float32.",
        "bfloat16": "Peak of bfloat16; required where a model computes in it.",
        "float16": "Peak of float16; required where a model computes in it.",
    },
)
