"""What users hand to `twinstep import torchrec`: a model, its collections, and a planner's constraints."""

from __future__ import annotations

import torch
from torchrec import (
    DataType,
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    PoolingType,
)
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import CacheParams

META = torch.device("meta")


def bags() -> list[EmbeddingBagConfig]:
    return [
        EmbeddingBagConfig(name="t_user", num_embeddings=40_000_000, embedding_dim=128, feature_names=["user"]),
        EmbeddingBagConfig(name="t_item", num_embeddings=9_000, embedding_dim=64, feature_names=["seen", "bought"]),
        EmbeddingBagConfig(
            name="t_tag", num_embeddings=500, embedding_dim=64, feature_names=["seen"], pooling=PoolingType.MEAN
        ),
    ]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sparse = EmbeddingBagCollection(tables=bags(), device=META)
        weighted = EmbeddingBagConfig(name="t_ad", num_embeddings=70, embedding_dim=8, feature_names=["ad"])
        self.weighted = EmbeddingBagCollection(tables=[weighted], device=META, is_weighted=True)
        words = EmbeddingConfig(
            name="t_word", num_embeddings=600, embedding_dim=16, feature_names=["word"], data_type=DataType.FP16
        )
        self.words = EmbeddingCollection(tables=[words], device=META)


def constraints() -> dict[str, ParameterConstraints]:
    return {
        "t_user": ParameterConstraints(
            sharding_types=["row_wise", "table_row_wise"],
            compute_kernels=["fused_uvm_caching"],
            cache_params=CacheParams(load_factor=0.1, reserved_memory=1.0),
            pooling_factors=[20.5],
        ),
        "t_item": ParameterConstraints(pooling_factors=[3.0, 0.5], min_partition=32, enforce_hbm=True),
        "t_word": ParameterConstraints(pooling_factors=[7.5], compute_kernels=["fused", "fused_uvm"]),
        "t_old": ParameterConstraints(),
    }


def planned() -> tuple[Model, dict[str, ParameterConstraints]]:
    return Model(), constraints()


def broken() -> None:
    raise ValueError("no tables today")
