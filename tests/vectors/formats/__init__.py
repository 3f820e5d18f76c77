"""All formats of recorded files; each stands in a module of its own."""

from __future__ import annotations

from tests.vectors.files import Format
from tests.vectors.formats import (
    a2a_probes,
    all_to_all,
    bucketize,
    estimator,
    gloo_wire_bytes,
    nccl_tuning,
    partitioner,
    powersgd,
    twrw_dist,
    twrw_output_dist,
)

FORMATS: list[Format] = [
    partitioner.FORMAT,
    estimator.FORMAT,
    bucketize.FORMAT,
    twrw_dist.FORMAT,
    twrw_output_dist.FORMAT,
    all_to_all.FORMAT,
    a2a_probes.FORMAT,
    powersgd.FORMAT,
    gloo_wire_bytes.FORMAT,
    nccl_tuning.FORMAT,
]
