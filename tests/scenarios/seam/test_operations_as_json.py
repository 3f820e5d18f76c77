"""Descriptions of operators go to JSON and back; what is none is seen."""

from __future__ import annotations

import json

import pytest

from scenarios.seam.operations.as_json import from_json, is_operation, to_json
from scenarios.seam.operations.bags import BagsBackward, uniform
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import strided_call
from scenarios.seam.operations.products import linear

OPERATIONS: list[Operation] = [
    linear(8192, 479, 1024, "tf32", element_bytes=4),
    strided_call("add", (64, 32), [("float32", (32, 1)), ("bfloat16", (0, 1))], [("float32", (32, 1))]),
    Foreach(name="_foreach_add_", dtype="float32", numels=(3, 5), lists=2, read=2, written=1),
    BagsBackward(bags=uniform(tables=3, rows=100, dim=16, bags=8, length=2), optimizer="adam"),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: type(each).__name__)
def test_a_description_survives_json(operation: Operation) -> None:
    text = json.dumps(to_json(operation))
    assert from_json(json.loads(text)) == operation
    assert is_operation(json.loads(text))


@pytest.mark.parametrize("value", [{}, {"is": "Nothing"}, {"is": "Product"}, {"is": "Product", "depth": 3}, [], 7, "x"])
def test_other_json_is_no_description(value: object) -> None:
    assert not is_operation(value)
