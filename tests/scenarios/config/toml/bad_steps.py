"""Files whose step is wrong (pipeline, data, launching, replication, shards, precision, optimizers, quantization)."""

from __future__ import annotations

from tests.scenarios.config.toml.bad_pieces import CLUSTER, DLRM, INLINE, WHOLE, Cases, edited

STEPS: Cases = {
    "no micro-batches": (
        DLRM + "[pipeline]\naccumulation = 0\n",
        [f"bad.toml: pipeline.accumulation = 0: expected {WHOLE}"],
    ),
    "a loader's keys without its rate": (
        DLRM + "[data]\nper = 'host'\nprefetch = 2\n",
        [
            "bad.toml: data.per = 'host': expected no per without samples_per_s",
            "bad.toml: data.prefetch = 2: expected no prefetch without samples_per_s",
        ],
    ),
    "a loader that delivers nothing": (
        DLRM + "[data]\nsamples_per_s = 0\nper = 'node'\nprefetch = 0\n",
        [
            "bad.toml: data.samples_per_s = 0: expected a number from 0.001 to 1e12",
            "bad.toml: data.per = 'node': expected 'rank' or 'host'",
            f"bad.toml: data.prefetch = 0: expected {WHOLE}",
        ],
    ),
    "copies on no path": (
        edited(DLRM, CLUSTER, INLINE) + "[data]\ncopies = true\n",
        [
            "bad.toml: cluster.inside.host_rate: missing; expected a GPU's rate to its host's memory, such as '25 GB/s'"
            " over PCIe 4.0, because data.copies = true"
        ],
    ),
    "a pipeline of copies without any": (
        DLRM + "[pipeline]\nkind = 'base'\n",
        [
            "bad.toml: pipeline.kind = 'base': expected no 'base', which copies batches ahead, without data.copies ="
            " true"
        ],
    ),
    "a replication without its group": (
        DLRM + "[replication]\nsync_every = 2\n",
        [f"bad.toml: replication.sharding_group_size: missing; expected {WHOLE}"],
    ),
    "a sharding group that does not divide the world": (
        edited(DLRM, CLUSTER, INLINE) + "[replication]\nsharding_group_size = 3\nsync_every = 0\n",
        [
            "bad.toml: replication.sharding_group_size = 3: expected a divisor of the cluster's 4 ranks",
            f"bad.toml: replication.sync_every = 0: expected {WHOLE}",
        ],
    ),
    "nodes that do not divide the sharding group": (
        edited(DLRM, CLUSTER, INLINE) + "[replication]\nsharding_group_size = 2\nnode_group_size = 4\n",
        ["bad.toml: replication.node_group_size = 4: expected a divisor of sharding_group_size = 2"],
    ),
    "hosts that do not divide the sharding group": (
        edited(DLRM, CLUSTER, INLINE.replace("hosts = 2\ngpus_per_host = 2", "hosts = 3\ngpus_per_host = 2"))
        + "[replication]\nsharding_group_size = 3\n",
        [
            "bad.toml: replication.node_group_size: missing; expected a divisor of sharding_group_size = 3, because"
            " cluster.gpus_per_host = 2 is none"
        ],
    ),
    "replicas of identical hosts": (
        edited(DLRM, CLUSTER, INLINE).replace("[run]\n", "[run]\nranks = 'alike'\n")
        + "[replication]\nsharding_group_size = 2\n",
        ["bad.toml: run.ranks = 'alike': expected 'each', because replication.sharding_group_size = 2"],
    ),
    "a table on a rank beyond the sharding group": (
        edited(DLRM, CLUSTER, INLINE) + "ranks = [2]\n[replication]\nsharding_group_size = 2\n",
        ["bad.toml: model.tables[0].ranks = [2]: expected ranks from 0 to 1"],
    ),
    "a table on a host beyond the sharding group": (
        edited(DLRM, CLUSTER, INLINE) + "hosts = [2]\n[replication]\nsharding_group_size = 2\nnode_group_size = 1\n",
        ["bad.toml: model.tables[0].hosts = [2]: expected hosts from 0 to 1"],
    ),
    "a table for more than a sharding group": (
        edited(DLRM, CLUSTER, INLINE).replace("rows = 10\n", "rows = 70_000_000\nsharding = ['row_wise']\n")
        + "[replication]\nsharding_group_size = 2\n",
        [
            "bad.toml: model.tables[0].rows = 70000000: expected at most 57042534 rows of 32 bytes, in the 1.7 GiB that"
            " one cluster has for tables, because it may be row_wise"
        ],
    ),
    "a batch enqueued late without a pipeline": (
        DLRM + "[pipeline]\nenqueue_batch_after_forward = true\n",
        [
            "bad.toml: pipeline.enqueue_batch_after_forward = true: expected no enqueue_batch_after_forward but with"
            " kind = 'sparse_dist'",
        ],
    ),
    "keys of shards without shards": (
        DLRM + "[dense_parallel]\nunits = ['top']\nshard_group_size = 2\n",
        [
            "bad.toml: dense_parallel.units = ['top']: expected no units but with kind = 'fsdp' or 'hsdp'",
            "bad.toml: dense_parallel.shard_group_size = 2: expected no shard_group_size but with kind = 'fsdp' or"
            " 'hsdp'",
        ],
    ),
    "shards that do not fit together": (
        DLRM
        + "[dense_parallel]\nkind = 'fsdp'\nunits = ['top', 'top']\nshard_group_size = 2\n"
        + "reduce_every_micro_batch = true\n"
        + "[compression]\nkind = 'batched_powersgd'\n",
        [
            "bad.toml: dense_parallel.units = ['top', 'top']: expected each submodule once",
            "bad.toml: dense_parallel.shard_group_size = 2: expected no shard_group_size but with kind = 'hsdp'",
            "bad.toml: dense_parallel.reduce_every_micro_batch = true: expected no reduce_every_micro_batch but with"
            " several micro-batches, pipeline.accumulation",
            "bad.toml: compression.kind = 'batched_powersgd': expected 'none' with dense_parallel.kind = 'fsdp': only"
            " DDP's gradient buckets are compressed",
        ],
    ),
    "what shards do not go with": (
        edited(DLRM, "dense_features", "loss_scaling = 'dynamic'\ndense_features")
        + "[dense_parallel]\nkind = 'fsdp'\n[launching]\ngrouped_all_reduce = true\n",
        [
            "bad.toml: model.loss_scaling = 'dynamic': expected no loss_scaling with dense_parallel.kind = 'fsdp': each"
            " rank would check its own shards only",
            "bad.toml: launching.grouped_all_reduce = true: expected false with dense_parallel.kind = 'fsdp': gradients"
            " of shards are scattered",
        ],
    ),
    "a shard group that does not divide the world": (
        edited(DLRM, CLUSTER, INLINE) + "[dense_parallel]\nkind = 'hsdp'\nshard_group_size = 3\n",
        [
            "bad.toml: dense_parallel.shard_group_size = 3: expected a divisor of the cluster's 4 ranks, and less",
        ],
    ),
    "replicas on one host": (
        edited(DLRM, CLUSTER, INLINE.replace("hosts = 2\ngpus_per_host = 2", "hosts = 1\ngpus_per_host = 2"))
        + "[dense_parallel]\nkind = 'hsdp'\n",
        [
            "bad.toml: dense_parallel.shard_group_size: missing; expected a divisor of the cluster's 2 ranks, and less,"
            " because cluster.gpus_per_host = 2 is all of them"
        ],
    ),
    "shards of identical hosts": (
        edited(DLRM, CLUSTER, INLINE).replace("[run]\n", "[run]\nranks = 'alike'\n")
        + "[dense_parallel]\nkind = 'hsdp'\nshard_group_size = 1\n",
        ["bad.toml: run.ranks = 'alike': expected 'each', because dense_parallel.shard_group_size = 1"],
    ),
    "a kind that is no kind, beside a key that only some kinds have": (
        DLRM + "[dense_parallel]\nkind = 'fspd'\nunits = ['top']\n",
        ["bad.toml: dense_parallel.kind = 'fspd': expected 'ddp', 'fsdp' or 'hsdp'"],
    ),
    "a state of nothing": (
        edited(DLRM, "dense_features", "optimizer = {kind = 'sgd', state = 'row'}\ndense_features"),
        ["bad.toml: model.optimizer.state = 'row': expected no state but with kind = 'adagrad'"],
    ),
    "moments of steps that have none": (
        edited(
            DLRM, "dense_features", "optimizer = {kind = 'adagrad', beta1 = 0.5, weight_decay = 0.1}\ndense_features"
        ),
        [
            "bad.toml: model.optimizer.beta1 = 0.5: expected no beta1 with kind = 'adagrad'",
            "bad.toml: model.optimizer.weight_decay = 0.1: expected no weight_decay with kind = 'adagrad'",
        ],
    ),
    "an epsilon of plain steps": (
        edited(DLRM, "dense_features", "optimizer = {eps = 1e-6}\ndense_features"),
        ["bad.toml: model.optimizer.eps = 1e-06: expected no eps with kind = 'sgd'"],
    ),
    "moments that never change": (
        edited(DLRM, "dense_features", "optimizer = {kind = 'adam', beta2 = 1, state = 'row'}\ndense_features"),
        [
            "bad.toml: model.optimizer.beta2 = 1: expected a number from 0 to below 1",
            "bad.toml: model.optimizer.state = 'row': expected no state but with kind = 'adagrad'",
        ],
    ),
    "an optimizer that torch lacks": (
        edited(DLRM, "dense_features", "optimizer = {kind = 'partial_rowwise_lamb'}\ndense_features"),
        [
            "bad.toml: model.dense_optimizer: missing; expected the dense part's own, such as"
            " {kind = 'Adam', lr = 0.001}, because torch.optim has none for 'partial_rowwise_lamb'"
        ],
    ),
    "Adam in halves": (
        edited(
            DLRM,
            "dense_features",
            "optimizer = {kind = 'adam'}\ndtype = 'float16'\ndense_features",
        ),
        [
            "bad.toml: model.dense_optimizer: missing; expected the dense part's own, such as"
            " {kind = 'Adam', lr = 0.001}, because torch.optim.Adam divides by 0 in model.dtype = 'float16'"
        ],
    ),
    "autocast to what the GPU has no rate for": (
        edited(edited(DLRM, CLUSTER, INLINE), "dense_features", "autocast = 'bfloat16'\ndense_features"),
        [
            "bad.toml: cluster.gpu.flops.bfloat16: missing; expected a compute rate such as '67 TFLOP/s',"
            " because model.autocast = 'bfloat16'"
        ],
    ),
    "autocast of what is lowered already": (
        edited(DLRM, "dense_features", "dtype = 'bfloat16'\nautocast = 'float16'\ntf32 = true\ndense_features"),
        [
            "bad.toml: model.autocast = 'float16': expected no autocast with dtype = 'bfloat16'",
            "bad.toml: model.tf32 = true: expected no tf32 with dtype = 'bfloat16'",
        ],
    ),
    "a scale for gradients of halves": (
        edited(
            DLRM,
            "dense_features",
            "dtype = 'float16'\nloss_scaling = 'dynamic'\ndense_features",
        ),
        [
            "bad.toml: model.loss_scaling = 'dynamic': expected no loss_scaling with dtype = 'float16':"
            " GradScaler takes gradients of float32 only",
        ],
    ),
    "a scale of another kind": (
        edited(DLRM, "dense_features", "loss_scaling = 'static'\ndense_features"),
        ["bad.toml: model.loss_scaling = 'static': expected 'dynamic' or a number from 2**-64 to 2**64"],
    ),
    "a scale of nothing": (
        edited(DLRM, "dense_features", "loss_scaling = 0\ndense_features"),
        ["bad.toml: model.loss_scaling = 0: expected 'dynamic' or a number from 2**-64 to 2**64"],
    ),
    "dtype that the GPU has no rate for": (
        edited(edited(DLRM, CLUSTER, INLINE), "embedding_dim = 8", 'embedding_dim = 8\ndtype = "bfloat16"'),
        [
            "bad.toml: cluster.gpu.flops.bfloat16: missing;"
            " expected a compute rate such as '67 TFLOP/s', because model.dtype = 'bfloat16'"
        ],
    ),
    "fp8 without the size of a row": (
        DLRM + "[qcomms]\nforward_precision = 'fp8'\n",
        [f"bad.toml: qcomms.fp8_quantize_dim: missing; expected {WHOLE}"],
    ),
    "gradients in fp8 without the size of a row": (
        DLRM + "[qcomms]\nbackward_precision = 'fp8'\n",
        [f"bad.toml: qcomms.fp8_quantize_dim: missing; expected {WHOLE}"],
    ),
    "fp8 in rows that TorchRec pads": (
        DLRM + "[qcomms]\nbackward_precision = 'fp8'\nfp8_quantize_dim_bwd = 6\n",
        ["bad.toml: qcomms.fp8_quantize_dim_bwd = 6: expected a multiple of 4"],
    ),
    "keys of fp8 without it": (
        DLRM + "[qcomms]\nforward_precision = 'int8'\nfp8_quantize_dim = 4\nfp8_bwd_uses_143 = true\n",
        [
            "bad.toml: qcomms.fp8_quantize_dim = 4: expected no fp8_quantize_dim but with a precision of 'fp8'",
            "bad.toml: qcomms.fp8_bwd_uses_143 = true:"
            " expected no fp8_bwd_uses_143 but with backward_precision = 'fp8'",
        ],
    ),
    "loss scales of what has none": (
        DLRM + "[qcomms]\nforward_precision = 'int8'\nforward_loss_scale = 2.0\nbackward_loss_scale = 2.0\n",
        [
            "bad.toml: qcomms.forward_loss_scale = 2.0:"
            " expected no forward_loss_scale with forward_precision = 'int8', which has none",
            "bad.toml: qcomms.backward_loss_scale = 2.0:"
            " expected no backward_loss_scale with backward_precision = 'fp32', which has none",
        ],
    ),
    "halves that are quantized": (
        edited(DLRM, "embedding_dim = 8", 'embedding_dim = 8\ndtype = "float16"')
        + "[qcomms]\nforward_precision = 'fp16'\n",
        [
            "bad.toml: qcomms.forward_precision = 'fp16':"
            " expected 'fp32' with model.dtype = 'float16', for only float32 is quantized"
        ],
    ),
    "mx4": (
        DLRM + "[qcomms]\nforward_precision = 'mx4'\n",
        ["bad.toml: qcomms.forward_precision = 'mx4': expected 'fp32', 'fp16', 'bf16', 'fp8' or 'int8'"],
    ),
    "grouped and compressed": (
        DLRM + "[launching]\ngrouped_all_reduce = true\n[compression]\nkind = 'layerwise_powersgd'\n",
        [
            "bad.toml: launching.grouped_all_reduce = true:"
            " expected false with compression.kind = 'layerwise_powersgd'",
        ],
    ),
    "scaled and compressed": (
        edited(DLRM, "dense_features", "loss_scaling = 'dynamic'\ndense_features")
        + "[compression]\nkind = 'batched_powersgd'\n",
        [
            "bad.toml: compression.kind = 'batched_powersgd': expected 'none' with model.loss_scaling = 'dynamic': what"
            " a step leaves out of scaled gradients is added to the next one's, of another scale"
        ],
    ),
    "replicas of rows in host memory": (
        edited(DLRM, CLUSTER, INLINE.replace('latency = "1 us"}\nnic', 'latency = "1 us", host_rate = "1 GB/s"}\nnic'))
        + "kernel = 'fused_uvm'\n[replication]\nsharding_group_size = 2\n",
        [
            "bad.toml: model.tables[0].kernel = 'fused_uvm': expected 'fused' with replication, which averages rows in"
            " GPU memory"
        ],
    ),
}
