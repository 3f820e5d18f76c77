"""Derive the roles of spans that were recorded without, from the labels that releases before roles gave them.

Only runs of these releases, and a profiler's traces, need it; `scenarios.seam.roles` defines the roles.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scenarios.seam import roles

# The columns that determine the role of a span.
COLUMNS = ["kind", "kernel", "label", "stream"]

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


def roles_of(spans: pd.DataFrame) -> npt.NDArray[Any]:
    """Return `role_of` each row of a frame with `COLUMNS`."""
    numbers, known = pd.factorize(pd.MultiIndex.from_frame(spans[COLUMNS]))
    found = np.array([role_of(*map(str, key)) for key in known], object)
    return found[numbers] if len(spans) else np.zeros(0, object)
