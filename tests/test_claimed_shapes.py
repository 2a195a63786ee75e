import pytest

from unisono.claimed_shapes import count_elements


@pytest.mark.parametrize(
    ("shape", "count"), [((), 1), ((7,), 7), ((3, 0, 5), 0), ((1,) * 32, 1), ((1 << 48,), 1 << 48)]
)
def test_elements(shape, count):
    assert count_elements(shape) == count


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((1,) * 33, "33 dimensions; at most 32"),
        ((3, -1), r"shape \[3, -1\]"),
        ((0, (1 << 48) + 1), "their product at most"),
        ((10**4000, 10**4000), r"2\*\*64 or more"),
    ],
)
def test_shapes_that_numpy_cannot_have(shape, reason):
    with pytest.raises(ValueError, match=reason):
        count_elements(shape)
