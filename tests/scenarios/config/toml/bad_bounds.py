"""Values that no cluster and no training has, so that they are typos: just beyond each bound, and what is said."""

from __future__ import annotations

from tests.scenarios.config.toml.bad_pieces import A2A_INLINE, DLRM, EXCHANGE, POWERSGD, TABLE, Cases, edited

_POISSON = edited(DLRM, "ids_per_sample = 1", "ids_per_sample = {mean = 1000000.5}")

BOUNDS: Cases = {
    "size of an exbibyte": (
        edited(EXCHANGE, "1 MiB", "1024 PiB"),
        ["bad.toml: exchange.size = '1024 PiB': expected a size below 1024 PiB"],
    ),
    "size of less than a byte": (
        edited(EXCHANGE, "1 MiB", "3 bit"),
        ["bad.toml: exchange.size = '3 bit': expected a size of at least 1 B"],
    ),
    "rates of a bit and of more than all": (
        edited(edited(A2A_INLINE, "1 TB/s", "1 bit/s"), 'per = "gpu", rate = "1 GB/s"', 'per = "gpu", rate = "2 EB/s"'),
        [
            "bad.toml: cluster.gpu.memory_rate = '1 bit/s': expected a rate of at least 1 kB/s",
            "bad.toml: cluster.nic.rate = '2 EB/s': expected a rate of at most 1 EB/s",
        ],
    ),
    "compute rates": (
        EXCHANGE + "[cluster.gpu.flops]\nfloat32 = '0.5 FLOP/s'\nfloat16 = '1.1 EFLOP/s'\n",
        [
            "bad.toml: cluster.gpu.flops.float32 = '0.5 FLOP/s': expected a compute rate of at least 1 MFLOP/s",
            "bad.toml: cluster.gpu.flops.float16 = '1.1 EFLOP/s': expected a compute rate of at most 1 EFLOP/s",
        ],
    ),
    "arithmetic": (
        POWERSGD + "backward_flops = '1001 EFLOP'\n",
        ["bad.toml: gradients.backward_flops = '1001 EFLOP': expected an amount of arithmetic of at most 1000 EFLOP"],
    ),
    "latency of more than a second": (
        EXCHANGE + "[cluster.network]\nlatency = '1001 ms'\n[run]\ntimeout = '1001 h'\n",
        [
            "bad.toml: cluster.network.latency = '1001 ms': expected a time of at most 1 s",
            "bad.toml: run.timeout = '1001 h': expected a time of at most 1000 h",
        ],
    ),
    "nothing but headers": (
        edited(EXCHANGE, "hosts = 2", "hosts = 2\npayload_share = 0.009") + "[cluster.gpu.efficiency]\nqr = 1e-7\n",
        [
            "bad.toml: cluster.payload_share = 0.009: expected a share from 0.01 to 1",
            "bad.toml: cluster.gpu.efficiency.qr = 1e-07: expected a share from 0.000001 to 1",
        ],
    ),
    "more machines than there are": (
        edited(edited(A2A_INLINE, "hosts = 2", "hosts = 1048577"), "gpus_per_host = 2", "gpus_per_host = 1048577"),
        [
            "bad.toml: cluster.hosts = 1048577: expected a whole number of at most 1048576",
            "bad.toml: cluster.gpus_per_host = 1048577: expected a whole number of at most 1048576",
        ],
    ),
    "more cores than hosts have": (
        edited(A2A_INLINE, "cores = 4", "cores = 4097"),
        ["bad.toml: cluster.cores = 4097: expected a whole number of at most 4096"],
    ),
    "more GPUs than there are": (
        edited(edited(A2A_INLINE, "hosts = 2", "hosts = 131073"), "gpus_per_host = 2", "gpus_per_host = 8"),
        [
            "bad.toml: cluster.hosts = 131073: expected at most 131072, because gpus_per_host = 8"
            " and no more than 1048576 GPUs in all are supported"
        ],
    ),
    "longer than anyone waits": (
        edited(DLRM, "batch_size = 4", "batch_size = 1000000001\nsteps = 1000000001"),
        [
            "bad.toml: run.batch_size = 1000000001: expected a whole number of at most 1000000000",
            "bad.toml: run.steps = 1000000001: expected a whole number of at most 1000000000",
        ],
    ),
    "bags without end": (
        _POISSON + edited(edited(TABLE, '"a"', '"b"'), "ids_per_sample = 1", "ids_per_sample = 1000001"),
        [
            "bad.toml: model.tables[0].ids_per_sample.mean = 1000000.5: expected a number of at most 1000000",
            "bad.toml: model.tables[1].ids_per_sample = 1000001: expected a whole number of at most 1000000",
        ],
    ),
    "exponents": (
        DLRM + "ids = {zipf = 100.5}\n",
        ["bad.toml: model.tables[0].ids.zipf = 100.5: expected a number of at most 100"],
    ),
    "skew": (
        EXCHANGE + "splits = 'random'\nskew = 101\n",
        ["bad.toml: exchange.skew = 101: expected a number of at most 100"],
    ),
    "learning rate": (
        edited(DLRM, "embedding_dim = 8", "embedding_dim = 8\noptimizer = {learning_rate = 1e7}"),
        ["bad.toml: model.optimizer.learning_rate = 10000000.0: expected a number of at most 1000000"],
    ),
    "layers wider than a matrix can be": (
        edited(DLRM, "bottom = [8, 8]", "bottom = [1000001, 8]"),
        ["bad.toml: model.bottom[0] = 1000001: expected a whole number of at most 1000000"],
    ),
    "rows beyond any address": (
        edited(DLRM, "rows = 10", "rows = 36028797018963968"),
        [
            "bad.toml: model.tables[0].rows = 36028797018963968:"
            " expected at most 36028797018963967 rows of 32 bytes, below 1024 PiB"
        ],
    ),
    "gradients beyond any address": (
        edited(POWERSGD, "[[4, 4]]", "[[4, 4], [536870912, 536870912]]"),
        [
            "bad.toml: gradients.shapes = [[4, 4], [536870912, 536870912]]:"
            " expected fewer than 288230376151711744 elements of float32 in all"
        ],
    ),
    "seeds": (
        POWERSGD + "[run]\nseed = -1\n[compression]\nrandom_seed = 4294967296\n",
        [
            "bad.toml: run.seed = -1: expected a whole number of at least 0",
            "bad.toml: compression.random_seed = 4294967296: expected a whole number of at most 4294967295",
        ],
    ),
}

UTMOST = {  # files that go up to the bounds, and are good
    "exchange": edited(EXCHANGE, "1 MiB", f"{2**60 - 4} B")
    + "splits = 'random'\nskew = 100\n[run]\nsteps = 1000000000\n"
    f"seed = {2**63 - 1}\ntimeout = '1000 h'\n[cluster.network]\nlatency = '1 s'\n",
    "cluster": edited(edited(A2A_INLINE, "hosts = 2", "hosts = 131072"), "gpus_per_host = 2", "gpus_per_host = 8")
    .replace("1 GB/s", "1 EB/s")
    .replace("1 TB/s", "8 kbit/s")
    .replace("cores = 4", "cores = 4\npayload_share = 0.01"),
    "model": edited(DLRM, "embedding_dim = 8", "embedding_dim = 8\noptimizer = {learning_rate = 1e6}").replace(
        "ids_per_sample = 1\n", "ids_per_sample = 1000000\nids = {zipf = 100}\n"
    ),
    "seed": POWERSGD + "[compression]\nkind = 'batched_powersgd'\nrandom_seed = 4294967295\n",
}
