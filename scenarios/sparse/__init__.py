"""Sparse features and their exchange between ranks, under TorchRec's names; see docs/explanation/sparse.md."""

from scenarios.sparse.blocks import Bucketized
from scenarios.sparse.bucketize import block_bucketize
from scenarios.sparse.groups import ShardedGroup, build_groups, outputs_to_tables, tables_to_outputs
from scenarios.sparse.input_dist import (
    DpSparseFeaturesDist,
    RwSparseFeaturesDist,
    TwRwSparseFeaturesDist,
    TwSparseFeaturesDist,
)
from scenarios.sparse.keyed_jagged import KeyedJagged, concat
from scenarios.sparse.output_dist import (
    DpPooledEmbeddingDist,
    RwPooledEmbeddingDist,
    TwPooledEmbeddingDist,
    TwRwPooledEmbeddingDist,
)
from scenarios.sparse.tables import ShardedTable, TableShard, tables_of_plan

__all__ = [
    "Bucketized",
    "block_bucketize",
    "KeyedJagged",
    "concat",
    "TwRwSparseFeaturesDist",
    "TwSparseFeaturesDist",
    "RwSparseFeaturesDist",
    "DpSparseFeaturesDist",
    "TwRwPooledEmbeddingDist",
    "TwPooledEmbeddingDist",
    "RwPooledEmbeddingDist",
    "DpPooledEmbeddingDist",
    "ShardedTable",
    "TableShard",
    "tables_of_plan",
    "ShardedGroup",
    "build_groups",
    "outputs_to_tables",
    "tables_to_outputs",
]
