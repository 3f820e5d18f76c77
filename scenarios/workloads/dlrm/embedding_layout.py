"""Where the rows of embedding tables lie; what is done with them is left to `embedding_host` and `embedding_device`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Added to the root of Adagrad's state, as torch.optim.Adagrad does by default.
ADAGRAD_EPSILON = 1e-10


class Places(NamedTuple):
    """Of each piece: its number of rows and columns, the number of its first row among all, where its first element
    lies in storage, and in which column of the pooled outputs it begins.
    """

    rows: Array
    dims: Array
    first_rows: Array
    offsets: Array
    columns: Array

    @staticmethod
    def of(rows: list[int], dims: list[int]) -> Places:
        """Pieces one behind the other, each by rows."""
        counts, widths = np.array(rows, np.int64), np.array(dims, np.int64)
        sizes = counts * widths
        return Places(
            rows=counts,
            dims=widths,
            first_rows=counts.cumsum() - counts,
            offsets=sizes.cumsum() - sizes,
            columns=widths.cumsum() - widths,
        )
