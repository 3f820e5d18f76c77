"""Reads CSV files whose first line names the columns; what cells mean is left to others."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from scenarios.config.toml.mistakes import toml_text


class CsvFile:
    """A CSV file's lines, and its mistakes as sentences; it may have `columns`, and must have those `needed`."""

    also = ""  # other names that columns may have, as the end of a sentence
    skipped = ""  # how a column that is not read is called

    def __init__(self, name: str, columns: Sequence[str], needed: Sequence[str]) -> None:
        self._name, self._columns, self._needed = name, columns, needed
        self.mistakes: list[str] = []

    def say(self, sentence: str) -> None:
        """Add a sentence on a mistake, after the file's name."""
        self.mistakes.append(f"{self._name}: {sentence}")

    def column(self, name: str) -> str | None:
        """Return which column a name of the first line is: None if unknown, "" if it is not read."""
        return name if name in self._columns else None

    def near(self, name: str) -> list[str]:
        """Return the known columns that an unknown name may mean."""
        return get_close_matches(name, self._columns)

    def lines(self, text: str, delimiter: str = ",") -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the number of each sound line below the first, and its cells by the name in the first line.

        Blank lines are passed over. Without sound names in the first line there are none.
        """
        names: list[str] | None = None
        for line, cells in self._records(text, delimiter):
            if names is None:
                if not self.check_names(cells, "first line"):
                    return
                names = cells
            elif len(cells) != len(names):
                values = f"{len(cells)} value{'' if len(cells) == 1 else 's'}"
                self.say(f"line {line}: {values}; expected {len(names)}, as in the first line")
            else:
                yield line, dict(zip(names, cells, strict=True))

    def check_names(self, names: Sequence[str], place: str) -> bool:
        """Return whether all needed columns are there, each once, and no unknown ones; record mistakes."""
        before, columns = len(self.mistakes), [self.column(name) for name in names]
        expected = f"expected {', '.join(self._columns)}, with commas between them{self.also}"
        if missing := [name for name in self._needed if name not in columns]:
            self.say(f"{place}: {', '.join(missing)}: missing; {expected}")
        for name, column in dict(zip(names, columns, strict=True)).items():
            if column is None:
                near = self.near(name)
                known = f"expected {' or '.join(near)}{self.skipped.format(name)}" if near else expected
                self.say(f"{place}: {toml_text(name)}: unknown column; {known}")
            elif column and columns.count(column) > 1:
                self.say(f"{place}: {name}: given more than once; expected once")
        return len(self.mistakes) == before

    def _records(self, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        """Yield each record that is not blank, with the line where the record begins, counted from 1."""
        reader, line = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter), 1
        try:
            for cells in reader:
                if any(map(str.strip, cells)):
                    yield line, [cell.strip() for cell in cells]
                line = reader.line_num + 1
        except csv.Error as error:
            self.say(f"line {line}: not CSV: {error}")
