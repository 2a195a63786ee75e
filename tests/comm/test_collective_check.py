"""Rows: equal ones pass, others raise on every rank, with all that is needed to find the culprit."""

import numpy as np
import pytest

from unisono.comm.collective_check import (
    ROW_WORDS,
    any_code,
    check_kinds,
    check_rows,
    late_ranks_error,
    reduced_code,
    row,
)
from unisono.errors import Mismatch, UserError


def test_equal_rows_pass():
    check_rows("all_reduce", [row("all_reduce", 5, 0, 1)] * 3)


def test_rows_have_one_length_whatever_is_in_them():
    assert len(row("barrier")) == len(row("agree", 1, 2, 3, 4)) == ROW_WORDS


def test_one_value_is_not_the_same_as_that_value_and_zero():
    with pytest.raises(Mismatch, match="ranks disagree on the seed: 1 on rank 0; 1, 0 on rank 1"):
        check_rows("agree", [row("agree", 1), row("agree", 1, 0)], "the seed")


def test_different_collectives_are_named():
    rows = [row("barrier"), row("gather", 1, 2, 3)]
    for check in (check_kinds, lambda rows: check_rows("barrier", rows)):
        with pytest.raises(Mismatch, match="which collective to enter: barrier on rank 0; gather on rank 1"):
            check(rows)


def test_large_values_fit():
    words = np.array(row("agree", 2**64 - 1, -(2**63), 2**63 - 1), np.int64)
    assert words[2:5].tolist() == [-1, -(2**63), 2**63 - 1]


def test_foreign_byte_order_moves_but_is_not_reduced():
    swapped = np.dtype(np.float32).newbyteorder()
    assert any_code(swapped) != any_code(np.dtype(np.float32))
    with pytest.raises(UserError, match="byte order"):
        reduced_code(swapped)


def test_late_names_ranks_or_admits_ignorance():
    error = late_ranks_error(0, "barrier", 2.5, [3, 1])
    assert error.missing == (1, 3)
    assert str(error).startswith("rank 0: waited 2.5 s in barrier; rank 1, 3 did not arrive")
    assert "an unidentified rank did not arrive" in str(late_ranks_error(0, "barrier", 2.5, []))
