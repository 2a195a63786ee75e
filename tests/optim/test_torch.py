"""50 steps of each optimizer end where torch.optim ends."""

from functools import cache

import pytest

import unisono
from support.needs import needs_torch
from support.optim.torch_differences import CASES, run_all


@cache
def differences() -> dict[str, float]:
    """In a process of its own: torch would start threads."""
    found: dict[str, float] = unisono.run(lambda world: run_all(), 1, start="fork")[0]
    return found


@needs_torch
@pytest.mark.parametrize("name", CASES)
def test_ends_where_torch_ends(name):
    assert differences()[name] < 2e-6
