"""The types of single values of a scenario file: what each accepts, and the phrase that describes it.

Each is an `Annotated` type whose `Accept` reads a TOML value and describes it to users and editors.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scenarios.config import units
from scenarios.config.units import Quantity

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

_LARGEST = sys.float_info.max
_ABOVE_0, _BELOW_1 = math.ulp(0.0), math.nextafter(1.0, 0.0)
_MOST = 2**63 - 1  # TOML guarantees no larger integers, and seeds and tensors hold no larger ones
MOST_GPUS = 2**20  # of a cluster, and of other counts of machines
MOST_IDS = 10**6  # of one sample and table
MOST_ALIKE = 100_000  # tables for which one entry stands
BYTES_BELOW = 2**60  # so that sums, and counts of bits, still fit into 64 bits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # compared by identity: typing hashes it
class Accept:
    """Field metadata: `read` converts a TOML value, or raises ValueError with a phrase, usually `expected`."""

    expected: str
    read: Callable[[Any], object]
    json_schema: Mapping[str, object] = field(default_factory=dict)
    quantity: Quantity | None = None

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        from pydantic_core import core_schema  # noqa: PLC0415 - whoever only declares keys does without

        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(self.json_schema)


def _whole(least: int, most: int = _MOST, unit: str = "count", alternative: str = "") -> Accept:
    expected = f"a whole number of at least {least}{alternative}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(expected)
        if value > most:
            raise ValueError(f"a whole number of at most {most}")
        return value

    limits = {"minimum": least} if most == _MOST else {"minimum": least, "maximum": most}
    return Accept(expected=expected, read=read, json_schema={"type": "integer", "unit": unit, **limits})


def _number(
    expected: str, least: float = -math.inf, top: float = math.inf, most: float = math.inf, unit: str = "ratio"
) -> Accept:
    """Accept numbers from `least` to `top`; numbers above `most` get a phrase of their own."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_LARGEST <= value <= _LARGEST:
            raise ValueError(expected)
        number = float(value)
        if not least <= number <= top:
            raise ValueError(expected)
        if number > most:
            raise ValueError(f"a number of at most {most}")
        return number

    limits = {"exclusiveMinimum": 0} if least == _ABOVE_0 else {"minimum": least}
    limits |= {"exclusiveMaximum": 1} if top == _BELOW_1 else {"maximum": min(top, most)}
    finite = {bound: limit for bound, limit in limits.items() if math.isfinite(limit)}
    return Accept(expected=expected, read=read, json_schema={"type": "number", "unit": unit, **finite})


def _quantity(kind: Quantity, parse: Callable[[str], float], least: str, *, most: str = "", below: str = "") -> Accept:
    """Accept quantities within bounds."""

    def read(value: object) -> float:
        if not isinstance(value, str):
            raise ValueError(kind.expected_phrase)
        try:
            number = parse(value)
        except OverflowError:
            raise ValueError(kind.expected_phrase) from None
        if number < parse(least):
            raise ValueError(f"{kind.noun} of at least {least}")
        if most and number > parse(most):
            raise ValueError(f"{kind.noun} of at most {most}")
        if below and number >= parse(below):
            raise ValueError(f"{kind.noun} below {below}")
        return number

    return Accept(
        expected=kind.expected_phrase,
        read=read,
        json_schema={"type": "string", "unit": kind.units, "examples": [kind.example]},
        quantity=kind,
    )


def _scaling() -> Accept:
    expected = "'dynamic' or a number from 2**-64 to 2**64"

    def read(value: object) -> float | str:
        if value == "dynamic":
            return "dynamic"
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 2**-64 <= value <= 2**64:
            raise ValueError(expected)
        return float(value)

    number = {"type": "number", "unit": "ratio", "minimum": 2**-64, "maximum": 2**64}
    schema = {"anyOf": [{"const": "dynamic"}, number]}
    return Accept(expected=expected, read=read, json_schema=schema)


def _quantiles() -> Accept:
    expected = "two or more rising numbers of at least 0"

    def read(value: object) -> tuple[float, ...]:
        numbers = value if isinstance(value, list) else []
        if len(numbers) < 2 or any(isinstance(one, bool) or not isinstance(one, (int, float)) for one in numbers):
            raise ValueError(expected)
        if not all(0 <= one <= 1e6 for one in numbers) or numbers != sorted(numbers):
            raise ValueError(expected)
        return tuple(map(float, numbers))

    schema = {"type": "array", "items": {"type": "number", "unit": "ratio", "minimum": 0}, "minItems": 2}
    return Accept(expected=expected, read=read, json_schema=schema)


def _names(each: str) -> Accept:
    expected = f"{each}, or an array of them"

    def read(value: object) -> tuple[str, ...]:
        names = value if isinstance(value, list) and value else [value]
        if not all(isinstance(name, str) and name.strip() for name in names):
            raise ValueError(expected)
        return tuple(names)

    name = {"type": "string"}
    schema = {"anyOf": [name, {"type": "array", "items": name, "minItems": 1}]}
    return Accept(expected=expected, read=read, json_schema=schema)


def _text(expected: str, fits: Callable[[str], bool]) -> Accept:
    def read(value: object) -> str:
        if not isinstance(value, str) or not fits(value):
            raise ValueError(expected)
        return value

    return Accept(expected=expected, read=read, json_schema={"type": "string"})


