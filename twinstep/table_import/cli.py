"""`twinstep import torchrec MODULE:FUNCTION`: write the tables of a TorchRec model as a table file."""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from twinstep.options import write_new

if TYPE_CHECKING:
    from twinstep.table_import.torchrec_tables import ImportedTable


def main(arguments: Sequence[str] | None = None, prog: str = "twinstep import") -> int:
    """Run the command and return its exit code: 0 done, 2 for a mistake."""
    from scenarios.config.toml.mistakes import report_mistakes

    options = _parser(prog).parse_args(arguments)
    with report_mistakes():
        import_torchrec(options.function, options.constraints, options.out)
    return 0


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog, description="Write the tables of a model as a table file of a scenario."
    )
    kinds = parser.add_subparsers(metavar="LIBRARY", required=True)
    torchrec = kinds.add_parser(
        "torchrec",
        help="tables of TorchRec, with the constraints of its planner",
        description="Call your function and write the embedding configs that it returns as CSV. The function may return"
        " configs, collections or a model (on the device 'meta', large tables take no memory), and in addition a"
        " mapping of tables' names to ParameterConstraints.",
    )
    torchrec.add_argument(
        "function", metavar="MODULE:FUNCTION", help="function without arguments, such as my_model:make_tables"
    )
    torchrec.add_argument(
        "--constraints", metavar="MODULE:NAME", help="ParameterConstraints by table, or a function that returns them"
    )
    torchrec.add_argument("--out", metavar="FILE.csv", help="file to be written (default: print the tables)")
    return parser


def import_torchrec(place: str, constraints: str | None = None, out: str | None = None) -> None:
    """Write or print the tables that a user's function returns, and what could not be carried over.

    Raises:
        ScenarioError: the function or the constraints are not what is expected, or `out` cannot be written.
    """
    from scenarios.seam.errors import ScenarioError
    from twinstep.table_import.torchrec_tables import read_tables

    with redirect_stdout(sys.stderr):  # what the user's code prints is no part of the tables
        found, further = _call_or_read(place), _call_or_read(constraints, "--constraints = ") if constraints else ()
    try:
        tables, notes = read_tables(found, further)
    except ValueError as error:
        raise ScenarioError(f"{place}: expected {error}") from None
    text = table_file(tables)
    if out is None:
        print(text, end="")
    else:
        write_new(out, text)
        rows = sum(table.rows for table in tables)
        print(f"{out}: {_count(len(tables))} with {rows:,} rows")
    for line in (*_what_to_do(tables, out), *(f"not carried over: {note}" for note in notes)):
        print(line, file=sys.stderr if out is None else sys.stdout)


def _call_or_read(place: str, option: str = "") -> object:
    """Return what a user's function returns, or an object that is there already."""
    from scenarios.seam.errors import ScenarioError, tell_error
    from scenarios.workloads.locate import import_named

    try:
        found = import_named(place, Path(), "tables, or a function that returns some,")
    except ValueError as error:
        raise ScenarioError(f"{option}{place}: expected {error}") from None
    if not callable(found) or (hasattr(found, "modules") and not isinstance(found, type)):
        return found  # a model can be called, but is no function
    try:
        return found()
    except (Exception, SystemExit) as error:
        raised = tell_error(error)
        raise ScenarioError(f"{option}{place}: expected a function that returns, but it raised {raised}") from None


def _what_to_do(tables: Sequence[ImportedTable], out: str | None) -> Iterator[str]:
    from twinstep.table_import.torchrec_tables import DTYPES

    if lacking := sum(not table.ids for table in tables):
        yield (
            f"ids per sample of {_count(lacking)} are not known, as configs do not have them: fill in the column"
            " ids_per_sample, or give --constraints with pooling_factors; twinstep init assumes 1"
        )
    types = Counter(table.data_type for table in tables)
    if len(types) > 1:
        counts = ", ".join(f"{count} {kind}" for kind, count in types.most_common())
        yield f"not carried over: data types of single tables ({counts}): model.embedding_dtype is one for all"
    elif "FP32" not in types:
        (kind,) = types
        is_known = kind in DTYPES
        yield (
            f"rows are {kind}: set model.embedding_dtype = {DTYPES[kind]!r}"
            if is_known
            else (f"not carried over: rows of {kind}, which is not predicted")
        )
    if sequences := sum(not table.is_pooled for table in tables):
        yield (
            f"unsummed rows (EmbeddingConfig) of {_count(sequences)} are predicted as summed: rename the column"
            " '# sequence' to 'sequence' once model.dense is a module that takes such rows"
        )
    if out is not None:
        yield f"next: twinstep init --tables {out} --profile dgx_h100 --hosts 2 --out job.toml"


# The columns of a table file, and each one's cell. Those that no table fills are left out; those with # are not read.
_COLUMNS: dict[str, Callable[[ImportedTable], object]] = {
    "name": lambda table: table.name,
    "rows": lambda table: table.rows,
    "dim": lambda table: table.dim,
    "ids_per_sample": lambda table: " ".join(_ids(table)),
    "features": lambda table: _names(table.features) if table.features not in ([], [table.name]) else "",
    "sharding": lambda table: " ".join(table.sharding),
    "kernel": lambda table: table.kernel,
    "cache_load_factor": lambda table: table.cache_load_factor,
    "min_partition": lambda table: table.min_partition,
    "weighted": lambda table: "true" if table.is_weighted else "",
    "# sequence": lambda table: table.sequence or "",
    "# data_type": lambda table: table.data_type if table.data_type != "FP32" else "",
}
_ALWAYS = ("name", "rows", "dim", "ids_per_sample")


def table_file(tables: Sequence[ImportedTable]) -> str:
    """Return the tables as CSV."""
    columns = {name: [cell(table) for table in tables] for name, cell in _COLUMNS.items()}
    filled = {name for name, cells in columns.items() if any(cell not in ("", None) for cell in cells)}
    there = [name for name in columns if name in filled or name in _ALWAYS]
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(there)
    writer.writerows(zip(*(columns[name] for name in there), strict=True))
    return stream.getvalue()


def _count(tables: int) -> str:
    return f"{tables:,} table{'s' * (tables != 1)}"


def _ids(table: ImportedTable) -> list[str]:
    """Return the number of ids of each feature; one number for all, where they are equal."""
    texts = [str(int(number)) if number == int(number) else repr(number) for number in table.ids]
    return texts[:1] if len(set(texts)) == 1 else texts


def _names(names: Sequence[str]) -> str:
    """Return names with spaces between them, or as an array where they have separators themselves."""
    from scenarios.toml_writer import toml_value

    return toml_value(list(names)) if any(re.search(r"[\s,;|\[{]", name) for name in names) else " ".join(names)
