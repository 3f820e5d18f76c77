from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.reports.page.browser import Browser, start


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with start(tmp_path_factory.mktemp("browser")) as found:
        yield found
