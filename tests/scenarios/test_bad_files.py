"""Every mistake is one whole sentence with file, key, value and what was expected, and all are said in one go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from scenarios.errors import ScenarioError
from scenarios.load import load

RUN = "[run]\nbatch_size = 4\n"
CLUSTER = '[cluster]\nprofile = "cpu_local"\nhosts = 2\n'
LAYERS = 'dense_features = 4\nbottom = [8, 8]\ntop = [8, 1]\ninteraction = {kind = "cat"}\nembedding_dim = 8\n'
TABLE = '[[model.tables]]\nname = "a"\nrows = 10\nids_per_sample = 1\n'
MODEL = f"[model]\n{LAYERS}{TABLE}"
DLRM = f'program = "dlrm"\n{RUN}{CLUSTER}{MODEL}'
EXCHANGE = f'program = "all_to_all"\n{CLUSTER}[exchange]\nsize = "1 MiB"\n'
POWERSGD = f'program = "powersgd"\n{CLUSTER}[gradients]\nshapes = [[4, 4]]\n'
INLINE = """[cluster]
hosts = 2
gpus_per_host = 2
cores = 4
host_memory = "8 GiB"
gpu = {kind = "cuda", memory = "1 GiB", memory_rate = "1 TB/s", flops = {float32 = "1 TFLOP/s"}}
inside = {kind = "nvlink", rate = "1 GB/s", latency = "1 us"}
nic = {per = "gpu", rate = "1 GB/s", latency = "1 us"}
"""
A2A_INLINE = EXCHANGE.replace(CLUSTER, INLINE)
PROFILES = "cpu_local, dgx_a100, dgx_h100, v100_tcp_10g"
WHOLE = "a whole number of at least 1"


def edited(text: str, old: str, new: str) -> str:
    """`text` with one place changed; the place must be there."""
    assert text.count(old) == 1, (old, text)
    return text.replace(old, new)


BAD: dict[str, tuple[str, list[str]]] = {
    "syntax": ("program = \n", ["bad.toml: line 1, column 11: expected valid TOML, found: Invalid value"]),
    "key twice": (
        "name = 'a'\nname = 'b'\n",
        ["bad.toml: line 2, column 11: expected valid TOML, found: Cannot overwrite a value"],
    ),
    "empty": (
        "",
        [
            "bad.toml: program: missing; expected 'dlrm', 'all_to_all' or 'powersgd'",
            "bad.toml: cluster: missing; expected a table",
        ],
    ),
    "unknown key": (
        edited(A2A_INLINE, 'latency = "1 us"}\n[exch', 'latncy = "5 us"}\n[exch'),
        ["bad.toml: cluster.nic.latncy = '5 us': unknown key; expected one of per, count, rate, latency"],
    ),
    "unknown section": (
        EXCHANGE + "[optimizer]\nkind = 'sgd'\n",
        [
            "bad.toml: optimizer = {kind = 'sgd'}: unknown key; expected one of name, description, include, program,"
            " run, cluster, model, sharding, buckets, compression, exchange, gradients"
        ],
    ),
    "missing key beside a stranger": (
        edited(A2A_INLINE, 'latency = "1 us"}\n[exch', 'colour = "red"}\n[exch'),
        [
            "bad.toml: cluster.nic.colour = 'red': unknown key; expected one of per, count, rate, latency",
            "bad.toml: cluster.nic.latency: missing; expected a time such as '3 us'",
        ],
    ),
    "zero hosts": (edited(EXCHANGE, "hosts = 2", "hosts = 0"), [f"bad.toml: cluster.hosts = 0: expected {WHOLE}"]),
    "hosts that are no number": (
        edited(EXCHANGE, "hosts = 2", "hosts = true"),
        [f"bad.toml: cluster.hosts = true: expected {WHOLE}"],
    ),
    "too large for TOML": (
        edited(EXCHANGE, "hosts = 2", "hosts = 9223372036854775808"),
        [
            "bad.toml: cluster.hosts = 9223372036854775808: expected a whole number of at most 9223372036854775807",
        ],
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
            "bad.toml: program = 7: expected 'dlrm', 'all_to_all' or 'powersgd'",
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
        ["bad.toml: cluster.gpu.memory_rate = '0 TB/s': expected a rate above zero, such as '400 Gbit/s'"],
    ),
    "negative latency": (
        EXCHANGE + "[cluster.network]\nlatency = '-1 us'\n",
        ["bad.toml: cluster.network.latency = '-1 us': expected a time of at least zero"],
    ),
    "share above one": (
        edited(EXCHANGE, "hosts = 2", "hosts = 2\npayload_share = 1.5"),
        ["bad.toml: cluster.payload_share = 1.5: expected a share above 0 and at most 1"],
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
            " expected one of float64, float32, bfloat16, float16",
            "bad.toml: cluster.gpu.efficiency.gem = 0.5: unknown key; expected one of gemm, embedding_lookup,"
            " embedding_update, bucketize, permute, elementwise, qr, optimizer, default",
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
    "no model": (
        edited(DLRM, MODEL, ""),
        ["bad.toml: model: missing; expected a table, because program = 'dlrm'"],
    ),
    "no exchange": (
        edited(EXCHANGE, '[exchange]\nsize = "1 MiB"\n', ""),
        ["bad.toml: exchange: missing; expected a table, because program = 'all_to_all'"],
    ),
    "no gradients": (
        edited(POWERSGD, "[gradients]\nshapes = [[4, 4]]\n", ""),
        ["bad.toml: gradients: missing; expected a table, because program = 'powersgd'"],
    ),
    "sections of other programs": (
        EXCHANGE + "[sharding]\nsort_by = 'perf'\n[buckets]\ncap = '1 MiB'\n[gradients]\nmodel = 'resnet50'\n",
        [
            "bad.toml: sharding = {sort_by = 'perf'}: expected no sharding with program = 'all_to_all'",
            "bad.toml: buckets = {cap = '1 MiB'}: expected no buckets with program = 'all_to_all'",
            "bad.toml: gradients = {model = 'resnet50'}: expected no gradients with program = 'all_to_all'",
        ],
    ),
    "table name twice": (
        DLRM + TABLE,
        ["bad.toml: model.tables[1].name = 'a': expected a name of its own, but model.tables[0] has it already"],
    ),
    "table that is none": (
        edited(DLRM, TABLE, "tables = [3]\n"),
        ["bad.toml: model.tables[0] = 3: expected a table"],
    ),
    "no tables": (
        edited(DLRM, TABLE, "tables = []\n"),
        ["bad.toml: model.tables = []: expected at least one table"],
    ),
    "table without keys": (
        edited(edited(DLRM, TABLE, "tables = [{}]\n"), "embedding_dim = 8\n", ""),
        [
            "bad.toml: model.tables[0].name: missing; expected a name without '/'",
            f"bad.toml: model.tables[0].rows: missing; expected {WHOLE}",
            f"bad.toml: model.tables[0].dim: missing; expected {WHOLE}, here or as model.embedding_dim",
            f"bad.toml: model.tables[0].ids_per_sample: missing; expected {WHOLE} or a table such as {{mean = 2.5}}",
        ],
    ),
    "fractional bags": (
        edited(DLRM, "ids_per_sample = 1", "ids_per_sample = 2.5"),
        [f"bad.toml: model.tables[0].ids_per_sample = 2.5: expected {WHOLE} or a table such as {{mean = 2.5}}"],
    ),
    "mean misspelt": (
        edited(DLRM, "ids_per_sample = 1", "ids_per_sample = {men = 2.5}"),
        ["bad.toml: model.tables[0].ids_per_sample.men = 2.5: unknown key; expected one of mean"],
    ),
    "ids of no kind": (
        DLRM + "ids = 'zipf'\n",
        ["bad.toml: model.tables[0].ids = 'zipf': expected 'uniform', {zipf = 1.05} or {file = 'ids.csv'}"],
    ),
    "zipf exponent of zero": (
        DLRM + "ids = {zipf = 0, order = 'sorted'}\n",
        [
            "bad.toml: model.tables[0].ids.zipf = 0: expected a number above 0",
            "bad.toml: model.tables[0].ids.order = 'sorted': expected 'shuffled' or 'by_frequency'",
        ],
    ),
    "ids file that is not there": (
        edited(DLRM, "ids_per_sample = 1", "ids = {file = 'ids.csv'}"),
        ["bad.toml: model.tables[0].ids.file = 'ids.csv': expected ids.csv to be a file"],
    ),
    "bags both given and read": (
        DLRM + "ids = {file = 'good.csv'}\n",
        ["bad.toml: model.tables[0].ids_per_sample = 1: expected no ids_per_sample, because the file says it"],
    ),
    "id outside": (
        edited(DLRM, "ids_per_sample = 1", "ids = {file = 'outside.csv'}"),
        [
            "bad.toml: model.tables[0].ids.file = 'outside.csv':"
            " expected ids from 0 to 9, separated by spaces, but line 3 has '10'"
        ],
    ),
    "id that is none": (
        edited(DLRM, "ids_per_sample = 1", "ids = {file = 'commas.csv'}"),
        [
            "bad.toml: model.tables[0].ids.file = 'commas.csv':"
            " expected ids from 0 to 9, separated by spaces, but line 1 has '1,2'"
        ],
    ),
    "ids file without ids": (
        edited(DLRM, "ids_per_sample = 1", "ids = {file = 'blank.csv'}"),
        ["bad.toml: model.tables[0].ids.file = 'blank.csv': expected at least one id"],
    ),
    "unknown sharding": (
        DLRM + "sharding = ['table_wise', 'rowwise']\n",
        [
            "bad.toml: model.tables[0].sharding[1] = 'rowwise': expected 'data_parallel', 'table_wise', 'row_wise',"
            " 'table_row_wise', 'column_wise', 'table_column_wise' or 'grid_shard'"
        ],
    ),
    "sharding twice or not at all": (
        DLRM + "sharding = ['row_wise', 'row_wise']\n[sharding]\ntypes = []\n",
        [
            "bad.toml: model.tables[0].sharding = ['row_wise', 'row_wise']: expected each sharding type once",
            "bad.toml: sharding.types = []: expected at least one sharding type",
        ],
    ),
    "too large for a GPU": (
        edited(DLRM, "rows = 10", "rows = 60_000_000") + "sharding = ['table_wise', 'data_parallel']\n",
        [
            "bad.toml: model.tables[0].rows = 60000000: expected at most 57042534 rows of 32 bytes, in the 1.7 GiB that"
            " one GPU has for tables, because it may be table_wise or data_parallel"
        ],
    ),
    "too large for a host": (
        edited(DLRM, "rows = 10", "rows = 120_000_000") + "[sharding]\ntypes = ['table_row_wise']\n",
        [
            "bad.toml: model.tables[0].rows = 120000000: expected at most 114085068 rows of 32 bytes, in the 3.4 GiB that"
            " one host has for tables, because it may be table_row_wise"
        ],
    ),
    "too large for the cluster": (
        edited(DLRM, "rows = 10", "rows = 300_000_000")
        + "sharding = ['row_wise', 'table_wise']\n[sharding]\nreserved_share = 0\n",
        [
            "bad.toml: model.tables[0].rows = 300000000: expected at most 268435456 rows of 32 bytes, in the 8 GiB that"
            " one cluster has for tables, because it may be row_wise or table_wise"
        ],
    ),
    "too large for a GPU while hosts are unknown": (
        edited(edited(DLRM, "rows = 10", "rows = 60_000_000"), "hosts = 2", "hosts = 0")
        + "sharding = ['table_wise']\n",
        [
            f"bad.toml: cluster.hosts = 0: expected {WHOLE}",
            "bad.toml: model.tables[0].rows = 60000000: expected at most 57042534 rows of 32 bytes, in the 1.7 GiB that"
            " one GPU has for tables, because it may be table_wise",
        ],
    ),
    "dot of unequal widths": (
        edited(DLRM, '"cat"', '"dot"') + "dim = 16\n" + edited(TABLE, '"a"', '"b"'),
        [
            "bad.toml: model.tables[0].dim = 16: expected 8, the last width of model.bottom, because of interaction 'dot'",
        ],
    ),
    "dot with another bottom": (
        edited(edited(DLRM, '"cat"', '"dot"'), "bottom = [8, 8]", "bottom = [8, 4]"),
        [
            "bad.toml: model.embedding_dim = 8: expected 4, the last width of model.bottom, because of interaction 'dot'",
        ],
    ),
    "top without a logit": (
        edited(DLRM, "top = [8, 1]", "top = [8, 2]"),
        ["bad.toml: model.top = [8, 2]: expected a last width of 1, the logit"],
    ),
    "layers without width": (
        edited(DLRM, "bottom = [8, 8]", "bottom = [8, 0]"),
        [f"bad.toml: model.bottom[1] = 0: expected {WHOLE}"],
    ),
    "cross layers without a rank": (
        edited(DLRM, '{kind = "cat"}', '{kind = "dcn", layers = 3}'),
        [f"bad.toml: model.interaction.low_rank: missing; expected {WHOLE}"],
    ),
    "cross layers without crossing": (
        edited(DLRM, '{kind = "cat"}', '{kind = "cat", layers = 3}'),
        ["bad.toml: model.interaction.layers = 3: expected no layers with kind = 'cat'"],
    ),
    "dtype that the GPU has no rate for": (
        edited(edited(DLRM, CLUSTER, INLINE), "embedding_dim = 8", 'embedding_dim = 8\ndtype = "bfloat16"'),
        [
            "bad.toml: cluster.gpu.flops.bfloat16: missing;"
            " expected a compute rate such as '67 TFLOP/s', because model.dtype = 'bfloat16'"
        ],
    ),
    "PowerSGD too early": (
        POWERSGD + "[compression]\nkind = 'batched_powersgd'\nstart_powerSGD_iter = 1\nwarm_start = false\n",
        ["bad.toml: compression.start_powerSGD_iter = 1: expected at least 2 with use_error_feedback"],
    ),
    "PowerSGD of rank zero": (
        POWERSGD + "[compression]\nmatrix_approximation_rank = 0\nstart_powerSGD_iter = 0\nuse_error_feedback = 1\n",
        [
            f"bad.toml: compression.matrix_approximation_rank = 0: expected {WHOLE}",
            "bad.toml: compression.use_error_feedback = 1: expected true or false",
        ],
    ),
    "gradients of nothing": (
        edited(POWERSGD, "shapes = [[4, 4]]", ""),
        ["bad.toml: gradients.shapes: missing; expected an array of shapes, or model = 'resnet50'"],
    ),
    "gradients twice": (
        POWERSGD + "model = 'resnet50'\n",
        ["bad.toml: gradients.shapes = [[4, 4]]: expected no shapes with model = 'resnet50'"],
    ),
    "half an element": (
        edited(EXCHANGE, "1 MiB", "1026 B"),
        ["bad.toml: exchange.size = '1026 B': expected a multiple of 4 bytes, a float32"],
    ),
    "skew of even splits": (
        EXCHANGE + "skew = 1\n",
        ["bad.toml: exchange.skew = 1: expected 0 unless splits = 'random'"],
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
            "odd_profile.toml: program = 'dlrm': unknown key; expected one of description, cluster",
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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "parts").mkdir()
    for name, text in OTHER_FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sentences(path: str, overrides: Mapping[str, object] | None = None) -> list[str]:
    with pytest.raises(ScenarioError) as error:
        load(path, overrides)
    assert str(error.value) == "\n".join(error.value.sentences)
    return list(error.value.sentences)


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_described_by_exactly_these_sentences(case: str, folder: Path) -> None:
    text, wanted = BAD[case]
    (folder / "bad.toml").write_text(text)
    assert sentences("bad.toml") == wanted


@pytest.mark.parametrize("text", [DLRM, EXCHANGE, POWERSGD, A2A_INLINE])
def test_what_the_bad_files_were_made_of_is_good(text: str, folder: Path) -> None:
    (folder / "good.toml").write_text(text)
    assert load("good.toml").name == "good"


def test_a_missing_file_is_named_as_the_user_gave_it(folder: Path) -> None:
    assert sentences("./no/such.toml") == ["./no/such.toml: no such file; expected a scenario in TOML"]
    assert sentences(str(folder / "parts")) == [f"{folder / 'parts'}: Is a directory; expected a scenario in TOML"]


def test_a_file_that_is_no_text_is_refused(folder: Path) -> None:
    (folder / "bad.toml").write_bytes(b"name = '\xff'")
    assert sentences("bad.toml") == ["bad.toml: byte 8: expected UTF-8 text"]


def test_mistakes_of_the_command_line_are_named_by_their_option(folder: Path) -> None:
    (folder / "bad.toml").write_text(edited(DLRM, "hosts = 2", "hosts = 0"))
    overrides = {
        "steps": 0,
        "batch_size": -1,
        "payload": "full",
        "fidelity": None,
        "library": "nccl",
        "timeout": "1 GiB",
    }
    assert sentences("bad.toml", overrides) == [
        f"--batch-size = -1: expected {WHOLE}",
        f"--steps = 0: expected {WHOLE}",
        "--payload = 'full': expected 'values' or 'sizes'",
        "--library = 'nccl': expected 'gloo', because cluster.gpu.kind = 'cpu'",
        "--timeout = '1 GiB': expected a time such as '3 us'",
        f"bad.toml: cluster.hosts = 0: expected {WHOLE}",
    ]


def test_there_are_bad_files_enough() -> None:
    assert len(BAD) >= 30
    assert sum(len(wanted) > 1 for _, wanted in BAD.values()) >= 10
