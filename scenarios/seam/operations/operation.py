"""The union of all descriptions of operators that have a law."""

from __future__ import annotations

from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.bags import BagsBackward, BagsForward
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.moves import Cat, HostCopy, OneRankCollective
from scenarios.seam.operations.normalisations import BatchNorm, NllLoss, RowNorm, Softmax
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import Pointwise
from scenarios.seam.operations.products import Product
from scenarios.seam.operations.reductions import Pool, Qr, Reduction
from scenarios.seam.operations.rows import EmbeddingBackward, Gather, Index, IndexPut, ScatterAdd
from scenarios.seam.operations.sorting import BucketizeSparse, PermutePooled, PermuteSparse, Scan, Sort

Operation = (
    Product
    | Attention
    | Convolution
    | Pointwise
    | Reduction
    | Qr
    | Pool
    | Softmax
    | RowNorm
    | BatchNorm
    | NllLoss
    | Gather
    | Index
    | IndexPut
    | EmbeddingBackward
    | ScatterAdd
    | Cat
    | HostCopy
    | OneRankCollective
    | Foreach
    | Sort
    | Scan
    | PermuteSparse
    | BucketizeSparse
    | PermutePooled
    | BagsForward
    | BagsBackward
)
