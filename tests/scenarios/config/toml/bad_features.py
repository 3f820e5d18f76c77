"""Files whose tables have wrong features, and what is said about each."""

from __future__ import annotations

from tests.scenarios.config.toml.bad_pieces import DLRM, TABLE, WHOLE, Cases, edited


def featured(features: str, more: str = "") -> str:
    """A table with these features, and further ones."""
    return edited(DLRM, TABLE, f"tables = [{{name = 't', rows = 10, features = [{features}]}}{more}]\n")


FEATURES: Cases = {
    "features and ids of the table's own": (
        edited(DLRM, "ids_per_sample = 1", "ids_per_sample = 1\nfeatures = [{name = 'a', ids_per_sample = 2}]"),
        [
            "bad.toml: model.tables[0].ids_per_sample = 1: expected no ids_per_sample with features, each of which has"
            " its own"
        ],
    ),
    "a law of the table's own beside features": (
        featured("{name = 'a', ids_per_sample = 2}").replace("rows = 10,", "rows = 10, ids = {zipf = 1.05},"),
        ["bad.toml: model.tables[0].ids = {zipf = 1.05}: expected no ids with features, each of which has its own"],
    ),
    "no feature": (
        featured(""),
        ["bad.toml: model.tables[0].features = []: expected at least one feature"],
    ),
    "features without keys": (
        featured("{}, {nam = 'b', ids_per_sample = 1}"),
        [
            "bad.toml: model.tables[0].features[0].name: missing; expected a name without '/'",
            f"bad.toml: model.tables[0].features[0].ids_per_sample: missing; expected {WHOLE} or a table such as"
            " {mean = 2.5}",
            "bad.toml: model.tables[0].features[1].nam = 'b': unknown key; expected one of name, ids_per_sample, ids",
        ],
    ),
    "a feature twice": (
        featured("{name = 'a', ids_per_sample = 1}, {name = 'a', ids_per_sample = 2}"),
        [
            "bad.toml: model.tables[0].features[1].name = 'a': expected a name of its own, but"
            " model.tables[0].features[0] has it already"
        ],
    ),
    "a feature of two tables": (
        featured(
            "{name = 'a', ids_per_sample = 1}",
            ", {name = 'u', rows = 10, features = [{name = 'a', ids_per_sample = 1}]}",
        ),
        [
            "bad.toml: model.tables[1].features[0].name = 'a': expected a name of its own, but"
            " model.tables[0].features[0] has it already"
        ],
    ),
    "a feature named as a table without": (
        featured("{name = 'u', ids_per_sample = 1}", ", {name = 'u', rows = 10, ids_per_sample = 1}"),
        [
            "bad.toml: model.tables[0].features[0].name = 'u': expected a name of its own, but model.tables[1] has it"
            " already"
        ],
    ),
    "a feature whose file names no row": (
        featured("{name = 'a', ids = {file = 'outside.csv'}, ids_per_sample = 1}"),
        [
            "bad.toml: model.tables[0].features[0].ids.file = 'outside.csv':"
            " expected ids from 0 to 9, separated by spaces, but line 3 has '10'",
            "bad.toml: model.tables[0].features[0].ids_per_sample = 1: expected no ids_per_sample, because the file"
            " says it",
        ],
    ),
}
