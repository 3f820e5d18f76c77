"""`twinstep nccl`: what a collective takes over a range of sizes on a profile's cluster, in nccl-tests' columns."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from scenarios.seam.traits import EXCHANGES, TESTED, TRAITS, Traits

if TYPE_CHECKING:
    from twinstep.published.simulated import PredictedCollective

_ELEMENT_BYTES = 4  # float, nccl-tests' default type
_MOST_BYTES = 1 << 50  # of a tensor
_SCALES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_WIDTHS = (12, 13, 9, 8, 7, 10, 8, 8)
_COLUMNS = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw")
_UNITS = ("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)")


class SweepRow(NamedTuple):
    """A size in bytes as nccl-tests counts it, the elements of a rank's smaller buffer, and what the call takes."""

    size_bytes: int
    elements: int
    predicted: PredictedCollective
    busbw_factor: float

    @property
    def algbw(self) -> float:
        """Size over time, in GB/s."""
        return self.size_bytes / self.predicted.predicted_us / 1e3

    @property
    def busbw(self) -> float:
        """Bytes over a rank's bus over time, in GB/s."""
        return self.algbw * self.busbw_factor


def main(arguments: Sequence[str] | None = None, prog: str = "twinstep nccl") -> int:
    """Run the command and return its exit code: 0 done; a mistake exits with 2."""
    from scenarios.config.toml.mistakes import report_mistakes

    options = _parser(prog).parse_args(arguments)
    with report_mistakes():
        _sweep(options)
    return 0


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog, description="Predict a collective over a range of sizes, with the options and columns of nccl-tests."
    )
    parser.add_argument("op", choices=TESTED, help="operation")
    parser.add_argument("--profile", default="dgx_h100", metavar="NAME", help="hardware (default: dgx_h100)")
    parser.add_argument("--hosts", type=int, default=1, metavar="N", help="number of hosts (default: 1)")
    parser.add_argument("--gpus-per-host", type=int, metavar="N", help="GPUs of a host (default: the profile's)")
    parser.add_argument("--library", metavar="NAME", help="nccl or gloo (default: the one of the profile's devices)")
    parser.add_argument("-b", "--minbytes", type=_size, default="8", metavar="SIZE", help="first size (default: 8)")
    parser.add_argument("-e", "--maxbytes", type=_size, default="1G", metavar="SIZE", help="last size (default: 1G)")
    parser.add_argument("-f", "--stepfactor", type=_factor, default=2, metavar="N", help="factor of sizes (default: 2)")
    parser.add_argument("--json", action="store_true", help="print all rows as JSON")
    return parser


def _size(word: str) -> int:
    """Return the bytes of a size as nccl-tests writes it: K, M and G are powers of 1,024."""
    found = re.fullmatch(r"(\d{1,19})([KMG]?)B?", word.upper())
    size_bytes = 0 if found is None else int(found[1]) * _SCALES[found[2]]
    if not 1 <= size_bytes <= _MOST_BYTES:
        raise argparse.ArgumentTypeError(
            f"{word}: expected a number of bytes from 1 to {_MOST_BYTES}, such as 8, 64K, 128M or 1G"
        )
    return size_bytes


def _factor(word: str) -> int:
    if not word.isdecimal() or int(word) < 2:
        raise argparse.ArgumentTypeError(f"{word}: expected a whole number of at least 2")
    return int(word)


def _sweep(options: argparse.Namespace) -> None:
    """Print a row for each size as soon as it is simulated, or all as JSON.

    Raises:
        ScenarioError: there is no such profile or library, or the numbers fit no cluster.
    """
    from scenarios.config.interconnect import default_library
    from scenarios.config.load import load_profile
    from scenarios.seam.errors import ScenarioError

    if options.maxbytes < options.minbytes:
        raise ScenarioError([f"-e {options.maxbytes}: expected at least the first size, -b {options.minbytes}"])
    host = load_profile(options.profile).host
    gpus = host.gpus if options.gpus_per_host is None else options.gpus_per_host
    if options.hosts < 1 or gpus < 1 or options.hosts * gpus < 2:
        raise ScenarioError([f"--hosts {options.hosts} --gpus-per-host {gpus}: expected at least 2 GPUs in all"])
    library = options.library or default_library(host.gpu.kind)
    rows = _rows(options, library, gpus)
    if options.json:
        given = {"op": options.op, "library": library, "profile": options.profile, "hosts": options.hosts}
        print(json.dumps({**given, "gpus_per_host": gpus, "rows": [_values(row) for row in rows]}, indent=2))
        return
    redop = "sum" if _traits(options.op).has_sums else "none"
    for number, row in enumerate(rows):
        if number == 0:  # mistakes have been found by then
            print(
                f"# {options.op} over {library}, predicted: {options.hosts} x {gpus} {host.gpu.name}, {options.profile}"
            )
            print(*(f"#{_line(words)[1:]}" for words in (_COLUMNS, _UNITS)), sep="\n")
        figures = (f"{row.predicted.predicted_us:.2f}", f"{row.algbw:.2f}", f"{row.busbw:.2f}")
        print(_line((row.size_bytes, row.elements, "float", redop, -1, *figures)), flush=True)


def _rows(options: argparse.Namespace, library: str, gpus: int) -> Iterator[SweepRow]:
    from twinstep.published.simulated import predict

    traits, ranks = _traits(options.op), options.hosts * gpus
    shares = ranks if traits.has_shares or options.op in EXCHANGES else 1
    least, size = 0, options.minbytes
    while size <= options.maxbytes:
        count = max(1, size // (_ELEMENT_BYTES * shares))
        if count > least:  # small sizes have the same single element a rank
            found = predict(
                op=options.op, library=library, gpu="", nodes=options.hosts, gpus_per_node=gpus,
                size_bytes=count * _ELEMENT_BYTES * shares, profile=options.profile,
            )  # fmt: skip
            yield SweepRow(count * _ELEMENT_BYTES * shares, count, found, traits.bus_factor(ranks))
        least, size = count, size * options.stepfactor


def _traits(op: str) -> Traits:
    """Return what is known of an operation of nccl-tests by its verb; its send_recv is two."""
    return TRAITS["send" if op == "send_recv" else op]


def _values(row: SweepRow) -> dict[str, object]:
    found = row.predicted
    return {
        "size_bytes": row.size_bytes,
        "count": row.elements,
        "time_us": found.predicted_us,
        "algbw_gb_per_s": row.algbw,
        "busbw_gb_per_s": row.busbw,
        "algorithm": found.algorithm,
        "protocol": found.protocol,
    }


def _line(cells: Sequence[object]) -> str:
    return "".join(str(cell).rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
