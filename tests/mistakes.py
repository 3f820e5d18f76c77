"""What a call says of the mistakes in what it is given."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scenarios.seam.errors import ScenarioError


def mistakes_of(call: Callable[..., object], *given: object, **named: object) -> list[str]:
    """Return the sentences of the ScenarioError that the call raises."""
    with pytest.raises(ScenarioError) as caught:
        call(*given, **named)
    return list(caught.value.sentences)
