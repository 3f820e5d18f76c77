"""The kinds of kernels, and the tables of a profile with a value for each kind or dtype."""

from __future__ import annotations

from scenarios.config.keys import Names

# The kinds of kernels and what each does: the rows of efficiency, launches and ramps.
KERNEL_KINDS = {
    "gemm": "Matrix multiplications.",
    "embedding_lookup": "Lookups: gathering and pooling embedding rows.",
    "embedding_update": "Updates of embedding rows by their gradients.",
    "bucketize": "Sorting ids into the buckets of their shards.",
    "permute": "Reordering jagged features.",
    "elementwise": "Activations, sums and copies.",
    "reduction": "Checksums.",
    "qr": "QR in PowerSGD.",
    "optimizer": "Updates of dense parameters.",
}

# Kinds in traced modules: what each does, and the kind whose figures apply where it has none of its own.
TRACED_KINDS = {
    "attention": ("Fused attention.", "gemm"),
    "convolution": ("Convolutions.", "gemm"),
}

EFFICIENCY = Names(
    "Efficiency",
    "Share of the peak rates that each kind of kernel reaches; 'default' covers kinds that are not listed.",
    {
        **{kind: f"{meaning} Default: that of 'default'." for kind, meaning in KERNEL_KINDS.items()},
        **{kind: f"{meaning} Default: that of '{like}'." for kind, (meaning, like) in TRACED_KINDS.items()},
        "default": "Every kind of kernel that is not listed. Default 1.",
    },
)
LAUNCHES = Names(
    "Launches",
    "Launch time of one kernel of each kind, where it differs from `launch`. Calibrations write it.",
    {
        **{kind: f"{meaning} Default: cluster.gpu.launch." for kind, meaning in KERNEL_KINDS.items()},
        **{kind: f"{meaning} Default: that of '{like}'." for kind, (meaning, like) in TRACED_KINDS.items()},
    },
)
RAMPS = Names(
    "Ramps",
    "Fixed GPU time of one kernel of each kind beyond its work; it lowers the efficiency of small kernels.",
    {
        **{kind: f"{meaning} Default: cluster.gpu.ramp." for kind, meaning in KERNEL_KINDS.items()},
        **{kind: f"{meaning} Default: that of '{like}'." for kind, (meaning, like) in TRACED_KINDS.items()},
    },
)
FLOP_RATES = Names(
    "FlopRates",
    "Peak arithmetic rate by dtype, from the datasheet, without sparsity.",
    {
        "float64": "Peak rate of float64, such as '33.5 TFLOP/s'.",
        "float32": "Peak rate of float32, such as '67 TFLOP/s'. Required.",
        "tf32": "Peak rate of float32 matrix products rounded to TF32. Default: that of float32.",
        "bfloat16": "Peak rate of bfloat16. Required if a model computes in it.",
        "float16": "Peak rate of float16. Required if a model computes in it.",
    },
)
