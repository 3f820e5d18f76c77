"""What a rank keeps of each step."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from real.rank.journal import Journal
from real.rank.run import Keeper
from real.supervise import spool
from real.supervise.spool import Spool


class _Journal:
    """A journal with one finished span and one metric."""

    def take(self, *, is_last: bool) -> tuple[list[tuple[int]], list[tuple[int]]]:
        return [(1,)], [(2,)]


@pytest.mark.parametrize(("records", "kept"), [(True, [("spans", [(1,)]), ("metrics", [(2,)])]), (False, [])])
def test_spans_and_metrics_are_spooled_if_the_job_records(tmp_path: Path, records: bool, kept: list[object]) -> None:
    own = Spool(tmp_path, 0)
    Keeper(own, cast(Journal, _Journal()), lambda index: None, records=records).step_ends()
    own.close()
    assert list(spool.frames(spool.read(tmp_path, 0))) == kept
