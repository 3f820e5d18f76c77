"""Files that are wrong as files, in [run] or in [cluster], with all that is to be said about each."""

from __future__ import annotations

from tests.scenarios.config.toml.bad_pieces import (
    A2A_INLINE,
    CLUSTER,
    COLLECTIVE,
    DLRM,
    EXCHANGE,
    INLINE,
    LAYERS,
    PROFILES,
    RUN,
    TABLE,
    WHOLE,
    Cases,
    edited,
)


def _mesh(links: str, more: str = "") -> str:
    """Two GPUs a host, joined so."""
    return edited(A2A_INLINE, 'kind = "nvlink"', f'kind = "nvlink_mesh", {links}{more}')


_BRIDGE = ', bridge_rate = "16 GB/s"'

FILES: Cases = {
    "syntax": ("program = \n", ["bad.toml: line 1, column 11: expected valid TOML, found: Invalid value"]),
    "key twice": (
        "name = 'a'\nname = 'b'\n",
        ["bad.toml: line 2, column 11: expected valid TOML, found: Cannot overwrite a value"],
    ),
    "empty": (
        "",
        [
            "bad.toml: program: missing; expected 'dlrm', 'all_to_all', 'collective', 'powersgd', 'script', 'recording'"
            " or 'chakra'",
            "bad.toml: cluster: missing; expected a table",
        ],
    ),
    "unknown key": (
        edited(A2A_INLINE, 'latency = "1 us"}\n[exch', 'latncy = "5 us"}\n[exch'),
        [
            "bad.toml: cluster.nic.latncy = '5 us': unknown key; expected one of per, count, rate, latency, burst,"
            " connection_rate, window, initial_window"
        ],
    ),
    "unknown section": (
        EXCHANGE + "[optimizer]\nkind = 'sgd'\n",
        [
            "bad.toml: optimizer = {kind = 'sgd'}: unknown key; expected one of name, description, include, set,"
            " measured, program, run, cluster, model, sharding, buckets, compression, pipeline, data,"
            " launching, qcomms, replication, dense_parallel, exchange, collective, gradients, script, recording,"
            " chakra"
        ],
    ),
    "missing key beside a stranger": (
        edited(A2A_INLINE, 'latency = "1 us"}\n[exch', 'colour = "red"}\n[exch'),
        [
            "bad.toml: cluster.nic.colour = 'red': unknown key; expected one of per, count, rate, latency, burst,"
            " connection_rate, window, initial_window",
            "bad.toml: cluster.nic.latency: missing; expected a time such as '3 us'",
        ],
    ),
    "zero hosts": (edited(EXCHANGE, "hosts = 2", "hosts = 0"), [f"bad.toml: cluster.hosts = 0: expected {WHOLE}"]),
    "hosts that are no number": (
        edited(EXCHANGE, "hosts = 2", "hosts = true"),
        [f"bad.toml: cluster.hosts = true: expected {WHOLE}"],
    ),
    "too large for TOML": (
        EXCHANGE + "[run]\nseed = 9223372036854775808\n",
        ["bad.toml: run.seed = 9223372036854775808: expected a whole number of at most 9223372036854775807"],
    ),
    "negative batch": (
        edited(DLRM, "batch_size = 4", "batch_size = -1"),
        [f"bad.toml: run.batch_size = -1: expected {WHOLE}"],
    ),
    "no batch": (edited(DLRM, "batch_size = 4\n", ""), [f"bad.toml: run.batch_size: missing; expected {WHOLE}"]),
    "no run": (edited(DLRM, RUN, ""), [f"bad.toml: run: missing; expected batch_size = {WHOLE}"]),
    "batch without samples": (
        EXCHANGE + RUN,
        ["bad.toml: run.batch_size = 4: expected no batch_size with program = 'all_to_all'"],
    ),
    "wrong types everywhere": (
        'name = 3\nprogram = 7\nrun = 3\ncluster = "big"\nmodel = []\n',
        [
            "bad.toml: name = 3: expected a name without '/'",
            "bad.toml: program = 7: expected 'dlrm', 'all_to_all', 'collective', 'powersgd', 'script', 'recording'"
            " or 'chakra'",
            "bad.toml: run = 3: expected a table",
            "bad.toml: cluster = 'big': expected a table",
            "bad.toml: model = []: expected a table",
        ],
    ),
    "rate without its time": (
        edited(A2A_INLINE, 'rate = "1 GB/s", latency = "1 us"}\n[exch', 'rate = "400 Gb", latency = "1 us"}\n[exch'),
        ["bad.toml: cluster.nic.rate = '400 Gb': expected a rate such as '400 Gbit/s'"],
    ),
    "size for a rate": (
        edited(A2A_INLINE, 'memory_rate = "1 TB/s"', 'memory_rate = "80 GiB"'),
        ["bad.toml: cluster.gpu.memory_rate = '80 GiB': expected a rate such as '400 Gbit/s'"],
    ),
    "bare number": (
        edited(EXCHANGE, 'size = "1 MiB"', "size = 1048576"),
        ["bad.toml: exchange.size = 1048576: expected a size such as '80 GiB'"],
    ),
    "nothing a second": (
        edited(A2A_INLINE, 'memory_rate = "1 TB/s"', 'memory_rate = "0 TB/s"'),
        ["bad.toml: cluster.gpu.memory_rate = '0 TB/s': expected a rate of at least 1 kB/s"],
    ),
    "tcp in part": (
        EXCHANGE + "[cluster.tcp]\nqueue = '128 KiB'\nsend_buffer = '1 MiB'\nacknowledgements = 2\nwake = '1 us'\n"
        "send_rate = '2 GB/s'\npost = '1 us'\nissue = '1 us'\nmessage = '1 us'\nwake_spread = [1, 0.5]\n",
        [
            "bad.toml: cluster.tcp.acknowledgements = 2: expected a share from 0 to 1",
            "bad.toml: cluster.tcp.wake_spread = [1, 0.5]: expected two or more rising numbers of at least 0",
            "bad.toml: cluster.tcp.receive_rate: missing; expected a rate such as '400 Gbit/s'",
        ],
    ),
    "negative latency": (
        EXCHANGE + "[cluster.network]\nlatency = '-1 us'\n",
        ["bad.toml: cluster.network.latency = '-1 us': expected a time of at least 0 ns"],
    ),
    "share above one": (
        edited(EXCHANGE, "hosts = 2", "hosts = 2\npayload_share = 1.5"),
        ["bad.toml: cluster.payload_share = 1.5: expected a share from 0.01 to 1"],
    ),
    "NCCL's time and share": (
        edited(EXCHANGE, "hosts = 2", "hosts = 2\nnccl_start = 32\nnccl_p2p_share = 1.2"),
        [
            "bad.toml: cluster.nccl_start = 32: expected a time such as '3 us'",
            "bad.toml: cluster.nccl_p2p_share = 1.2: expected a share from 0.000001 to 1",
        ],
    ),
    "not a number": (
        EXCHANGE + "splits = 'random'\nskew = nan\n",
        ["bad.toml: exchange.skew = nan: expected a number of at least 0"],
    ),
    "unknown profile": (
        edited(EXCHANGE, "cpu_local", "dgx_h1000"),
        [
            f"bad.toml: cluster.profile = 'dgx_h1000': expected one of {PROFILES}, or a path that ends in .toml",
        ],
    ),
    "missing profile file": (
        edited(EXCHANGE, "cpu_local", "mine.toml"),
        ["bad.toml: cluster.profile = 'mine.toml': expected mine.toml to be a file"],
    ),
    "unknown dtype of kernels": (
        EXCHANGE + "[cluster.gpu.flops]\nfp8 = '1 TFLOP/s'\n[cluster.gpu.efficiency]\ngem = 0.5\n",
        [
            "bad.toml: cluster.gpu.flops.fp8 = '1 TFLOP/s': unknown key;"
            " expected one of float64, float32, tf32, bfloat16, float16",
            "bad.toml: cluster.gpu.efficiency.gem = 0.5: unknown key; expected one of gemm, embedding_lookup,"
            " embedding_update, bucketize, permute, elementwise, reduction, qr, optimizer, attention, convolution,"
            " default",
        ],
    ),
    "inline cluster without anything": (
        'program = "all_to_all"\n[cluster]\n[exchange]\nsize = "1 MiB"\n',
        [
            f"bad.toml: cluster.hosts: missing; expected {WHOLE}",
            f"bad.toml: cluster.gpus_per_host: missing; expected {WHOLE}",
            f"bad.toml: cluster.cores: missing; expected {WHOLE}",
            "bad.toml: cluster.host_memory: missing; expected a size such as '80 GiB'",
            "bad.toml: cluster.gpu: missing; expected a table",
            "bad.toml: cluster.inside: missing; expected a table",
            "bad.toml: cluster.nic: missing; expected a table",
        ],
    ),
    "no bridge": (
        edited(A2A_INLINE, '"nvlink"', '"pcie"'),
        ["bad.toml: cluster.inside.bridge_rate: missing; expected a rate such as '400 Gbit/s'"],
    ),
    "bridge beside nvlink": (
        edited(A2A_INLINE, 'kind = "nvlink"', 'kind = "nvlink", bridge_rate = "1 GB/s"'),
        ["bad.toml: cluster.inside.bridge_rate = '1 GB/s': expected no bridge_rate with kind = 'nvlink'"],
    ),
    "mesh without links": (
        edited(A2A_INLINE, 'kind = "nvlink"', 'kind = "nvlink_mesh"'),
        ["bad.toml: cluster.inside.links: missing; expected an array"],
    ),
    "links of no mesh": (
        edited(A2A_INLINE, 'kind = "nvlink"', 'kind = "nvlink", links = [[0, 1], [1, 0]]'),
        ["bad.toml: cluster.inside.links = [[0, 1], [1, 0]]: expected no links unless kind = 'nvlink_mesh'"],
    ),
    "links that are no counts": (
        _mesh("links = [[0, -1], [101, 0.5]]"),
        [
            "bad.toml: cluster.inside.links[0][1] = -1: expected a whole number of at least 0",
            "bad.toml: cluster.inside.links[1][0] = 101: expected a whole number of at most 100",
            "bad.toml: cluster.inside.links[1][1] = 0.5: expected a whole number of at least 0",
        ],
    ),
    "links of too few GPUs": (
        _mesh("links = [[0]]"),
        ["bad.toml: cluster.inside.links = [[0]]: expected a row for each GPU, because gpus_per_host = 2"],
    ),
    "links of one GPU": (
        edited(_mesh("links = [[0]]"), "gpus_per_host = 2", "gpus_per_host = 1"),
        ["bad.toml: cluster.inside.links = [[0]]: expected 2 to 16 rows, one for each GPU"],
    ),
    "links that are no square": (
        _mesh("links = [[0, 1], [1, 0, 1]]"),
        [
            "bad.toml: cluster.inside.links = [[0, 1], [1, 0, 1]]: expected 2 numbers in each row, as there are 2 rows,"
            " but row 1 has 3"
        ],
    ),
    "links to oneself": (
        _mesh("links = [[0, 1], [1, 2]]"),
        ["bad.toml: cluster.inside.links = [[0, 1], [1, 2]]: expected no NVLinks from GPU 1 to itself"],
    ),
    "links of one direction": (
        _mesh("links = [[0, 1], [2, 0]]"),
        ["bad.toml: cluster.inside.links = [[0, 1], [2, 0]]: expected as many NVLinks from GPU 0 to GPU 1 as back"],
    ),
    "GPUs that no links reach": (
        _mesh("links = [[0, 1, 0], [1, 0, 0], [0, 0, 0]]", _BRIDGE),
        [
            "bad.toml: cluster.inside.links = [[0, 1, 0], [1, 0, 0], [0, 0, 0]]: expected NVLinks that join all GPUs,"
            " but none lead from GPU 0 to GPU 2, not even over others"
        ],
    ),
    "no bridge between GPUs without links": (
        _mesh("links = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]"),
        ["bad.toml: cluster.inside.bridge_rate: missing; expected a rate such as '400 Gbit/s'"],
    ),
    "bridge beside links between all": (
        _mesh("links = [[0, 1], [1, 0]]", _BRIDGE),
        ["bad.toml: cluster.inside.bridge_rate = '16 GB/s': expected no bridge_rate where every two GPUs have NVLinks"],
    ),
    "shared interfaces without a count": (
        edited(A2A_INLINE, 'per = "gpu"', 'per = "host"'),
        [f"bad.toml: cluster.nic.count: missing; expected {WHOLE}"],
    ),
    "more interfaces than GPUs": (
        edited(A2A_INLINE, 'per = "gpu"', 'per = "gpu", count = 8'),
        ["bad.toml: cluster.nic.count = 8: expected 2, one for each GPU, or no count"],
    ),
    "oversubscription below one": (
        EXCHANGE + "[cluster.network]\nkind = 'leaf_spine'\nhosts_per_leaf = 1\noversubscription = 0.5\n",
        ["bad.toml: cluster.network.oversubscription = 0.5: expected a number of at least 1"],
    ),
    "slow parts that are not there": (
        A2A_INLINE
        + "[[cluster.slow]]\nhost = 2\ngpu = 2\nspeed = 0.5\n"
        + "[[cluster.slow]]\nhost = 1\nnic = 2\nspeed = 0.5\n"
        + "[[cluster.slow]]\nleaf = 0\nspeed = 0.5\n",
        [
            "bad.toml: cluster.slow[0].host = 2: expected a whole number below 2, which is cluster.hosts",
            "bad.toml: cluster.slow[0].gpu = 2: expected a whole number below 2, which is cluster.gpus_per_host",
            "bad.toml: cluster.slow[1].nic = 2: expected a whole number below 2, which is cluster.gpus_per_host",
            "bad.toml: cluster.slow[2].leaf = 0: expected no leaf unless cluster.network.kind = 'leaf_spine'",
        ],
    ),
    "slow interface beyond those that GPUs share": (
        edited(A2A_INLINE, 'per = "gpu"', 'per = "host", count = 1')
        + "[[cluster.slow]]\nhost = 0\nnic = 1\nspeed = 0.5\n",
        ["bad.toml: cluster.slow[0].nic = 1: expected a whole number below 1, which is cluster.nic.count"],
    ),
    "slow leaf beyond the last": (
        edited(EXCHANGE, "hosts = 2", "hosts = 5")
        + "[cluster.network]\nkind = 'leaf_spine'\nhosts_per_leaf = 2\n"
        + "[[cluster.slow]]\nleaf = 2\nspeed = 0.5\n[[cluster.slow]]\nleaf = 3\nhost = 0\nspeed = 0.5\n",
        [
            "bad.toml: cluster.slow[1].leaf = 3: expected a whole number below 3, which is the number of leaves",
            "bad.toml: cluster.slow[1].host = 0: expected no host with leaf",
        ],
    ),
    "slow by how much, and what": (
        A2A_INLINE
        + "[[cluster.slow]]\nhost = 0\ngpu = 0\nspeed = 1.5\n"
        + "[[cluster.slow]]\nhost = 0\nspeed = 0.5\n"
        + "[[cluster.slow]]\nhost = 0\ngpu = 0\nnic = 0\nspeed = 0.5\n"
        + "[[cluster.slow]]\ngpu = 0\n"
        + "[[cluster.slow]]\nhost = -1\nnic = 0\nspeed = 0\n",
        [
            "bad.toml: cluster.slow[0].speed = 1.5: expected a share from 0.000001 to 1",
            "bad.toml: cluster.slow[1] = {host = 0, speed = 0.5}: expected one of gpu, nic and leaf",
            "bad.toml: cluster.slow[2] = {host = 0, gpu = 0, nic = 0, speed = 0.5}: expected one of gpu, nic and leaf",
            "bad.toml: cluster.slow[3].speed: missing; expected a share from 0.000001 to 1",
            "bad.toml: cluster.slow[3].host: missing; expected a whole number of at least 0",
            "bad.toml: cluster.slow[4].host = -1: expected a whole number of at least 0",
            "bad.toml: cluster.slow[4].speed = 0: expected a share from 0.000001 to 1",
        ],
    ),
    "slow twice": (
        A2A_INLINE
        + "[[cluster.slow]]\nhost = 1\nnic = 0\nspeed = 0.5\n[[cluster.slow]]\nhost = 1\ngpu = 0\nspeed = 0.5\n"
        + "[[cluster.slow]]\nhost = 1\nnic = 0\nspeed = 0.25\n",
        [
            "bad.toml: cluster.slow[2] = {host = 1, nic = 0, speed = 0.25}: expected a part of its own, but"
            " cluster.slow[0] has it already"
        ],
    ),
    "slow as a table": (
        A2A_INLINE + "[cluster.slow]\nhost = 1\nnic = 0\nspeed = 0.5\n",
        ["bad.toml: cluster.slow = {host = 1, nic = 0, speed = 0.5}: expected an array"],
    ),
    "domains that hosts do not fill": (
        edited(A2A_INLINE, "hosts = 2", "hosts = 4").replace('"1 us"}', '"1 us", hosts_per_domain = 3}', 1),
        [
            "bad.toml: cluster.inside.hosts_per_domain = 3: expected a number that divides cluster.hosts = 4, or one"
            " that is no smaller"
        ],
    ),
    "a domain with shared NICs": (
        edited(A2A_INLINE, 'per = "gpu"', 'per = "host", count = 1').replace(
            '"1 us"}', '"1 us", hosts_per_domain = 2}', 1
        ),
        ["bad.toml: cluster.inside.hosts_per_domain = 2: expected 1, or a NIC for each GPU (cluster.nic.per = 'gpu')"],
    ),
    "a domain behind two leaves": (
        A2A_INLINE.replace('"1 us"}', '"1 us", hosts_per_domain = 2}', 1)
        + "[cluster.network]\nkind = 'leaf_spine'\nhosts_per_leaf = 1\n",
        [
            "bad.toml: cluster.inside.hosts_per_domain = 2: expected a number that divides"
            " cluster.network.hosts_per_leaf = 1, as a domain is behind one leaf"
        ],
    ),
    "a domain without NVLink": (
        EXCHANGE + "[cluster.inside]\nhosts_per_domain = 2\n",
        ["bad.toml: cluster.inside.hosts_per_domain = 2: expected no hosts_per_domain unless kind = 'nvlink'"],
    ),
    "rails with shared NICs": (
        edited(A2A_INLINE, 'per = "gpu"', 'per = "host", count = 1') + "[cluster.network]\nkind = 'rail_only'\n",
        [
            "bad.toml: cluster.network.kind = 'rail_only': expected a kind that joins all NICs, because"
            " cluster.nic.per = 'host'"
        ],
    ),
    "rails without NVLink": (
        EXCHANGE + "[cluster.network]\nkind = 'rail_only'\n",
        [
            "bad.toml: cluster.network.kind = 'rail_only': expected a kind that joins all NICs, because"
            " cluster.inside.kind = 'memory'"
        ],
    ),
    "leaves without a size": (
        EXCHANGE + "[cluster.network]\nkind = 'leaf_spine'\n",
        [f"bad.toml: cluster.network.hosts_per_leaf: missing; expected {WHOLE}"],
    ),
    "oversubscription of one switch": (
        EXCHANGE + "[cluster.network]\noversubscription = 2\n",
        ["bad.toml: cluster.network.oversubscription = 2: expected no oversubscription unless kind = 'leaf_spine'"],
    ),
    "nccl without GPUs": (
        EXCHANGE + "[run]\nlibrary = 'nccl'\n",
        ["bad.toml: run.library = 'nccl': expected 'gloo', because cluster.gpu.kind = 'cpu'"],
    ),
    "alike, each transfer for itself": (
        EXCHANGE + "[run]\nranks = 'alike'\nfidelity = 'flows'\n",
        ["bad.toml: run.ranks = 'alike': expected 'each', because run.fidelity = 'flows'"],
    ),
    "alike over gloo": (
        EXCHANGE + "[run]\nranks = 'alike'\nfidelity = 'links'\n",
        ["bad.toml: run.ranks = 'alike': expected 'each', because the library is gloo"],
    ),
    "alike with values": (
        EXCHANGE + "[run]\nranks = 'alike'\nfidelity = 'links'\npayload = 'values'\n",
        ["bad.toml: run.ranks = 'alike': expected 'each', because run.payload = 'values'"],
    ),
    "alike with one rank that differs": (
        edited(COLLECTIVE, "cpu_local", "dgx_h100").replace("all_reduce", "broadcast")
        + "[run]\nranks = 'alike'\nfidelity = 'links'\n",
        [
            "bad.toml: run.ranks = 'alike': expected 'each', because one rank differs from all others where"
            " collective.op = 'broadcast'"
        ],
    ),
    "alike with random splits": (
        edited(EXCHANGE, "cpu_local", "dgx_h100") + "splits = 'random'\n[run]\nranks = 'alike'\nfidelity = 'links'\n",
        ["bad.toml: run.ranks = 'alike': expected 'each', because exchange.splits = 'random'"],
    ),
    "missing include": (
        "include = 'nope.toml'\n" + edited(EXCHANGE, "hosts = 2", ""),
        ["bad.toml: include = 'nope.toml': expected nope.toml to be a file"],
    ),
    "includes that are no paths": (
        "include = ['good_part.toml', 3]\n" + EXCHANGE,
        ["bad.toml: include[1] = 3: expected a path relative to this file"],
    ),
    "cyclic include": (
        "include = 'parts/one.toml'\n" + EXCHANGE,
        [
            "parts/two.toml: include = '../bad.toml': expected no cycle,"
            " but bad.toml includes parts/one.toml includes parts/two.toml includes bad.toml"
        ],
    ),
    "mistake in an included file": (
        f"include = ['good_part.toml', 'parts/bad_part.toml']\n{CLUSTER}",
        ["parts/bad_part.toml: exchange.size = '1 MiBi': expected a size such as '80 GiB'"],
    ),
    "profile with a workload": (
        edited(EXCHANGE, "cpu_local", "odd_profile.toml"),
        [
            "odd_profile.toml: program = 'dlrm': unknown key; expected one of description, cluster, measured",
            "odd_profile.toml: cluster.profile = 'dgx_h100': expected no profile within a profile",
            "odd_profile.toml: cluster.cores = 0: expected a whole number of at least 1",
        ],
    ),
    "many at once": (
        'program = "dlrm"\n[run]\nsteps = 0\nbatch_size = -1\n'
        + edited(INLINE, 'memory_rate = "1 TB/s"', 'memory_rate = "1 TB"')
        + f"[model]\n{edited(LAYERS, 'top = [8, 1]', 'top = [8, 2]')}"
        + edited(TABLE, "rows = 10", "rows = 0")
        + TABLE
        + "[compression]\nkind = 'layerwise_powersgd'\nstart_powerSGD_iter = 0\n[exchange]\nsize = '1 MiB'\n",
        [
            f"bad.toml: run.steps = 0: expected {WHOLE}",
            f"bad.toml: run.batch_size = -1: expected {WHOLE}",
            "bad.toml: cluster.gpu.memory_rate = '1 TB': expected a rate such as '400 Gbit/s'",
            "bad.toml: model.top = [8, 2]: expected a last width of 1, the logit",
            f"bad.toml: model.tables[0].rows = 0: expected {WHOLE}",
            "bad.toml: model.tables[1].name = 'a': expected a name of its own, but model.tables[0] has it already",
            "bad.toml: compression.start_powerSGD_iter = 0: expected at least 2 with use_error_feedback and warm_start",
            "bad.toml: exchange = {size = '1 MiB'}: expected no exchange with program = 'dlrm'",
        ],
    ),
}

OTHER_FILES = {
    "good.csv": "1 2\n\n3\n",
    "outside.csv": "1 2\n\n9 10\n",
    "commas.csv": "1,2\n",
    "blank.csv": "\n\n",
    "good_part.toml": '[exchange]\nsize = "1 MiB"\n',
    "odd_profile.toml": 'program = "dlrm"\n' + edited(INLINE, "cores = 4", 'cores = 0\nprofile = "dgx_h100"'),
    "parts/one.toml": "include = 'two.toml'\n",
    "parts/two.toml": "include = '../bad.toml'\n",
    "parts/bad_part.toml": "program = 'all_to_all'\n[exchange]\nsize = '1 MiBi'\n",
}
