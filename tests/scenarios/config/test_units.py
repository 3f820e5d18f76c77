"""Units: one door, exact, and no way to mistake one dimension for another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config import units

DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
PARSERS: dict[Callable[[str], float], str] = {
    units.parse_rate: "a rate such as '400 Gbit/s'",
    units.parse_size: "a size such as '80 GiB'",
    units.parse_time: "a time such as '3 us'",
    units.parse_flop_rate: "a compute rate such as '67 TFLOP/s'",
    units.parse_flops: "an amount of arithmetic such as '250 GFLOP'",
}
WRITTEN: dict[Callable[[str], float], str] = {
    units.parse_rate: "25 GB/s",
    units.parse_size: "80 GiB",
    units.parse_time: "3 us",
    units.parse_flop_rate: "67 TFLOP/s",
    units.parse_flops: "250 GFLOP",
}


@pytest.mark.parametrize(
    ("parse", "text", "number"),
    [
        (units.parse_rate, "400 Gbit/s", 50e9),
        (units.parse_rate, "25 GB/s", 25e9),
        (units.parse_rate, "3.35 TB/s", 3.35e12),
        (units.parse_rate, "1 GiB/s", 2**30),
        (units.parse_rate, "60 kB/min", 1000),
        (units.parse_size, "80 GiB", 80 * 2**30),
        (units.parse_size, "80 GB", 80 * 10**9),
        (units.parse_size, "12 bit", 2),
        (units.parse_size, "0.1 GiB", 107374182),
        (units.parse_size, "1.1 GB", 1_100_000_000),
        (units.parse_size, " 1e3 bytes ", 1000),
        (units.parse_size, "8 kibibits", 2**10),
        (units.parse_time, "3 us", 3000),
        (units.parse_time, "3 µs", 3000),
        (units.parse_time, "3 microseconds", 3000),
        (units.parse_time, "2 min", 120 * 10**9),
        (units.parse_time, "0.4 ns", 0),
        (units.parse_flop_rate, "989.4 TFLOP/s", 989.4e12),
        (units.parse_flops, "250 GFLOP", 250e9),
    ],
)
def test_a_quantity_is_counted_in_its_unit(parse: Callable[[str], float], text: str, number: float) -> None:
    assert parse(text) == number


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("other", PARSERS)
def test_no_quantity_passes_for_one_of_another_dimension(
    parse: Callable[[str], float], other: Callable[[str], float]
) -> None:
    if parse is other:
        assert parse(WRITTEN[other]) > 0
        return
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared
        parse(WRITTEN[other])
    assert str(error.value) == PARSERS[parse]


NO_RATES = """400 | Gbit/s | 400 Gb/s | 400 Gbps | 25 gB/s | 25 KB/s | 25 GB | 25 GBs/s | 25 GB/s/s | 25 GB*s
25 GB/s # fast | 1e999 B/s | 3 nan | 3 inf | 9**9**9 B/s | 0x10 B/s | 1_000 B/s | 1,5 B/s | . B/s"""


@pytest.mark.parametrize("text", ["", "\u0663 B/s", f"{'9' * 400} B/s", *NO_RATES.replace("\n", " | ").split(" | ")])
def test_invalid_rates_are_refused(text: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared
        units.parse_rate(text)
    assert str(error.value) == "a rate such as '400 Gbit/s'"


@given(number=st.integers(0, 10**6), prefix=st.sampled_from(sorted(DECIMAL | BINARY)))
def test_whole_numbers_of_a_unit_are_exact(number: int, prefix: str) -> None:
    factor = (DECIMAL | BINARY)[prefix]
    assert units.parse_size(f"{number} {prefix}B") == number * factor
    assert units.parse_rate(f"{number} {prefix}B/s") == float(number * factor)
    assert units.parse_rate(f"{number * 8} {prefix}bit/s") == float(number * factor)


@given(size_bytes=st.integers(0, 2**55))
def test_a_formatted_size_reads_back_within_half_a_percent(size_bytes: int) -> None:
    assert units.parse_size(units.format_bytes(size_bytes)) == pytest.approx(size_bytes, rel=0.0051)


@given(number=st.floats(1, 1e17))
def test_formatted_rates_read_back_within_half_a_percent(number: float) -> None:
    assert units.parse_rate(units.format_rate(number)) == pytest.approx(number, rel=0.0051)


@given(time_ns=st.integers(0, 10**15))
def test_a_formatted_time_reads_back_within_half_a_percent(time_ns: int) -> None:
    assert units.parse_time(units.format_ns(time_ns)) == pytest.approx(time_ns, rel=0.0051)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (units.format_bytes(0), "0 B"),
        (units.format_bytes(1023), "1023 B"),
        (units.format_bytes(1536), "1.5 KiB"),
        (units.format_bytes(2**20 - 1), "1 MiB"),
        (units.format_bytes(80 * 2**30), "80 GiB"),
        (units.format_rate(5e10), "50 GB/s"),
        (units.format_rate(999.6), "1 kB/s"),
        (units.format_ns(3210), "3.21 us"),
        (units.format_ns(-3210), "-3.21 us"),
        (units.format_ns(5e12), "5000 s"),
    ],
)
def test_people_read_three_digits(text: str, wanted: str) -> None:
    assert text == wanted
