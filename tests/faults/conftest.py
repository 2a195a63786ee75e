"""Fixtures of tests of faults."""

import pytest


@pytest.fixture
def few_cores(monkeypatch) -> None:
    """So that masters do their work themselves, whatever the machine; `lend` is for the others."""
    monkeypatch.setattr("unisono.strategies.asynchronous.arena.strategy.usable_cores", lambda: 0)
