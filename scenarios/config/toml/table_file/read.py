"""Reads table files: CSV, or Parquet, with a column for each key of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from scenarios.config.toml.look import content_of, utf8_content
from scenarios.config.toml.mistakes import path_text, toml_text
from scenarios.config.toml.table_file.cells import ALIASES, COLUMNS, NEEDED, Values, table_of
from scenarios.config.toml.table_file.csv_file import CsvFile
from scenarios.config.toml.tree import TableEntry

ENDINGS = (".csv", ".parquet")
_UNREAD = ("", "__index_level_0__")  # columns of pandas' index


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file's tables in its order, each with what users call it, and the sentences of its mistakes."""

    tables: list[tuple[TableEntry, Values]]
    mistakes: list[str]


def read_tables(path: Path) -> TableFile:
    """Read a table file.

    Raises:
        ValueError: it is no file, or cannot be read as CSV or Parquet; the message is the expected phrase.
    """
    file = _TableLines(path_text(path), COLUMNS, NEEDED)
    if path.suffix not in ENDINGS:
        raise ValueError(f"a path that ends in {' or '.join(ENDINGS)}")
    lines = _parquet(file, path) if path.suffix == ".parquet" else _csv(file, path)
    tables = [table for place, cells in lines if (table := _table(file, place, cells)) is not None]
    if not tables and not file.mistakes:
        file.say("no tables; expected a first line with the columns' names, and a table in each line below it")
    return TableFile(tables, file.mistakes)


class _TableLines(CsvFile):
    """The lines of a table file, whose columns may have TorchRec's names."""

    also = (
        "; or TorchRec's names, such as num_embeddings, embedding_dim and pooling_factor; a column '# NAME' is not read"
    )

    skipped = ", or '# {}', which is not read"

    def near(self, name: str) -> list[str]:
        """Return the known columns with a similar name, or with these letters as their words' first ones."""
        known, plain = [*COLUMNS, *ALIASES], _plain(name)
        short = [one for one in known if len(plain) > 1 and "".join(word[0] for word in one.split("_")) == plain]
        return list(dict.fromkeys(ALIASES.get(one, one) for one in short or get_close_matches(plain, known)))

    def column(self, name: str) -> str | None:
        if name in _UNREAD or name.startswith("#"):
            return ""
        return super().column(ALIASES.get(_plain(name), _plain(name)))


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _csv(file: _TableLines, path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    text = utf8_content(path).decode()
    first = next(filter(str.strip, text.splitlines()), "")
    delimiter = "," if "," in first else next((one for one in ";\t" if one in first), ",")  # as spreadsheets write
    yield from ((f"line {line}", cells) for line, cells in file.lines(text, delimiter))


def _parquet(file: _TableLines, path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    import pyarrow as pa  # noqa: PLC0415 - most scenarios do without
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        found = pq.read_table(pa.BufferReader(content_of(path)))
        rows: list[dict[str, Any]] = found.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path_text(path)} to be Parquet: {str(error).partition(chr(10))[0]}") from None
    if file.check_names(found.column_names, "columns"):
        yield from ((f"row {number}", cells) for number, cells in enumerate(rows, 1))


def _table(file: _TableLines, place: str, cells: Mapping[str, object]) -> tuple[TableEntry, Values] | None:
    columns = {column: name for name in cells if (column := file.column(name))}
    try:
        values = table_of({column: cells[name] for column, name in columns.items()})
    except ValueError as error:
        name = columns["ids_per_sample"]
        file.say(f"{place}: {name} = {toml_text(cells[name])}: {error}")
        return None
    return TableEntry(place, columns), values
