"""The command `twinstep docs`: list the documentation's pages, print one, or find those about a word.

Pages are Markdown files. A checkout has them in docs/, an installed wheel among its data files.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import NamedTuple

_INSTALLED = "share/doc/twinstep/"
_GENERATED = ("keys", "profiles", "commands")  # pages of the site that commands print: those, and --help
_FOLDERS = ("tutorial", "how_to", "reference", "explanation", "accuracy", "contributing")
_SHOWN = 8


class ManualPage(NamedTuple):
    """A page of the documentation: its place, such as `reference/runs`, and its text."""

    place: str
    text: str

    @property
    def name(self) -> str:
        """The name that `twinstep docs` knows the page by."""
        return self.place.removesuffix("/index").rpartition("/")[2]

    @property
    def title(self) -> str:
        """The page's first heading."""
        return self.text.partition("\n")[0].lstrip("# ")

    def headings(self, words: Sequence[str]) -> list[str]:
        """Return the headings that have all of `words`, which are in lower case."""
        found = re.findall(r"^##+ (.*)$", self.text, re.MULTILINE)
        return [heading for heading in found if all(word in heading.lower() for word in words)]

    def rank(self, words: Sequence[str]) -> tuple[bool, int, int]:
        """Return how much the page is about `words`: in its title, in headings, in its text."""
        title, text = self.title.lower(), self.text.lower()
        counts = [text.count(word) for word in words]
        return all(word in title for word in words), len(self.headings(words)), sum(counts) * all(counts)


def main(arguments: Sequence[str] | None = None, prog: str = "twinstep docs") -> int:
    """Print a page or a list of pages; return 2 if no page has the word."""
    parser = argparse.ArgumentParser(prog=prog, description="List the documentation's pages, print one, or search.")
    parser.add_argument("word", nargs="*", metavar="WORD", help="name of a page, or words to search for")
    words = [word.lower() for word in parser.parse_args(arguments).word]
    if words in (["keys"], ["profiles"]):
        from twinstep.scenario_files import main as print_files

        return print_files(words)
    found = sorted(pages(), key=lambda page: (_FOLDERS.index(page.place.partition("/")[0]), page.place))
    named = [page for page in found if words in ([page.name], [page.place])]
    ranks = {page: page.rank(words) for page in found}
    about = named or sorted((page for page in found if any(ranks[page])), key=lambda page: ranks[page], reverse=True)
    if not about:
        print(f"{' '.join(words)}: no page has it; '{prog}' lists the pages", file=sys.stderr)
        return 2
    if words and len(about) == 1:
        _print(about[0].text)
    else:
        _print(_results(about[:_SHOWN], words) if words else _contents(found))
    return 0


def pages() -> list[ManualPage]:
    """Return all written pages of the checkout, or of the installed wheel."""
    docs = Path(__file__).parents[2] / "docs"
    paths = list(docs.rglob("*.md")) if (docs / "conf.py").is_file() else _installed()
    places = {re.sub(r".*/(docs|share/doc/twinstep)/|\.md$", "", path.as_posix()): path for path in paths}
    return [
        ManualPage(place, _text(path))
        for place, path in places.items()
        if place != "index" and place.removeprefix("reference/") not in _GENERATED
    ]


def _installed() -> list[Path]:
    try:
        found = [path for path in files("twinstep") or () if _INSTALLED in str(path) and path.suffix == ".md"]
        return [Path(str(path.locate())) for path in found]
    except PackageNotFoundError:
        return []


def _text(path: Path) -> str:
    """Return a page with its tables, and without what only the site needs: lists of pages, and comments."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"```\{(toctree|eval-rst)\}\n.*?^```\n?|<!--.*?-->\n?", "", text, flags=re.MULTILINE | re.DOTALL)
    tables = r"(?ms)```\{csv-table\}\n:file: (\S+)\n.*?^```"
    return re.sub(tables, lambda found: _table(path.parent / found[1]), text)


def _table(path: Path) -> str:
    with open(path, encoding="utf-8", newline="") as stream:
        head, *rows = csv.reader(stream)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _contents(found: Sequence[ManualPage]) -> str:
    rows = [f"| {page.place.partition('/')[0]} | {page.name} | {page.title} |" for page in found]
    head = "`twinstep docs NAME` prints a page, `twinstep docs WORDS` finds pages about words."
    return "\n".join([head, "", "| kind | name | about |", "|---|---|---|", *rows, ""])


def _results(about: Sequence[ManualPage], words: Sequence[str]) -> str:
    rows = [f"| {page.name} | {page.title} | {'; '.join(page.headings(words)[:3])} |" for page in about]
    head = f"Pages about '{' '.join(words)}', best first. `twinstep docs NAME` prints a page."
    return "\n".join([head, "", "| name | about | sections |", "|---|---|---|", *rows, ""])


def _print(text: str) -> None:
    if not sys.stdout.isatty():
        print(text, end="")
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text))
