import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.topology.cpulist import format_cpulist, parse_cpulist, spans


@given(st.sets(st.integers(0, 300)))
def test_what_is_written_is_read(numbers: set[int]) -> None:
    assert parse_cpulist(format_cpulist(numbers)) == tuple(sorted(numbers))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("", ()), ("\n", ()), ("3", (3,)), ("0-2,8", (0, 1, 2, 8)), (" 0 , 2-3 ", (0, 2, 3)), ("4-4", (4,))],
)
def test_kernel_forms(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_cpulist(text) == numbers


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "1,,2", "+1", "1_0", "٣"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        spans(text)


def test_stretches_are_joined() -> None:
    assert format_cpulist([32, 0, 1, 2, 33, 5]) == "0-2,5,32-33"
