"""Plays cases in one world and prints each rank's tensors beside the oracle's.

python -m tests.properties sim|real "CASE" ["CASE" ...]

A CASE is what a failing property prints. All are played one after the other, in one world of the first one's ranks.
The exit status is 1 if anything differs from the oracle, or if the play fails.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.properties import bucketize, exchanges, gradients, moves, plans, twrw
from tests.properties.case import Case
from tests.properties.compare import compare
from tests.properties.short import Short

CASES = {
    name: kind
    for room in (bucketize, exchanges, gradients, moves, plans, twrw)
    for name, kind in vars(room).items()
    if isinstance(kind, type) and issubclass(kind, Short)
}


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    if len(arguments) < 2 or arguments[0] not in ("sim", "real"):
        print(__doc__, file=sys.stderr)
        return 2
    cases: list[Case] = [eval(text, dict(CASES)) for text in arguments[1:]]
    compared = compare(arguments[0], cases)
    for one in compared:
        print(one if one.agrees else f"{one}   <-- differs")
    return 0 if all(one.agrees for one in compared) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