Count = Annotated[int, _whole(1)]
CountOrZero = Annotated[int, _whole(0)]
Repeats = Annotated[int, _whole(1, 10**9)]  # steps, and samples of one
Alike = Annotated[int, _whole(1, MOST_ALIKE, "tables")]
Machines = Annotated[int, _whole(1, MOST_GPUS)]
Cores = Annotated[int, _whole(1, 4096, "cores")]  # of a host
HostGpus = Annotated[int, _whole(1, 4096, "GPUs")]  # all are simulated, as of cores; the largest NVLink domain has 576
Layers = Annotated[int, _whole(1, 1000, "layers")]
MicroBatches = Annotated[int, _whole(1, 10_000, "batches")]  # of a step
Place = Annotated[int, _whole(0, MOST_GPUS, "number, from 0")]  # of one machine among others
NvLinks = Annotated[int, _whole(0, 100, "NVLinks")]  # between two GPUs
Width = Annotated[int, _whole(1, 10**6, "elements")]  # so that no matrix comes near 2**63 bytes
Seed = Annotated[int, _whole(0, unit="")]
Seed32 = Annotated[int, _whole(0, 2**32 - 1, "")]  # all that numpy's RandomState takes
IdsCount = Annotated[int, _whole(1, MOST_IDS, "ids", " or a table such as {mean = 2.5}")]
IdsMean = Annotated[float, _number("a number above 0", _ABOVE_0, most=MOST_IDS, unit="ids")]
WeightDecay = Annotated[float, _number("a number of at least 0", 0, most=100)]
Exponent = Annotated[float, _number("a number above 0", _ABOVE_0, most=100, unit="exponent")]
Skew = Annotated[float, _number("a number of at least 0", 0, most=100, unit="exponent")]
LearningRate = Annotated[float, _number("a number above 0", _ABOVE_0, most=10**6)]
Decay = Annotated[float, _number("a number from 0 to below 1", 0, _BELOW_1)]
Efficient = Annotated[float, _number("a share from 0.000001 to 1", 1e-6, 1, unit="share")]
Payload = Annotated[float, _number("a share from 0.01 to 1", 0.01, 1, unit="share")]
Acknowledged = Annotated[float, _number("a share from 0 to 1", 0, 1, unit="share")]
Quantiles = Annotated[tuple[float, ...], _quantiles()]
Reserve = Annotated[float, _number("a share from 0 to below 1", 0, _BELOW_1, unit="share")]
Error = Annotated[float, _number("a number")]
Scaling = Annotated[float | Literal["dynamic"], _scaling()]
Positive = Annotated[float, _number("a number above 0", _ABOVE_0)]
Watts = Annotated[float, _number("a number above 0", _ABOVE_0, unit="W")]
SamplesRate = Annotated[float, _number("a number from 0.001 to 1e12", 1e-3, 1e12, unit="samples/s")]
MostRows = Annotated[int, _whole(1, 10**6, "rows")]  # of a sample that come one by one
NotNegative = Annotated[float, _number("a number of at least 0", 0)]
Days = Annotated[float, _number("a number above 0", _ABOVE_0, unit="days")]
Samples = Annotated[float, _number("a number above 0", _ABOVE_0, unit="samples")]
Usd = Annotated[float, _number("a number above 0", _ABOVE_0, unit="USD")]
PerDay = Annotated[float, _number("a number of at least 0", 0, unit="per day")]
UsdPerHour = Annotated[float, _number("a number of at least 0", 0, unit="USD/h")]
AtLeastOne = Annotated[float, _number("a number of at least 1", 1, most=10**6)]
Rate = Annotated[float, _quantity(units.RATE, units.parse_rate, "1 kB/s", most="1 EB/s")]
Size = Annotated[int, _quantity(units.SIZE, units.parse_size, "1 B", below="1024 PiB")]  # BYTES_BELOW
Latency = Annotated[int, _quantity(units.TIME, units.parse_time, "0 ns", most="1 s")]
Duration = Annotated[int, _quantity(units.TIME, units.parse_time, "1 ns", most="1000 h")]
DurationOrZero = Annotated[int, _quantity(units.TIME, units.parse_time, "0 ns", most="1000 h")]
FlopRate = Annotated[float, _quantity(units.FLOP_RATE, units.parse_flop_rate, "1 MFLOP/s", most="1 EFLOP/s")]
Flops = Annotated[float, _quantity(units.FLOPS, units.parse_flops, "0 FLOP", most="1000 EFLOP")]
Name = Annotated[str, _text("a name without '/'", lambda value: bool(value.strip()) and "/" not in value)]
File = Annotated[str, _text("a path relative to this file", lambda value: bool(value.strip()))]
KernelTables = Annotated[tuple[str, ...], _names("a table's name, or a path that ends in .parquet, .json or .json.gz")]
Profile = Annotated[str, _text("a profile's name, or a path that ends in .toml", lambda value: bool(value.strip()))]
Text = Annotated[str, _text("a string", lambda value: True)]
Uniform = Annotated[
    str,
    _text(
        "'uniform', {zipf = 1.05} or {file = 'ids.csv'}, as ids_per_sample is the number of ids",
        lambda value: value == "uniform",
    ),
]
