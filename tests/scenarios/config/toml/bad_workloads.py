"""Files whose program, model, exchange, collective, gradients or compression is wrong, and what is said about each."""

from __future__ import annotations

from tests.scenarios.config.toml.bad_pieces import (
    COLLECTIVE,
    COLLECTIVE_TABLE,
    DLRM,
    EXCHANGE,
    MODEL,
    POWERSGD,
    TABLE,
    WHOLE,
    Cases,
    edited,
)

WORKLOADS: Cases = {
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
    "bags by first id of a random length": (
        edited(DLRM, "ids_per_sample = 1", "ids_per_sample = {mean = 2}") + "ids = {zipf = 1, bags = 'by_first'}\n",
        ["bad.toml: model.tables[0].ids_per_sample = {mean = 2}: expected a number with ids.bags = 'by_first'"],
    ),
    "more rows than ids can name": (
        edited(
            edited(DLRM, "rows = 10", "rows = 3_000_000_000"), "dense_features", "ids_dtype = 'int32'\ndense_features"
        ),
        [
            "bad.toml: model.tables[0].rows = 3000000000: expected at most 2147483648 rows with"
            " model.ids_dtype = 'int32'"
        ],
    ),
    "a sequence that cannot be": (
        DLRM + "sequence = 4\nweighted = true\nsharding = ['table_row_wise']\n",
        [
            "bad.toml: model.tables[0].sequence = 4: expected no sequence without model.dense, a module that takes one",
            "bad.toml: model.tables[0].weighted = true: expected no weighted with sequence",
            "bad.toml: model.tables[0].sharding = ['table_row_wise']: expected of a table with a sequence"
            " data_parallel or table_wise or row_wise or column_wise",
        ],
    ),
    "distinct ids that cannot be": (
        DLRM + "index_dedup = true\nweighted = true\nkernel = 'fused_uvm_caching'\nsharding = ['grid_shard']\n",
        [
            "bad.toml: model.tables[0].weighted = true: expected no weighted with index_dedup",
            "bad.toml: model.tables[0].kernel = 'fused_uvm_caching': expected 'fused' or 'fused_uvm' with index_dedup",
            "bad.toml: model.tables[0].sharding = ['grid_shard']: expected of a table with index_dedup"
            " table_wise or row_wise or column_wise",
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
            "bad.toml: model.tables[0].rows = 120000000: expected at most 114085068 rows of 32 bytes, in the 3.4 GiB"
            " that one host has for tables, because it may be table_row_wise"
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
            "bad.toml: model.tables[0].dim = 16: expected 8, the last width of model.bottom,"
            " because of interaction 'dot'",
        ],
    ),
    "dot with another bottom": (
        edited(edited(DLRM, '"cat"', '"dot"'), "bottom = [8, 8]", "bottom = [8, 4]"),
        [
            "bad.toml: model.embedding_dim = 8: expected 4, the last width of model.bottom,"
            " because of interaction 'dot'",
        ],
    ),
    "top without a logit": (
        edited(DLRM, "top = [8, 1]", "top = [8, 2]"),
        ["bad.toml: model.top = [8, 2]: expected a last width of 1, the logit"],
    ),
    "no widths": (
        edited(DLRM, "bottom = [8, 8]", "bottom = []"),
        ["bad.toml: model.bottom = []: expected at least one width"],
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
    "no collective": (
        edited(COLLECTIVE, COLLECTIVE_TABLE, ""),
        ["bad.toml: collective: missing; expected a table, because program = 'collective'"],
    ),
    "collective without keys": (
        edited(COLLECTIVE, COLLECTIVE_TABLE, "[collective]\n"),
        [
            "bad.toml: collective.op: missing; expected 'all_reduce', 'reduce_scatter', 'all_gather', 'broadcast' or"
            " 'all_to_all'",
            "bad.toml: collective.size: missing; expected a size such as '80 GiB'",
        ],
    ),
    "splits of a reduction": (
        COLLECTIVE + "splits = 'even'\n",
        ["bad.toml: collective.splits = 'even': expected no splits with op = 'all_reduce'"],
    ),
    "a sum of what is no number": (
        edited(COLLECTIVE, COLLECTIVE_TABLE, f'{COLLECTIVE_TABLE}dtype = "bool"\n'),
        ["bad.toml: collective.dtype = 'bool': expected a type of numbers, which 'all_reduce' adds up"],
    ),
    "half an element of a collective": (
        edited(COLLECTIVE, "1 MiB", "1026 B"),
        ["bad.toml: collective.size = '1026 B': expected a multiple of 4 bytes, a float32"],
    ),
    "skew of even splits": (
        EXCHANGE + "skew = 1\n",
        ["bad.toml: exchange.skew = 1: expected 0 unless splits = 'random'"],
    ),
}
