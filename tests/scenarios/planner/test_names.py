"""Code that uses TorchRec's planner reads the same here: names and order of arguments, recorded from TorchRec 1.8.0."""

from __future__ import annotations

import inspect

import pytest

from scenarios import planner

SIGNATURES = {
    "Storage": "hbm ddr ssd",
    "Perf": "fwd_compute fwd_comms bwd_compute bwd_comms input_dist_comms prefetch_compute",
    "Shard": "size offset storage perf rank",
    "ShardingOption": "name tensor module input_lengths batch_size sharding_type partition_by compute_kernel shards"
    " cache_params enforce_hbm stochastic_rounding bounds_check_mode dependency is_pooled feature_names output_dtype"
    " key_value_params num_poolings",
    "Topology": "world_size compute_device hbm_cap ddr_cap ssd_cap local_world_size pod_size hbm_mem_bw ddr_mem_bw"
    " ssd_mem_bw hbm_to_ddr_mem_bw intra_host_bw inter_host_bw bwd_compute_multiplier custom_topology_data"
    " weighted_feature_bwd_compute_multiplier uneven_sharding_perf_multiplier generalized_comms_bandwidths"
    " created_by_factory",
    "CustomTopologyData": "data world_size",
    "BasicCommsBandwidths": "inter_host_bw intra_host_bw",
    "DeviceHardware": "rank storage perf",
    "ParameterConstraints": "sharding_types compute_kernels min_partition pooling_factors num_poolings batch_sizes"
    " is_weighted cache_params enforce_hbm stochastic_rounding bounds_check_mode feature_names output_dtype"
    " device_group key_value_params use_virtual_table",
    "CacheParams": "algorithm load_factor reserved_memory precision prefetch_pipeline stats multipass_prefetch_config",
    "MultiPassPrefetchConfig": "num_passes min_splitable_pass_size",
    "PlannerError": "message error_type",
    "GreedyPerfPartitioner": "sort_by balance_modules",
    "GreedyPerfPartitioner.partition": "self proposal storage_constraint hbm_per_device",
    "MemoryBalancedPartitioner": "max_search_count tolerance balance_modules",
    "MemoryBalancedPartitioner.partition": "self proposal storage_constraint",
    "EmbeddingPerfEstimator": "topology constraints is_inference",
    "EmbeddingPerfEstimator.estimate": "self sharding_options sharder_data_map",
    "EmbeddingStorageEstimator": "topology constraints pipeline_type run_embedding_at_peak_memory is_inference",
    "EmbeddingStorageEstimator.estimate": "self sharding_options sharder_data_map",
    "EmbeddingEnumerator": "topology batch_size constraints estimator use_exact_enumerate_order",
    "EmbeddingEnumerator.enumerate": "self module sharders",
    "GreedyProposer": "use_depth threshold",
    "GreedyProposer.load": "self search_space enumerator",
    "GreedyProposer.feedback": "self partitionable plan perf_rating storage_constraint",
    "UniformProposer": "use_depth",
    "GridSearchProposer": "max_proposals",
    "EmbeddingShardingPlanner": "topology batch_size enumerator storage_reservation proposer partitioner"
    " performance_model stats constraints debug callbacks timeout_seconds plan_loader",
    "EmbeddingShardingPlanner.plan": "self module sharders",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_have_torchrecs_names_in_torchrecs_order(name: str) -> None:
    owner, _, method = name.partition(".")
    what = getattr(planner, owner)
    parameters = list(inspect.signature(getattr(what, method) if method else what).parameters)
    expected = SIGNATURES[name].split()
    assert parameters[: len(expected)] == expected


def test_the_package_exports_every_name() -> None:
    assert [name for name in planner.__all__ if not hasattr(planner, name)] == []
    assert {name.partition(".")[0] for name in SIGNATURES} <= set(planner.__all__)
