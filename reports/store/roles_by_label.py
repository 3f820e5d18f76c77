"""Derive roles and sharding types of spans that were recorded without, from the labels that earlier releases gave them.

Only runs of these releases, and a profiler's traces, need it; `scenarios.seam.roles` defines the roles.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from scenarios.seam import roles
from scenarios.sharding_kind import ShardingKind

# The first match counts: label and stream for communications, the label for computations.
_SENT = [
    (r"input_dist\S*\.splits ", roles.SIZES),
    (r"input_dist", roles.IDS),
    (r"output_dist_backward", roles.GRADIENTS),
    (r"output_dist", roles.ROWS),
    (r"data_parallel", roles.TABLE_REDUCTION),
    (r"replication", roles.REPLICAS),
    (r"powersgd\.(?!vanilla)", roles.COMPRESSION),
    (r"gradients|powersgd|\.reduce \S+\.shards", roles.REDUCTION),
]
_COMPUTED = [
    (r"powersgd\.vanilla", roles.REDUCTION),
    (r"powersgd\.", roles.COMPRESSION),
    (r"^checksum$", roles.OTHER),
    (r"input_dist", roles.IDS),
    (r"output_dist_backward", roles.GRADIENTS),
    (r"output_dist", roles.ROWS),
    (r"\.gradients\.", roles.REDUCTION),
    (r"\.(copy_in|copy_out|cut)$", roles.PACKING),
    (r"(^|\.)(update|unscale)$", roles.OPTIMIZER),
    (r"data_parallel\w*\.gradients$", roles.TABLE_REDUCTION),
    (r"(table_wise|row_wise|column_wise|grid_shard)\w*\.gradients$", roles.GRADIENTS),
]
# Kernels that imply a role; kernels of tables only with these endings of labels.
_KERNELS = {
    "embedding_lookup": (r"\.lookup$", roles.LOOKUP),
    "embedding_update": (r"\.update$|data_parallel\w*\.gradients$", roles.UPDATE),
    "optimizer": (r"(^|\.)update$", roles.OPTIMIZER),
    "data_loader": (r"", roles.LOAD),
    "memcpy": (r"", roles.COPY),
}


def role_of(kind: str, kernel: str, label: str, stream: str) -> str:
    """Return the role that the label of a span implies; "" if none."""
    if kind == "step":
        return ""
    words, known = (label, _COMPUTED) if kind == "compute" else (f"{label} {stream}", _SENT)
    known = [_KERNELS[kernel]] if kernel in _KERNELS else known
    return next((role for pattern, role in known if re.search(pattern, words)), "")


def sharding_of(label: str) -> str:
    """Return the sharding type that the label of a span implies; "" if none."""
    return next((word for word in label.split(".") if word in tuple(ShardingKind)), "")


class DerivedColumn(NamedTuple):
    """The columns that determine another one, and the function of their values."""

    columns: list[str]
    of: Callable[..., str]

    def derive(self, spans: pd.DataFrame) -> npt.NDArray[Any]:
        """Return the column of a frame with `columns`."""
        numbers, known = pd.factorize(pd.MultiIndex.from_frame(spans[self.columns]))
        found = np.array([self.of(*map(str, key)) for key in known], object)
        return found[numbers] if len(spans) else np.zeros(0, object)


BY_LABEL = {
    "role": DerivedColumn(["kind", "kernel", "label", "stream"], role_of),
    "sharding": DerivedColumn(["label"], sharding_of),
}
