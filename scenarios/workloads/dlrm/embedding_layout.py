"""Layout of a rank's embedding rows in one flat tensor, shared by the CPU and the torch kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[Any]

# Added to the root of Adagrad's state, as torch.optim.Adagrad does by default.
ADAGRAD_EPSILON = 1e-10


class Places(NamedTuple):
    """Each piece's rows and columns, its first row among all rows, its first element in storage, and its first
    column in the pooled outputs; int64 arrays, [pieces].
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


class Storage(NamedTuple):
    """All rows of one rank, flat; and with Adagrad one float32 per row, all pieces' one after the other."""

    weights: Tensor
    places: Places
    squares: Tensor


class Named(NamedTuple):
    """The ids of all bags, piece by piece (rows of the piece), and [pieces * samples] lengths of the bags."""

    ids: Tensor
    lengths: Tensor
